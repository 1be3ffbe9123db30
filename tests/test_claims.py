"""A claim's verdict follows from its interval, survives JSON, and pools over seeds, not over copies."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kfp_methods.claims import Claim, ClaimResult, Direction, Verdict, dumps, judge, loads, not_measured, pool

GAIN = Claim(
    id="gain",
    statement="A is better than B.",
    paper="35.75 against 23.20",
    measure="Difference of AUC, paired over seeds",
    direction="greater",
    threshold=0.0,
)
LESS = replace(GAIN, id="cost", direction="less", threshold=0.5)
WITHIN = replace(GAIN, id="close", direction="within", threshold=0.02)
BOOTSTRAP = replace(GAIN, interval="bootstrap")
EXACT = replace(GAIN, interval="exact")
SIGN = replace(GAIN, interval="sign")
SHARE = replace(GAIN, id="share", interval="binomial", threshold=0.75)

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
hundredths = st.integers(-100, 100).map(lambda value: value / 100)
samples = st.lists(numbers, min_size=1, max_size=12)
claims = st.builds(
    replace,
    st.just(GAIN),
    direction=st.sampled_from(["greater", "less", "within"]),
    threshold=st.floats(1e-3, 1e3),
    interval=st.sampled_from(["t", "exact", "sign"]),
    level=st.floats(0.5, 0.999),
)


def test_t_interval_is_scipys() -> None:
    values = [0.0081, 0.0122, 0.0064, 0.0098, 0.0113]
    result = judge(GAIN, values)
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert result.value == pytest.approx(0.00956)
    assert (result.low, result.high) == pytest.approx((low, high), rel=1e-12)
    assert result.verdict is Verdict.SUPPORTED
    assert result.n == 5
    assert result.note == ""


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        (GAIN, [0.9, 1.0, 1.1], Verdict.SUPPORTED),
        (GAIN, [-0.9, -1.0, -1.1], Verdict.NOT_SUPPORTED),
        (GAIN, [-1.0, 0.1, 1.0], Verdict.INCONCLUSIVE),
        (LESS, [0.1, 0.11, 0.12], Verdict.SUPPORTED),
        (LESS, [0.9, 1.0, 1.1], Verdict.NOT_SUPPORTED),
        (LESS, [0.4, 0.5, 0.6], Verdict.INCONCLUSIVE),
        (WITHIN, [0.001, -0.001, 0.002], Verdict.SUPPORTED),
        (WITHIN, [0.9, 1.0, 1.1], Verdict.NOT_SUPPORTED),
        (WITHIN, [-0.9, -1.0, -1.1], Verdict.NOT_SUPPORTED),
        (WITHIN, [-0.03, 0.0, 0.03], Verdict.INCONCLUSIVE),
        (WITHIN, [0.01, 0.03, 0.02], Verdict.INCONCLUSIVE),
    ],
)
def test_verdict_says_on_which_side_the_whole_interval_lies(
    claim: Claim, values: list[float], verdict: Verdict
) -> None:
    assert judge(claim, values).verdict is verdict


def test_one_sample_has_a_value_but_no_interval_and_settles_nothing() -> None:
    result = judge(GAIN, [3.0], "From the quick preset.")
    assert (result.value, result.low, result.high, result.n) == (3.0, None, None, 1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.note == (
        "From the quick preset. A single value: no interval, so no verdict; repeat over several seeds."
    )


@pytest.mark.parametrize("claim", [GAIN, BOOTSTRAP])
def test_equal_samples_are_decided_by_their_value_and_the_note_says_so(claim: Claim) -> None:
    result = judge(claim, [0.1] * 3)
    assert (result.value, result.low, result.high) == (0.1, 0.1, 0.1)
    assert result.verdict is Verdict.SUPPORTED
    assert "All 3 values are equal" in result.note
    assert judge(claim, [0.0] * 3).verdict is Verdict.NOT_SUPPORTED, "the threshold is not on the claimed side"


def test_exact_claim_needs_one_value_and_every_value_on_the_claimed_side() -> None:
    assert judge(EXACT, [0.1]).verdict is Verdict.SUPPORTED
    assert judge(EXACT, [0.0]).verdict is Verdict.NOT_SUPPORTED
    mixed = judge(EXACT, [5.0, 6.0, 7.0, -0.1])
    assert mixed.verdict is Verdict.INCONCLUSIVE
    assert (mixed.low, mixed.high) == (-0.1, 7.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_sample_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="gain: a sample is not finite"):
        judge(GAIN, [1.0, bad])


def test_no_samples_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"not_measured\(claim, why\)"):
        judge(GAIN, [])


def test_overflow_is_an_error_and_not_an_infinite_interval() -> None:
    with pytest.raises(ValueError, match="not finite"):
        judge(GAIN, [-1.7e308, 1.7e308])


@pytest.mark.parametrize("seeds", [[1], [1, 1], [1, 2, 3]])
def test_seeds_must_match_the_samples(seeds: list[int]) -> None:
    with pytest.raises(ValueError, match="distinct seeds"):
        judge(GAIN, [1.0, 2.0], seeds=seeds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "Not a slug"}, "no slug"),
        ({"statement": " "}, "statement is empty"),
        ({"direction": "above"}, "direction"),
        ({"interval": "z"}, "interval"),
        ({"threshold": math.nan}, "not finite"),
        ({"direction": "within", "threshold": 0.0}, "above 0"),
        ({"level": 95.0}, "between 0 and 1"),
        ({"interval": "binomial", "threshold": 1.5}, "proportion"),
        ({"interval": "binomial", "threshold": 0.5, "direction": "within"}, "proportion"),
    ],
)
def test_claim_that_cannot_be_used_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(GAIN, **change)  # type: ignore[arg-type]


@given(claims, samples)
def test_verdict_agrees_with_interval(claim: Claim, values: list[float]) -> None:
    result = judge(claim, values)
    if result.low is None or result.high is None:
        assert result.verdict is Verdict.INCONCLUSIVE
        return
    assert result.low <= result.high
    inside = {
        "greater": lambda x: x > claim.threshold,
        "less": lambda x: x < claim.threshold,
        "within": lambda x: abs(x) < claim.threshold,
    }[claim.direction]
    if result.verdict is Verdict.SUPPORTED:
        assert inside(result.low)
        assert inside(result.high)
    if result.verdict is Verdict.NOT_SUPPORTED:
        assert not inside(result.low)
        assert not inside(result.high)


@given(claims, samples, st.randoms())
def test_order_of_samples_does_not_matter(claim: Claim, values: list[float], random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = judge(claim, values), judge(claim, shuffled)
    assert replace(first, samples=()) == replace(second, samples=())


@given(samples)
def test_mirrored_samples_turn_greater_into_less(values: list[float]) -> None:
    above = judge(GAIN, values)
    below = judge(replace(GAIN, direction="less"), [-value for value in values])
    assert above.verdict == below.verdict
    assert above.value == -(below.value or 0.0)


@given(claims, samples, st.text())
def test_json_restores_a_result_exactly(claim: Claim, values: list[float], note: str) -> None:
    result = judge(claim, values, note, seeds=range(len(values)))
    text = dumps([result, not_measured(claim, note)])
    assert loads(text) == [result, not_measured(claim, note)]
    assert ClaimResult.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False))) == result


def test_json_of_a_newer_version_is_read_and_a_broken_one_refused() -> None:
    plain = judge(GAIN, [1.0, 2.0]).to_dict()
    assert ClaimResult.from_dict(plain | {"new": 1}) == judge(GAIN, [1.0, 2.0])
    wrong: list[dict[str, object]] = [{"verdict": "true"}, {"value": "1"}, {"claim": {}}, {"value": math.nan}]
    for change in wrong:
        with pytest.raises(ValueError, match=r".+"):
            ClaimResult.from_dict(plain | change)
    with pytest.raises(ValueError, match="array"):
        loads("{}")


def test_t_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    wanted = replace(GAIN, level=0.9)
    runs = 2_000
    covered = sum(
        result.low <= 0.3 <= result.high
        for result in (judge(wanted, row) for row in rng.normal(0.3, 2.0, (runs, 4)))
        if result.low is not None and result.high is not None
    )
    assert abs(covered / runs - 0.9) < 4 * math.sqrt(0.9 * 0.1 / runs)


def test_null_claim_is_supported_in_no_more_than_half_the_errors() -> None:
    """With nothing to find, "supported" errs on one side: (1 - level) / 2 of the runs."""
    rng = np.random.default_rng(2)
    runs = 2_000
    found = sum(judge(GAIN, row).verdict is Verdict.SUPPORTED for row in rng.normal(0, 1, (runs, 5)))
    assert abs(found / runs - 0.025) < 4 * math.sqrt(0.025 * 0.975 / runs)


def test_bootstrap_interval_is_scipys_bca_and_does_not_depend_on_the_order() -> None:
    values = np.random.default_rng(3).exponential(1.0, 20) - 0.2
    result = judge(BOOTSTRAP, values)
    assert result.low is not None
    assert result.high is not None
    reference = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=50_000, rng=7).confidence_interval
    assert (result.low, result.high) == pytest.approx((reference.low, reference.high), abs=0.03)
    assert result.high - (result.value or 0) > (result.value or 0) - result.low, "skewed as the values are"
    again = judge(BOOTSTRAP, values[::-1])
    assert (again.low, again.high) == (result.low, result.high)


@pytest.mark.parametrize(("n", "kind"), [(5, "t"), (6, "bootstrap")])
def test_bootstrap_gives_way_to_t_where_no_resampling_reaches_the_level(n: int, kind: str) -> None:
    values = np.arange(1.0, n + 1)
    result, t = judge(BOOTSTRAP, values), judge(GAIN, values)
    assert ((result.low, result.high) == (t.low, t.high)) == (kind == "t")
    assert ("too few for a bootstrap" in result.note) == (kind == "t")


def test_bootstrap_of_nearly_equal_values_has_a_finite_interval() -> None:
    result = judge(BOOTSTRAP, [0.1] * 30 + [0.1 + 1e-16])
    assert result.low is not None
    assert result.low == pytest.approx(0.1)
    assert result.verdict is Verdict.SUPPORTED


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.sampled_from([0.0, 1.0]), st.floats(0.6, 0.99))
def test_a_sign_claim_is_decided_as_scipys_sign_test_decides(values: list[int], threshold: float, level: float) -> None:
    result = judge(replace(SIGN, threshold=threshold, level=level), values)
    above = stats.binomtest(sum(v > threshold for v in values), len(values), 0.5, alternative="greater").pvalue
    at_most = stats.binomtest(sum(v < threshold for v in values), len(values), 0.5, alternative="greater").pvalue
    tail = (1 - level) / 2
    assert (result.verdict is Verdict.SUPPORTED) == (above <= tail)
    if at_most <= tail:
        assert result.verdict is Verdict.NOT_SUPPORTED
    assert result.value == np.median(values)


def test_a_sign_claim_of_too_few_values_settles_nothing() -> None:
    assert judge(SIGN, [0.1] * 6).verdict is Verdict.SUPPORTED
    result = judge(SIGN, [0.1] * 5)
    assert (result.verdict, result.low) == (Verdict.INCONCLUSIVE, None)
    assert result.note == "A sign test of 5 values cannot reach 0.95: no interval, so no verdict."


def test_a_sign_interval_covers_the_median_of_a_skewed_law_at_least_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    runs = 2_000
    covered = sum(
        result.low <= math.log(2) <= result.high
        for result in (judge(SIGN, row) for row in rng.exponential(1.0, (runs, 12)))
        if result.low is not None and result.high is not None
    )
    # Between the 3rd and the 10th of 12 values: 1 - 2 P(Bin(12, 1/2) <= 2).
    expected = 1 - 2 * stats.binom.cdf(2, 12, 0.5)
    assert abs(covered / runs - expected) < 4 * math.sqrt(expected * (1 - expected) / runs)


@given(st.integers(1, 400), st.data(), st.sampled_from(["greater", "less"]), st.floats(0.05, 0.95))
def test_a_proportion_is_decided_as_scipys_exact_binomial_test_decides(
    n: int, data: st.DataObject, direction: Direction, threshold: float
) -> None:
    k = data.draw(st.integers(0, n))
    claim = replace(SHARE, direction=direction, threshold=threshold)
    result = judge(claim, [1.0] * k + [0.0] * (n - k), over="traces")
    ends = stats.binomtest(k, n).proportion_ci(claim.level, method="exact")
    assert (result.low, result.high) == pytest.approx((ends.low, ends.high), abs=1e-9)
    assert result.value == pytest.approx(k / n)
    tail = (1 - claim.level) / 2
    p = stats.binomtest(k, n, threshold, alternative=direction).pvalue
    if abs(p - tail) > 1e-9:
        assert (result.verdict is Verdict.SUPPORTED) == (p < tail)


def test_all_trials_that_succeed_are_no_certainty() -> None:
    result = judge(SHARE, [1.0] * 8)
    assert (result.verdict, result.high) == (Verdict.INCONCLUSIVE, 1.0)
    assert result.low == pytest.approx(0.025 ** (1 / 8))
    assert judge(SHARE, [1.0] * 40).verdict is Verdict.SUPPORTED


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_a_trial_is_0_or_1(value: float) -> None:
    with pytest.raises(ValueError, match="share: a trial is neither 0 nor 1"):
        judge(SHARE, [0.0, value])


@given(st.lists(hundredths.map(lambda value: value / 10), min_size=2, max_size=12, unique=True))
def test_equivalence_is_decided_as_two_one_sided_t_tests_decide(values: list[float]) -> None:
    """Schuirmann's test, each side at (1 - level) / 2."""
    result = judge(WITHIN, values)
    above = stats.ttest_1samp(values, -WITHIN.threshold, alternative="greater").pvalue
    below = stats.ttest_1samp(values, WITHIN.threshold, alternative="less").pvalue
    if abs(max(above, below) - 0.025) > 1e-9:
        assert (result.verdict is Verdict.SUPPORTED) == (max(above, below) < 0.025)


