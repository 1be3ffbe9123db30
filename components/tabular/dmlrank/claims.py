"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

COVERAGE = Claim(
    id="debiased-intervals-cover",
    statement="The intervals of debiased scores hold the truth about as often as they say",
    paper="n = 1000, 100 runs: Borda 0.94, BT 0.90, rank centrality 0.91 at 95%",
    measure="share of models whose 95% interval holds the truth, mean of the three scores; one value for each draw; "
    "above 0.85",
    direction="greater",
    threshold=0.85,
    least=0.0,
    most=1.0,
)
PLUGIN = Claim(
    id="plug-in-intervals-do-not",
    statement="Those of plug-in scores do far less often",
    paper="n = 1000: Borda 0.17, BT 0.09, rank centrality 0.12 at 95%",
    measure="coverage of debiased minus that of plug-in intervals, mean of the three scores; one value for each draw; "
    "above 0.25",
    direction="greater",
    threshold=0.25,
    least=-1.0,
    most=1.0,
)
RATE = Claim(
    id="errors-fall-like-the-root-of-n",
    statement="Errors of debiased scores fall like 1 / sqrt(n)",
    paper="root-n consistent and efficient",
    measure="log-log slope over n of the mean absolute error, plus 1/2, mean of the three scores; within 0.15; one "
    "value for each group of draws",
    direction="within",
    threshold=0.15,
)
PLAN = Claim(
    id="a-optimal-labels-are-worth-more",
    statement="At the same budget A-optimal labelling lowers the variance of the scores",
    paper="MSE at budget 2000: Borda 0.130 against 0.141, BT 2.861 against 2.974, rank centrality 0.017 against 0.020",
    measure="predicted total variance with A-optimal labelling / with random labelling, at the true probabilities; "
    "largest over scores and budgets of 1 and 2 labels a context; below 1",
    direction="less",
    threshold=1.0,
    interval="exact",
)
JUDGE = Claim(
    id="a-good-judge-shortens-intervals",
    statement="A judge whose verdicts are features shortens the Borda intervals",
    paper="better judges give smaller variance",
    measure="mean standard error with the judge / without, on digits; below 1; one value for each draw",
    direction="less",
    threshold=1.0,
)
USELESS = Claim(
    id="a-useless-judge-changes-nothing",
    statement="A judge that knows nothing is ignored",
    paper="validity does not depend on the judge",
    measure="the same ratio, minus 1, with a judge of random verdicts; within 0.05; one value for each draw",
    direction="within",
    threshold=0.05,
)
REAL = Claim(
    id="covers-on-classifiers-of-digits",
    statement="Borda intervals also hold the truth where models are real",
    paper="shown on Chatbot Arena without a known truth",
    measure="share of classifiers whose 95% interval holds the win rate over all verdicts; above 0.85; by draw",
    direction="greater",
    threshold=0.85,
    least=0.0,
    most=1.0,
)
CYCLES = Claim(
    id="cycles-mislead-bradley-terry",
    statement="With cyclic preferences Bradley-Terry's leader depends on which pairs were labelled",
    paper="parametric models are misspecified, and then their ranking is of the design",
    measure="share of draws in which the three ways to label one pair of the cycle more often give different leaders; "
    "above 0.5",
    direction="greater",
    threshold=0.5,
    interval="binomial",
)
CYCLES_COVERED = Claim(
    id="cycles-are-covered",
    statement="Debiased Borda and rank centrality intervals hold the truth there too",
    paper="no parametric model is assumed",
    measure="share of models whose 95% interval holds the truth, mean of both scores and of the three ways to label; "
    "above 0.85; one value for each draw",
    direction="greater",
    threshold=0.85,
    least=0.0,
    most=1.0,
)
CLAIMS = (COVERAGE, PLUGIN, RATE, PLAN, JUDGE, USELESS, REAL, CYCLES, CYCLES_COVERED)
