"""An outcome in MLflow's terms: parameters, metrics, tags, dataset inputs and files; nothing is sent from here."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kfp_methods.tracking.jobs import INPUTS
from kfp_methods.tracking.outcome import Outcome

if TYPE_CHECKING:
    import pandas
    from mlflow.entities import DatasetInput, Metric

    from kfp_methods.context import CurvePoint
    from kfp_methods.report import Table
    from kfp_methods.tracking.outcome import DatasetUsed

Scrub = Callable[[str], str]

CLAIMS_FILE, INPUTS_FILE, ERROR_FILE, REPORT_FILE = "claims.json", "inputs.json", "error.txt", "report.html"
_CSV_CELLS = 1_000_000  # a larger table is written as Parquet
_BAD_IN_KEY = re.compile(r"[^\w.\- :/]")


def parameters(outcome: Outcome, scrub: Scrub) -> dict[str, str]:
    """Texts as they are, all else as JSON, which is how Kubeflow's plugin writes them; cut at MLflow's limit."""
    from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH

    return {key(n): shortened(scrub(as_text(v)), MAX_PARAM_VAL_LENGTH) for n, v in outcome.parameters.items()}


def changed_parameters(wanted: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Names whose value differs from the one the run has already, and which MLflow will not change."""
    return [name for name, value in wanted.items() if name in known and not _same(value, known[name])]


def metrics(values: Mapping[str, float | None], now_ms: int, model_id: str | None = None) -> list[Metric]:
    """The finite ones; a None was not measured, and `not_finite` names the others."""
    from mlflow.entities import Metric

    return [
        Metric(key(name), float(value), now_ms, 0, model_id=model_id)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def curve_metrics(points: Iterable[CurvePoint]) -> list[Metric]:
    """The finite points of all curves."""
    from mlflow.entities import Metric

    return [Metric(key(p.name), p.value, p.timestamp_ms, p.step) for p in points if math.isfinite(p.value)]


def not_finite(outcome: Outcome) -> list[str]:
    """Metrics and curves with a NaN or an infinity, which MLflow's charts cannot show."""
    bad = [name for name, value in outcome.metrics.items() if value is not None and not math.isfinite(value)]
    return list(dict.fromkeys(bad + [p.name for p in outcome.points if not math.isfinite(p.value)]))


def tags(outcome: Outcome, scrub: Scrub) -> dict[str, str]:
    """Verdicts, whose data it was, and the note that MLflow shows above the run."""
    from mlflow.utils.validation import MAX_TAG_VAL_LENGTH

    found = {f"claim.{result.claim.id}": str(result.verdict) for result in outcome.claims}
    found |= {
        "kfp_methods.data": outcome.data,
        INPUTS: hashlib.sha256(_json(outcome.parameters).encode()).hexdigest()[:16],
        "mlflow.note.content": note(outcome),
        "seed": as_text(outcome.parameters.get("seed", "")),
        "preset": as_text(outcome.parameters.get("preset", "")),
        "warnings": "\n".join(outcome.warnings),
        "error": outcome.error,
    }
    if outcome.claims:
        found["mlflow.loggedArtifacts"] = json.dumps([{"path": CLAIMS_FILE, "type": "table"}])
    return {key(n): shortened(scrub(v), MAX_TAG_VAL_LENGTH) for n, v in found.items() if v}


def note(outcome: Outcome) -> str:
    """Markdown: whose data, the verdicts, the warnings, the error."""
    data = "the method's embedded sample" if outcome.data == "sample" else "the user's own"
    lines = [f"Data: {data}."]
    lines += [f"- **{r.verdict}**: {r.claim.statement}{_measured(r)}" for r in outcome.claims]
    lines += [f"- Warning: {warning}" for warning in outcome.warnings]
    lines += [f"- {outcome.status}: {outcome.error.strip().splitlines()[-1]}"] if outcome.error.strip() else []
    return "\n".join(lines)


def dataset_inputs(datasets: Iterable[DatasetUsed], data: str, scrub: Scrub) -> list[DatasetInput]:
    """MLflow's dataset entities; the whole digest is in the profile, for MLflow keeps 36 characters of it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.validation import MAX_DATASET_DIGEST_SIZE

    def entity(used: DatasetUsed) -> Dataset:
        kind, source = dataset_source(scrub(used.source), data)
        profile = {"num_rows": used.rows, "sha256": used.digest}
        known = {name: value for name, value in profile.items() if value is not None}
        digest = used.digest.removeprefix("sha256:")[:MAX_DATASET_DIGEST_SIZE]
        return Dataset(used.field, digest, kind, json.dumps(source, ensure_ascii=False), None, json.dumps(known))

    return [DatasetInput(entity(used), [InputTag("mlflow.data.context", data)]) for used in datasets]


def dataset_source(uri: str, data: str) -> tuple[str, dict[str, str]]:
    """MLflow's source type and its fields, so that `mlflow.data.get_source` can fetch the data again."""
    if data == "sample":
        return "package", {"name": uri}
    scheme = urlsplit(uri).scheme.lower()
    if scheme in ("http", "https"):
        return "http", {"url": uri}
    return ("local" if scheme in ("", "file") else scheme), {"uri": uri}


def write_files(outcome: Outcome, folder: Path, scrub: Scrub) -> None:
    """Everything that becomes the run's artifacts, in the layout it has there."""
    (folder / INPUTS_FILE).write_text(scrub(_json(outcome.parameters, indent=1)), encoding="utf-8")
    if outcome.claims:
        frame = claims_frame(outcome)
        (folder / CLAIMS_FILE).write_text(frame.to_json(orient="split", index=False, force_ascii=False), "utf-8")
    if outcome.error:
        (folder / ERROR_FILE).write_text(scrub(outcome.error), encoding="utf-8")
    if outcome.report is not None and outcome.report.is_file():
        shutil.copyfile(outcome.report, folder / REPORT_FILE)
    for figure in outcome.figures:
        _inside(folder / "figures", figure.filename).write_bytes(figure.data)
    for table in outcome.tables:
        _write_table(table, folder / "tables")


def claims_frame(outcome: Outcome) -> pandas.DataFrame:
    """One row a claim, for MLflow's table view."""
    import pandas

    columns = ("verdict", "value", "low", "high", "n", "note")
    rows = [
        {
            "claim": result.claim.id,
            "statement": result.claim.statement,
            **{name: getattr(result, name) for name in columns},
            "verdict": str(result.verdict),
            "paper": result.claim.paper,
        }
        for result in outcome.claims
    ]
    return pandas.DataFrame(rows)


def key(name: str) -> str:
    """`name` with what MLflow does not allow in a name replaced; unchanged for almost all."""
    return _BAD_IN_KEY.sub("_", name).strip("/")[:250] or "_"


def as_text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _write_table(table: Table, folder: Path) -> None:
    named = table.frame.index.name is not None
    if table.frame.size > _CSV_CELLS:
        table.frame.to_parquet(_inside(folder, f"{table.name}.parquet"), index=named)
    else:
        table.frame.to_csv(_inside(folder, f"{table.name}.csv"), index=named)


def _inside(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / name


def _measured(result: Any) -> str:
    if result.value is None:
        return f" ({result.note})" if result.note else ""
    interval = f" [{result.low:.4g}, {result.high:.4g}]" if result.low is not None else ""
    return f" (measured {result.value:.4g}{interval}, n={result.n})"


def _same(one: str, other: str) -> bool:
    """Whether two writings stand for one value: Kubeflow's plugin may write 1.0 as 1 and true as True."""
    if one == other or one.lower() == other.lower():
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=indent is None, indent=indent, default=str)