@pytest.mark.parametrize(("direction", "threshold"), [("greater", 0.3), ("less", 0.3), ("greater", -2.0)])
@given(values=st.lists(hundredths, min_size=2, max_size=12, unique=True))
def test_a_threshold_is_decided_as_a_one_sided_t_test_decides(
    direction: Direction, threshold: float, values: list[float]
) -> None:
    result = judge(replace(GAIN, direction=direction, threshold=threshold), values)
    p = stats.ttest_1samp(values, threshold, alternative=direction).pvalue
    if abs(p - 0.025) > 1e-9:
        assert (result.verdict is Verdict.SUPPORTED) == (p < 0.025)


def test_numbers_that_cannot_settle_a_claim_are_shown_without_a_verdict_also_when_pooled() -> None:
    why = "Eight references are too few for this tail."
    runs = [[judge(GAIN, [value], seeds=[seed], undecidable=why)] for seed, value in enumerate([0.9, 1.0, 1.1])]
    (pooled,) = pool(runs)
    once = judge(GAIN, [0.9, 1.0, 1.1], "Small.", undecidable=why)
    for result in (pooled, once):
        assert result.verdict is Verdict.INCONCLUSIVE
        assert (result.value, result.low is None) == (1.0, False)
    assert (pooled.note, once.note) == (why, f"Small. {why}")


