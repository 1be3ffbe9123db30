"""A `Method` becomes a KFP component, a pipeline and a YAML file; nothing of its interface is written twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Optional

from kfp import compiler, dsl, kubernetes

from kfp_methods import catalogue
from kfp_methods.contract import Method
from kfp_methods.fields import InputKind, OutputKind
from kfp_methods.version import image_name

MLFLOW_SECRET = "kfp-mlflow-credentials"  # noqa: S105 (a secret's name, not a secret)
MLFLOW_SECRET_KEYS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
MLFLOW_CONFIG_MAP = "kfp-methods-mlflow"
MLFLOW_CONFIG_KEYS = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_WORKSPACE")
POD_FIELDS = {
    "KFP_RUN_ID": "metadata.labels['pipeline/runid']",
    "KFP_POD_NAME": "metadata.name",
    "KFP_NAMESPACE": "metadata.namespace",
    "KFP_NODE_NAME": "metadata.annotations['workflows.argoproj.io/node-name']",
}
IMAGE_USER = 10001
FIRST_BACKOFF_SECONDS, QUEUE_SECONDS = 30, 24 * 3600
RESERVED_PARAMETERS = ("seeds", "gpus", "gpu_type", "cpu", "memory")
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}


AnyMethod = Method[Any, Any, Any]


@dataclass(frozen=True)
class Placement:
    """How a compiled pipeline's pods are scheduled and repeated; what users change per run is a parameter instead.

    timeout_seconds: after which an attempt is ended; None is the method's. shared_memory: the most that /dev/shm
    may take of the pod's memory, as a Kubernetes quantity; None is the method's memory. run_as_user: user and group
    of the container, by default the images' own; None leaves both to the namespace. volumes: where claims of
    persistent volumes, by name, appear in the pods that do the work. workspace: size of a volume that Kubeflow makes
    for each run and that keeps its checkpoints, as a Kubernetes quantity; None makes none.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    retries: int = 2
    cache: bool = False
    timeout_seconds: int | None = None
    shared_memory: str | None = None
    run_as_user: int | None = IMAGE_USER
    volumes: Mapping[str, str] = field(default_factory=dict)
    workspace: str | None = None

    @property
    def own_checkpoints(self) -> dict[str, str]:
        """What the parameter `checkpoints` is where the run has a workspace of its own."""
        return {"checkpoints": f"{dsl.WORKSPACE_PATH_PLACEHOLDER}/checkpoints"} if self.workspace else {}

    @property
    def pipeline_config(self) -> dsl.PipelineConfig:
        """Asks Kubeflow for the workspace."""
        return dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(self.workspace) if self.workspace else None)


DEFAULT_PLACEMENT = Placement()

# What a single run hands on to the task that joins replicates (in this form KFP sees classes, not their names).
_Results = NamedTuple("_Results", [("claims", dsl.Artifact), ("metrics", dsl.Metrics)])  # noqa: UP014


def component(method: AnyMethod, image: str | None = None) -> Any:
    """The method as a KFP container component whose command is `kfp_methods.entrypoint`."""
    container = dsl.ContainerSpec(
        image=image or default_image(method),
        command=["python3", "-m", "kfp_methods.entrypoint", method.name],
        args=["--executor-input", "{{$}}"],
    )
    parameters = [
        *(part for kind in method.inputs.kinds().values() for part in _input_parameters(kind)),
        *(_output_parameter(kind) for kind in method.outputs.kinds().values()),
    ]
    arguments = {name: text for kind in method.inputs.kinds().values() for name, text in _input_help(kind)}
    text = _docstring(_title(method), arguments, _output_help(method))
    return dsl.container_component(_function(method.name, parameters, text, lambda **_: container))


def single_pipeline(method: AnyMethod, placement: Placement = DEFAULT_PLACEMENT, image: str | None = None) -> Any:
    """The method's pipeline with one pod; the Kubeflow UI shows every field with its description."""
    work = component(method, image)
    kinds = [kind for kind in method.inputs.kinds().values() if kind.name not in placement.own_checkpoints]
    own = [_pipeline_parameter(kind) for kind in kinds]

    def body(**values: Any) -> Any:
        task = work(**{parameter.name: values[parameter.name] for parameter in own}, **placement.own_checkpoints)
        _place(task, method, values, placement)
        return _Results(claims=task.outputs["claims"], metrics=task.outputs["metrics"])

    arguments = {**{kind.parameter_name: kind.description for kind in kinds}, **_RESOURCE_HELP}
    parameters = [*own, *_resource_parameters(method)]
    return _pipeline(method, method.name, placement, parameters, arguments, body, _Results)


