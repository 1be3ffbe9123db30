"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

MORE_EXPERTS = Claim(
    id="more-experts-are-more-accurate",
    statement="A few experts predict far better than one, at little complexity",
    paper="accuracy rises with the number of experts on tasks of several formulas",
    measure="R2 on test rows of the linear mixture of most experts minus that of one expert; above 0.4; one value for "
    "each seed",
    direction="greater",
    threshold=0.4,
)
SYMBOLIC = Claim(
    id="symbolic-no-worse-than-linear",
    statement="Symbolic experts are at least as accurate as linear ones where concepts are known",
    paper="Symbolic M-CBE matches or exceeds Linear M-CBE",
    measure="R2 with true concepts of symbolic minus linear experts, most experts; one value for each seed",
    direction="greater",
    threshold=0.0,
)
FORMULAS = Claim(
    id="formulas-are-found",
    statement="Its formulas are those that made the data",
    paper="expert functions are discovered from data",
    measure="generating formulas of 4 that an expert equals (within 1% of the target's standard deviation); above 2.5; "
    "one value for each seed",
    direction="greater",
    threshold=2.5,
    least=0.0,
    most=4.0,
)
FRONT = Claim(
    id="on-the-front",
    statement="Mixtures lie on the front of error and complexity: no model is simpler and more accurate",
    paper="M-CBEs navigate the trade-off between accuracy and interpretability",
    measure="share of mixtures of most experts that no baseline dominates in (error, complexity); above 0.99; one "
    "value for each seed",
    direction="greater",
    threshold=0.99,
    interval="exact",
    least=0.0,
    most=1.0,
)
INTERVENTIONS = Claim(
    id="interventions-help",
    statement="Replacing predicted by true concepts raises accuracy, the more the better",
    paper="interventions improve the task",
    measure="smallest rise of R2 from one share of rows replaced to the next, best mixture; one value for each seed",
    direction="greater",
    threshold=0.0,
)
CLAIMS = (MORE_EXPERTS, SYMBOLIC, FORMULAS, FRONT, INTERVENTIONS)