def test_a_result_says_what_it_was_computed_over() -> None:
    result = judge(GAIN, [1.0], over="references")
    assert result.note.endswith("repeat over several references.")
    (same,) = loads(dumps([result]))
    assert same.over == "references"
    with pytest.raises(ValueError, match="name what the samples are taken over"):
        judge(GAIN, [1.0], over=" ")


def test_pool_says_what_it_is_computed_over() -> None:
    traces = [[judge(GAIN, [value, value + 1], over="traces")] for value in (1.0, 2.0)]
    assert pool(traces)[0].over == "runs"
    numbered = [[judge(GAIN, [1.0 + n], seeds=[n], over="references")] for n in range(3)]
    assert (pool(numbered)[0].over, pool(numbered)[0].n) == ("references", 3)
    with pytest.raises(ValueError, match=r"taken over \['references', 'seeds'\]"):
        pool([*numbered, [judge(GAIN, [1.0], seeds=[9])]])


def test_pool_of_shares_without_seeds_is_over_the_runs_shares() -> None:
    runs = [[judge(SHARE, [1.0] * k + [0.0] * (10 - k), over="traces")] for k in (7, 8, 9)]
    (pooled,) = pool(runs)
    assert (pooled.samples, pooled.over) == ((0.7, 0.8, 0.9), "runs")
    t = judge(replace(GAIN, threshold=0.75), [0.7, 0.8, 0.9])
    assert (pooled.low, pooled.high, pooled.verdict) == (t.low, t.high, t.verdict)
    assert "shares" in pooled.note


