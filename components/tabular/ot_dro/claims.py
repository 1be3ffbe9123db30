"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

_LAW = "on the discrete law whose truth is known"
TIGHTER = Claim(
    id="the-certificate-tightens",
    statement="Learning the set lowers the certificate without giving up its coverage",
    paper="a less conservative certificate at the same probability of containing the truth",
    measure=f"certificate of the learned set minus that of the round ball, {_LAW}; one value for each draw",
    direction="less",
    threshold=0.0,
)
CALIBRATED = Claim(
    id="also-when-calibrated",
    statement="The certificate is lower also when exactly as many bootstraps lie outside as for the round ball",
    paper="not stated: the paper's constraint is soft",
    measure=f"certificate of the calibrated set minus that of the round ball, {_LAW}; one value for each draw",
    direction="less",
    threshold=0.0,
)
COVERAGE = Claim(
    id="coverage-is-kept",
    statement="About the wanted share of bootstraps stays inside",
    paper="the upper level constrains it",
    measure=f"share of bootstraps outside the learned set minus gamma, {_LAW}; below 0.06; one value for each draw",
    direction="less",
    threshold=0.06,
)
FRESH = Claim(
    id="coverage-holds-on-fresh-bootstraps",
    statement="The share outside is the same for bootstraps that the set was not learned on",
    paper="not stated as a number",
    measure=f"share of fresh bootstraps outside minus gamma, {_LAW}; within 0.1; one value for each draw",
    direction="within",
    threshold=0.1,
)
DECISION = Claim(
    id="decisions-are-better",
    statement="The decision made with the learned set has the lower true expected loss",
    paper="improved out-of-sample performance over non-trained sets",
    measure=f"true loss with the learned set minus with the round ball, {_LAW}; one value for each draw",
    direction="less",
    threshold=0.0,
)
RELIABLE = Claim(
    id="the-certificate-holds",
    statement="The true loss is below the certificate",
    paper="with the probability that the radius was chosen for, 1 - gamma",
    measure=f"share of draws whose true loss is below the learned set's certificate, {_LAW}; above 0.9",
    direction="greater",
    threshold=0.9,
    interval="binomial",
)
STOCKS_TIGHTER = Claim(
    id="tighter-on-stocks",
    statement="On weekly returns of stocks the certificate tightens too",
    paper="shown for portfolios",
    measure="certificate of the learned set minus that of the round ball, % a week; one value for each year",
    direction="less",
    threshold=0.0,
)
STOCKS_BETTER = Claim(
    id="better-on-stocks",
    statement="On weekly returns of stocks the decision is better in the year after",
    paper="out-of-sample performance, on data that do not change their law",
    measure="loss in the next year with the learned set minus with the round ball, % a week; one value for each year",
    direction="less",
    threshold=0.0,
)
CLAIMS = (TIGHTER, CALIBRATED, COVERAGE, FRESH, DECISION, RELIABLE, STOCKS_TIGHTER, STOCKS_BETTER)
