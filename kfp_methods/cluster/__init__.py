"""Upload, submit, schedule and follow pipelines on a Kubeflow Pipelines server.

Data classes in, data classes out; nothing is printed and nothing is kept in the home directory. Every failure
is a ClusterError (the server's or the network's) or an InputError (an argument's), one line with its remedy.
Neither kfp nor kfp-server-api is imported before a server is asked.
"""

from kfp_methods.cluster.answers import (
    RunStatus,
    RunSummary,
    Schedule,
    Submitted,
    TaskState,
    UploadedVersion,
)
from kfp_methods.cluster.client import Cluster
from kfp_methods.cluster.connection import ClusterError, Connection

__all__ = [
    "Cluster",
    "ClusterError",
    "Connection",
    "RunStatus",
    "RunSummary",
    "Schedule",
    "Submitted",
    "TaskState",
    "UploadedVersion",
]