def test_pool_joins_seeds_and_judges_anew() -> None:
    runs = [[judge(GAIN, [value], seeds=[seed])] for seed, value in enumerate([0.9, 1.0, 1.1])]
    (pooled,) = pool(runs)
    assert pooled == judge(GAIN, [0.9, 1.0, 1.1], seeds=range(3))
    assert pooled.verdict is Verdict.SUPPORTED


def test_pool_counts_a_seed_once_however_many_runs_had_it() -> None:
    values = {0: 0.9, 1: 1.0, 2: 1.1, 3: 1.3}
    first = judge(GAIN, [values[s] for s in (0, 1, 2)], seeds=[0, 1, 2])
    second = judge(GAIN, [values[s] for s in (1, 2, 3)], seeds=[1, 2, 3])
    (pooled,) = pool([[first], [second]])
    once = judge(GAIN, values.values(), seeds=values)
    assert (pooled.samples, pooled.low, pooled.high) == (once.samples, once.low, once.high)
    assert pooled.note == "2 repeated seed values counted once."
    (copies,) = pool([[first]] * 4)
    assert (copies.n, copies.low, copies.high) == (3, first.low, first.high), "copies do not narrow the interval"


def test_pool_averages_a_seed_that_was_measured_twice() -> None:
    (pooled,) = pool([[judge(GAIN, [1.0], seeds=[7])], [judge(GAIN, [1.5], seeds=[7])]])
    assert (pooled.samples, pooled.seeds) == ((1.25,), (7,))
    assert pooled.verdict is Verdict.INCONCLUSIVE


