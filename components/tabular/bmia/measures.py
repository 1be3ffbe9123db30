"""The scalar results of a run: one number for each audited target, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.attacks import AttackResult
from kfp_methods.components.tabular.bmia.claims import minus
from kfp_methods.components.tabular.bmia.component import BmiaMetrics

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.running import Audited


def metrics(audits: Sequence[Audited], n_references: int) -> BmiaMetrics:
    """Means over the audited targets; None where one of them lacks the number."""
    frame = pd.DataFrame([_numbers(one, n_references) for one in audits], dtype=float)
    means = {name: None if np.isnan(mean) else float(mean) for name, mean in frame.mean(skipna=False).items()}
    priors = [np.log(prior) for one in audits for prior in one.found.prior_precisions]
    member = audits[0].found.decision.member
    flagged = None if member is None else int(member.sum())
    return BmiaMetrics.model_validate(means | {"prior_precision": float(np.exp(np.mean(priors))), "flagged": flagged})


def _numbers(one: Audited, n_references: int) -> dict[str, float | None]:
    find, decision = one.found.find, one.found.decision
    ours, ours_all = find("bmia", 1), find("bmia", n_references)
    lira, lira_all = find("lira_fixed", 1), find("lira_fixed", n_references)
    others = None if one.member is None else ~one.member
    return {
        "auc_bmia": _auc(ours),
        "tpr_at_1pct_bmia": _tpr(ours),
        "auc_mr_bmia": _auc(ours_all),
        "tpr_at_1pct_mr_bmia": _tpr(ours_all),
        "tpr_gain_vs_lira1": minus(_tpr(ours), _tpr(lira)),
        "intra_var": _median(decision.test.intra_variance),
        "inter_var": _median(decision.test.inter_variance),
        "type1_at_alpha": None if others is None else decision.level_nominal(others),
        "type1_calibrated": None if others is None else decision.level_calibrated(others),
        "scale_ratio": one.found.scale_ratio,
        "target_train_accuracy": one.train_accuracy,
        "target_test_accuracy": one.test_accuracy,
        "bmia_time_ratio": _seconds(ours) / _seconds(lira_all) if ours and lira_all else None,
    }


def _auc(result: AttackResult | None) -> float | None:
    return None if result is None else result.auc


def _tpr(result: AttackResult | None) -> float | None:
    return None if result is None else result.tpr(0.01)


def _seconds(result: AttackResult) -> float:
    return result.train_seconds + result.score_seconds


def _median(values: Floats | None) -> float | None:
    return None if values is None else float(np.median(values))
