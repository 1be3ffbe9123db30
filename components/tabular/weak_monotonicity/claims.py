"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

_CURVES = "on HELM (1 to 6 sources) and VHELM (1 to 8), excess risk at few labels is lower than ERM's over all models"
FEW_LABELS = Claim(
    id="adaptive-beats-all-with-few-labels",
    statement="With one or two labels the adaptive rule picks better models than ERM over all",
    paper=_CURVES,
    measure="excess risk of ERM over all minus that of the adaptive rule, mean of n = 1 and 2, two sources or more; "
    "one value for each target",
    direction="greater",
    threshold=0.0,
)
NO_PRICE = Claim(
    id="adaptive-costs-nothing-later",
    statement="With more labels the adaptive rule is no worse than ERM over all",
    paper="the class falls back to all models as labels come in",
    measure="excess risk of the adaptive rule minus that of ERM over all, largest over n and numbers of sources; one "
    "value for each target; below 0.012",
    direction="less",
    threshold=0.012,
)
PLATEAU = Claim(
    id="frontier-alone-plateaus",
    statement="With many labels ERM over the frontier alone stays behind ERM over all",
    paper="the curves cross: the frontier's bias remains",
    measure="excess risk of ERM over the frontier minus that of ERM over all at the most labels; one value a target",
    direction="greater",
    threshold=0.0,
)
BELOW_MINMAX = Claim(
    id="labels-beat-minmax",
    statement="From eight labels on, picking by labels beats minmax, which uses none",
    paper="minmax is the flat line of reference",
    measure="excess risk of minmax minus the worst of ERM over all, over the frontier and the adaptive rule, n >= 8, "
    "two sources or more; one value for each target",
    direction="greater",
    threshold=0.0,
)
MONOTONE = Claim(
    id="dominance-carries-over",
    statement="Weak monotonicity holds approximately: dominance on the sources carries over to the target",
    paper="322 of 330 pairs (97.6%) in the arena table",
    measure="share of dominating pairs that the target orders alike, at the most sources; one value for each target; "
    "above 0.7 (the threshold is ours, for spoiled images)",
    direction="greater",
    threshold=0.7,
    least=0.0,
    most=1.0,
)
INCREASING = Claim(
    id="dominance-means-more-with-more-sources",
    statement="The more sources, the more dominance means",
    paper="not stated as a number",
    measure="the share at the most sources minus that at the fewest; one value for each target",
    direction="greater",
    threshold=0.0,
)
SHRINKS = Claim(
    id="covering-number-shrinks",
    statement="Few models cover the frontier to within a small loss",
    paper="4, 2 and 1 models at t = 0, 0.005 and 0.01 in the arena table",
    measure="covering number at t = 0.05 / at 0, all tasks but one as sources; one value for each task left out; "
    "below 0.75 (the threshold is ours)",
    direction="less",
    threshold=0.75,
    least=0.0,
    most=1.0,
)
CLAIMS = (FEW_LABELS, NO_PRICE, PLATEAU, BELOW_MINMAX, MONOTONE, INCREASING, SHRINKS)
