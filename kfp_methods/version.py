"""The version of this installation and the names of its images."""

from __future__ import annotations

import os
from importlib import metadata

__version__ = metadata.version("kfp-methods")


def image_name(group: str) -> str:
    """`[registry/]kfp-methods/<group>:<tag>`; KFP_METHODS_REGISTRY and KFP_METHODS_TAG override the defaults."""
    registry = os.environ.get("KFP_METHODS_REGISTRY", "").rstrip("/")
    tag = os.environ.get("KFP_METHODS_TAG", __version__)
    return f"{registry + '/' if registry else ''}kfp-methods/{group}:{tag}"