def test_pool_without_seeds_takes_one_value_for_each_run() -> None:
    (pooled,) = pool([[judge(GAIN, [1.0, 3.0])], [judge(GAIN, [4.0, 6.0, 8.0])], [judge(GAIN, [1.0], seeds=[0])]])
    assert (pooled.samples, pooled.seeds) == ((2.0, 6.0, 1.0), ())
    assert pooled.note == "One value for each run."


def test_pool_leaves_out_runs_that_did_not_measure_and_says_so() -> None:
    measured = [[judge(GAIN, [value], seeds=[seed])] for seed, value in enumerate([0.9, 1.1])]
    (pooled,) = pool([*measured, [not_measured(GAIN, "No GPU.")], []])
    assert pooled.n == 2
    assert pooled.note == "1 of 3 runs did not measure it."
    assert pool([[not_measured(GAIN, "No GPU.")]] * 3) == [not_measured(GAIN, "No GPU.")]
    assert pool([]) == []


def test_pool_refuses_one_id_for_two_claims() -> None:
    with pytest.raises(ValueError, match="gain differs"):
        pool([[judge(GAIN, [1.0])], [judge(replace(GAIN, threshold=1.0), [1.0])]])
    with pytest.raises(ValueError, match="twice"):
        pool([[judge(GAIN, [1.0]), judge(GAIN, [1.0])]])


def test_pool_keeps_the_order_of_claims() -> None:
    runs = [[judge(GAIN, [1.0]), judge(LESS, [1.0])], [judge(WITHIN, [1.0]), judge(LESS, [1.0])]]
    assert [result.claim.id for result in pool(runs)] == ["gain", "cost", "close"]


@settings(max_examples=50)
@given(st.dictionaries(st.integers(0, 9), numbers, min_size=1), st.lists(st.sets(st.integers(0, 9)), max_size=5))
def test_pool_of_any_overlapping_runs_is_the_judgement_of_their_union(
    values: dict[int, float], groups: list[set[int]]
) -> None:
    runs = [
        [judge(GAIN, [values[s] for s in sorted(seeds)], seeds=sorted(seeds))]
        for seeds in (group & set(values) for group in [*groups, set(values)])
        if seeds
    ]
    everything = judge(GAIN, [values[s] for s in sorted(values)], seeds=sorted(values))
    for order in (runs, runs[::-1]):
        (pooled,) = pool(order)
        assert pooled.seeds == everything.seeds
        assert pooled.samples == pytest.approx(everything.samples, rel=1e-12)
        assert pooled.n == len(values)


def test_module_imports_nothing_heavy_and_quickly() -> None:
    """20 ms beyond the standard modules any program has; the least of five, as the machine may be busy."""
    script = (
        "import sys, dataclasses, enum, json, typing, warnings, time; start = time.process_time(); "
        "import kfp_methods.claims; print(time.process_time() - start, *sys.modules)"
    )
    answers = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    assert min(float(seconds) for seconds, *_ in answers) < 0.02
    loaded = {name.partition(".")[0] for name in answers[0][1:]}
    assert not loaded & {
        "numpy",
        "scipy",
        "pandas",
        "pydantic",
        "matplotlib",
        "jinja2",
        "torch",
        "mlflow",
        "kfp",
    }


def test_an_interval_ends_where_no_value_can_lie() -> None:
    claim = replace(GAIN, threshold=0.5, least=0.0, most=1.0)
    found = judge(claim, [0.9, 1.0, 1.0])
    assert found.high == 1.0
    assert found.low == judge(replace(GAIN, threshold=0.5), [0.9, 1.0, 1.0]).low
    with pytest.raises(ValueError, match="nothing lies between"):
        replace(GAIN, least=1.0, most=0.0)
