"""How the fitted attack is asked about further records, in the user's own names."""

from __future__ import annotations

from collections.abc import Sequence

from kfp_methods.components.tabular.bmia.columns import logit_columns
from kfp_methods.components.tabular.bmia.model import MembershipAttack
from kfp_methods.report import Text

_SHOWN = 3


def how_to(attack: MembershipAttack) -> Text:
    """The report's words on it."""
    call = "mlflow.pyfunc.load_model(address).predict(frame)"
    columns = f"{_shown(attack.features)}; label; {_shown(logit_columns(attack.n_classes))} (logits or probabilities)"
    lines = [
        f"The fitted attack scores further records of this target: {call}, where address is that of the run's model in "
        "MLflow, such as runs:/<run id>/model.",
        "",
        "- frame is a pandas frame, such as one read from a CSV file, with the records' features and labels and the "
        f"target's outputs on them in columns: {columns}.",
        "- The columns' order does not matter, and others, such as member, are passed over.",
        "- The answer has t, p_value and member for each row; they are missing where a number of that row is missing.",
    ]
    return Text("Scoring further records", "\n".join(lines))


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _SHOWN + 1 else f"{', '.join(names[:_SHOWN])}, … {names[-1]}"