def replicated_pipeline(method: AnyMethod, placement: Placement = DEFAULT_PLACEMENT, image: str | None = None) -> Any:
    """One pod for each of the parameter `seeds`, then a task that pools their claims."""
    # A pipeline within the loop: KFP does not hand a loop's body the parameters that only resources use.
    single = single_pipeline(method, placement, image)
    given_otherwise = {"seed", *placement.own_checkpoints}
    kinds = [kind for kind in method.inputs.kinds().values() if kind.name not in given_otherwise]

    def body(**values: Any) -> None:
        given = {name: value for name, value in values.items() if name != "seeds"}
        with dsl.ParallelFor(values["seeds"]) as seed:
            task = single(**given, seed=seed).set_caching_options(placement.cache)
        _collect(task, method, values, placement, image)

    seeds_help = "One replicate of the whole run for each seed; claims are pooled over them."
    arguments = {"seeds": seeds_help, **{kind.parameter_name: kind.description for kind in kinds}, **_RESOURCE_HELP}
    own = [_pipeline_parameter(kind) for kind in kinds]
    parameters = [_parameter("seeds", list, [0]), *own, *_resource_parameters(method)]
    name = f"{method.name}-replicates"
    return _pipeline(method, name, placement, parameters, arguments, body, inspect.Signature.empty)


def compile_component(method: AnyMethod, path: Path) -> None:
    """Writes the component's YAML, which `kfp.components.load_component_from_file` reads."""
    compiler.Compiler().compile(component(method), str(path))


def compile_pipeline(
    pipeline: Any, path: Path, *, kubernetes_manifest: bool = False, namespace: str | None = None
) -> None:
    """Writes a pipeline's YAML, or the Pipeline and PipelineVersion resources for `kubectl apply`."""
    options = None
    if kubernetes_manifest:
        from kfp.compiler.compiler_utils import KubernetesManifestOptions

        options = KubernetesManifestOptions(include_pipeline_manifest=True, namespace=namespace)
    compiler.Compiler().compile(
        pipeline, str(path), kubernetes_manifest_format=kubernetes_manifest, kubernetes_manifest_options=options
    )


def default_image(method: AnyMethod) -> str:
    """The group's image of this version; the environment may name another registry or tag."""
    return image_name(catalogue.entry(method.name).group)


def _collect(task: Any, method: AnyMethod, values: Mapping[str, Any], placement: Placement, image: str | None) -> None:
    collect = catalogue.load(catalogue.COLLECT.name)
    joined = component(collect, image or default_image(method))(
        method=method.name,
        wanted_seeds=values["seeds"],
        experiment=values["experiment"],
        require_tracking=values["require_tracking"],
        replicate_claims=dsl.Collected(task.outputs["claims"]),
        replicate_metrics=dsl.Collected(task.outputs["metrics"]),
    )
    joined.set_display_name("collect")
    _request(joined, collect.resources.cpu, collect.resources.memory)
    _run_as(joined, method, placement, collect.resources.timeout_seconds)


def _place(task: Any, method: AnyMethod, values: Mapping[str, Any], placement: Placement) -> None:
    """Resources and scheduling of the pod that does the work."""
    _request(task, values["cpu"], values["memory"])
    task.set_accelerator_type(values["gpu_type"]).set_accelerator_limit(values["gpus"])
    # PyTorch's data loaders share tensors through /dev/shm, which container runtimes cap at 64 MiB
    # (kubeflow/pipelines#9893). What lies there counts as the pod's memory; the node takes the lower of the two limits.
    size = placement.shared_memory or method.resources.memory
    kubernetes.empty_dir_mount(task, "shared-memory", "/dev/shm", medium="Memory", size_limit=size)  # noqa: S108
    for claim, path in placement.volumes.items():
        kubernetes.mount_pvc(task, claim, path)
    for key, value in placement.node_selector.items():
        kubernetes.add_node_selector(task, key, value)
    for toleration in placement.tolerations:
        kubernetes.add_toleration(task, **toleration)
    _run_as(task, method, placement, placement.timeout_seconds or method.resources.timeout_seconds)


def _request(task: Any, cpu: Any, memory: Any) -> None:
    """Memory is a limit too: a pod beyond its request would take down its neighbours on the node, not itself.

    Processor time is not limited: Kubernetes shares it out by the requests, and a limit would only hold threads back
    while cores idle.
    """
    task.set_cpu_request(cpu).set_memory_request(memory).set_memory_limit(memory)


def _run_as(task: Any, method: AnyMethod, placement: Placement, timeout_seconds: int) -> None:
    """What every pod has: an unprivileged user, an environment, a deadline, retries."""
    task.set_caching_options(placement.cache)
    user = placement.run_as_user
    kubernetes.set_security_context(task, run_as_user=user, run_as_group=user, run_as_non_root=True)
    kubernetes.set_timeout(task, timeout_seconds)
    if placement.retries:
        task.set_retry(
            placement.retries,
            backoff_duration=f"{FIRST_BACKOFF_SECONDS}s",
            backoff_factor=2,
            backoff_max_duration=f"{_retry_seconds(placement.retries, timeout_seconds)}s",
        )
    _environment(task, method)


def _retry_seconds(retries: int, timeout_seconds: int) -> int:
    """Time for all attempts: Argo counts it from the first one's start, and also ends a later one that exceeds it."""
    attempts = (retries + 1) * (QUEUE_SECONDS + timeout_seconds)
    return attempts + FIRST_BACKOFF_SECONDS * (2**retries - 1)


