"""A pod that was killed leaves its MLflow run RUNNING; the next attempt at the same task ends it.

SIGKILL, such as for memory, leaves a process no time to say that it failed. Kubeflow starts another attempt only when
the one before has ended, so a run of the same task that is still RUNNING belongs to a pod that is gone. Which task a
pod is an attempt at, Argo writes on the pod as an annotation: the name of its node, with the attempt's number in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

NODE_VARIABLE, TASK = "KFP_NODE_NAME", "kfp.task"
_ATTEMPT = re.compile(r"\(\d+\)")
_UNSAFE = re.compile(r"[^\w.:()\[\]\-]")  # what the text of a search could not hold


def task_of(node_name: str) -> str:
    """The node's name without the number of the attempt, "" where there is none.

    Iterations of a loop, `(0:…)` in Argo's names, stay apart.
    """
    return _UNSAFE.sub("_", _ATTEMPT.sub("", node_name))[:500]


def fail_earlier_attempts(
    client: MlflowClient, experiment_id: str, same_task: Mapping[str, str], run_id: str
) -> list[str]:
    """Ends, as FAILED, the runs with these tags that still go on, except `run_id` itself; returns their ids.

    same_task: the tags that identify the task within all pipeline runs: `kfp.run_id` and `kfp.task`. With one of them
    empty nothing is known of earlier attempts, and nothing is done. Raises what MLflow raises.
    """
    if not same_task or not all(same_task.values()):
        return []
    wanted = " AND ".join(f"tags.`{name}` = '{value}'" for name, value in same_task.items())
    going_on = client.search_runs([experiment_id], f"{wanted} AND attributes.status = 'RUNNING'")
    earlier = [run.info.run_id for run in going_on if run.info.run_id != run_id]
    for each in earlier:
        what = f"its pod ended without a word, killed perhaps for want of memory; the next attempt is run {run_id}"
        client.set_tag(each, "error", what)
        client.set_tag(each, "mlflow.note.content", f"- FAILED: {what}")
        client.set_terminated(each, status="FAILED")
    return earlier
