"""Maps the folders at the top of the repository into one import root; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

ROOTS = {
    "kfp_methods": "kfp_methods",
    "kfp_methods.components": "components",
    "kfp_methods.pipelines": "pipelines",
}

setup(
    packages=[
        name
        for root, folder in ROOTS.items()
        for name in [root, *(f"{root}.{p}" for p in find_namespace_packages(folder))]
    ],
    package_dir=ROOTS,
)