def _environment(task: Any, method: AnyMethod) -> None:
    """Where MLflow is and how to log in to it, if the namespace says so; which run and pod this is."""
    kubernetes.use_secret_as_env(task, MLFLOW_SECRET, {key: key for key in MLFLOW_SECRET_KEYS}, optional=True)
    kubernetes.use_config_map_as_env(task, MLFLOW_CONFIG_MAP, {key: key for key in MLFLOW_CONFIG_KEYS}, optional=True)
    for variable, path in POD_FIELDS.items():
        kubernetes.use_field_path_as_env(task, variable, path)
    task.set_env_variable("KFP_PIPELINE_NAME", method.name)


def _input_parameters(kind: InputKind) -> list[inspect.Parameter]:
    if kind.is_list_of_artifacts:
        listed: Any = list.__class_getitem__(getattr(dsl, kind.kfp_type))
        return [_parameter(kind.name, dsl.Input[listed])]
    if kind.is_artifact:
        return [
            _parameter(kind.name, _optional(dsl.Input[getattr(dsl, kind.kfp_type)]), None),
            _parameter(kind.parameter_name, str, ""),
        ]
    return [_pipeline_parameter(kind)]


def _pipeline_parameter(kind: InputKind) -> inspect.Parameter:
    if kind.is_artifact:
        return _parameter(kind.parameter_name, str, "")
    plain = _PLAIN[kind.kfp_type]
    if kind.presets or kind.default is None:
        return _parameter(kind.name, _optional(plain), None)
    default = kind.default if plain is not str else str(kind.default)
    return _parameter(kind.name, plain, default)


def _optional(annotation: Any) -> Any:
    return Optional.__getitem__(annotation)  # kfp reads typing.Optional, not `| None`


def _resource_parameters(method: AnyMethod) -> list[inspect.Parameter]:
    return [
        _parameter("gpus", int, 0),
        _parameter("gpu_type", str, "nvidia.com/gpu"),
        _parameter("cpu", str, method.resources.cpu),
        _parameter("memory", str, method.resources.memory),
    ]


_RESOURCE_HELP = {
    "gpus": "Number of GPUs of the pod; 0 runs on the CPU.",
    "gpu_type": "Kubernetes resource name of the GPU, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb.",
    "cpu": "CPU request of the pod, such as 2 or 500m.",
    "memory": "Memory of the pod, request and limit, such as 8Gi; a pod that takes more is ended.",
}


def _output_parameter(kind: OutputKind) -> inspect.Parameter:
    if kind.is_artifact:
        return _parameter(kind.name, dsl.Output[getattr(dsl, kind.kfp_type)])
    return _parameter(kind.name, dsl.OutputPath(_PLAIN[kind.kfp_type]))


def _input_help(kind: InputKind) -> list[tuple[str, str]]:
    if kind.is_artifact and not kind.is_list_of_artifacts:
        by_uri = f"{kind.description} By URI: a path, s3://, gs://, https://, runs:/ or models:/."
        return [(kind.name, f"{kind.description} From an upstream task."), (kind.parameter_name, by_uri)]
    return [(kind.name, kind.description)]


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _output_help(method: AnyMethod) -> dict[str, str]:
    return {kind.name: kind.description for kind in method.outputs.kinds().values()}


def _docstring(title: str, arguments: Mapping[str, str], returns: Mapping[str, str]) -> str:
    """In the form from which KFP takes the descriptions: inputs below `Args`, outputs below `Returns`."""
    sections = [title]
    for heading, texts in (("Args:", arguments), ("Returns:", returns)):
        lines = [f"    {name}: {' '.join(text.split())}" for name, text in texts.items()]
        sections.append("\n".join([heading, *lines]))
    return "\n\n".join(sections)


def _function(
    name: str, parameters: list[inspect.Parameter], docstring: str, body: Callable[..., Any]
) -> Callable[..., Any]:
    """A function with the given signature and docstring: KFP reads interfaces from functions."""

    names = [parameter.name for parameter in parameters]

    def function(*args: Any, **kwargs: Any) -> Any:
        return body(**dict(zip(names, args, strict=False)), **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    function.__doc__ = docstring
    return function


def _pipeline(
    method: AnyMethod,
    name: str,
    placement: Placement,
    parameters: list[inspect.Parameter],
    arguments: Mapping[str, str],
    body: Callable[..., Any],
    returns: Any,
) -> Any:
    outputs = _output_help(method) if returns is _Results else {}
    text = _docstring(_title(method), arguments, {name: outputs[name] for name in outputs if name in _Results._fields})
    function = _function(method.name, parameters, text, body)
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    decorate = dsl.pipeline(
        name=name.replace("_", "-"), description=_title(method), pipeline_config=placement.pipeline_config
    )
    return decorate(function)


def _title(method: AnyMethod) -> str:
    entry = catalogue.entry(method.name)
    return f"{entry.title}: {entry.summary}"
