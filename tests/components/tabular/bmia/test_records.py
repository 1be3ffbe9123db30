"""Checks on labelled records name the field, the count and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from kfp_methods.components.tabular.bmia.records import (
    Records,
    check_disjoint,
    check_labels,
    check_population,
)
from kfp_methods.errors import InputError


def records(n: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records.from_arrays(rng.normal(size=(n, 3)), np.arange(n) % 4)


def test_records_take_and_join() -> None:
    whole = records(8)
    again = Records.joined([whole.take(np.arange(4)), whole.take(np.arange(4, 8))])
    assert len(again) == 8
    assert again.x.equal(whole.x)
    assert again.y.equal(whole.y)


def test_rows_shared_with_the_audit_are_counted() -> None:
    audit = records(20)
    mixed = Records.joined([records(10, seed=1), audit.take(np.array([3, 7]))])
    with pytest.raises(InputError, match="validation: 2 of its 12 records are also in the audit set"):
        check_disjoint("validation", mixed, audit)


def test_the_same_inputs_under_another_label_are_another_record() -> None:
    audit = records(20)
    check_disjoint("reference", Records(audit.x, (audit.y + 1) % 4), audit)


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_outside_the_classes_are_located(label: int) -> None:
    wrong = records(6)
    wrong.y[2] = label
    with pytest.raises(InputError, match=rf"audit: 1 labels outside 0\.\.3, the first, {label}, in record 3 of"):
        check_labels("audit", wrong, 4)
    check_labels("audit", records(6), 4)


def test_a_class_with_too_few_records_is_named() -> None:
    with pytest.raises(InputError, match="reference: class 4 has 0 records"):
        check_population("reference", records(60), 5)
    check_population("reference", records(60), 4)
