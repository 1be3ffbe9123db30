"""The paper's claims, and how each is measured."""

from __future__ import annotations

from kfp_methods.claims import Claim

_BEST = "best overall rank in accuracy and uncertainty on 31 problems against seven methods"
BEATS_ALONE = Claim(
    id="cheap-rows-help",
    statement="FIRE errs less than the same regressor on the costly rows alone",
    paper=_BEST,
    measure="share of problems and budgets in which FIRE's NRMSE (mean over seeds) is lower; more than 70%",
    direction="greater",
    threshold=0.7,
    interval="binomial",
)
ERROR_RATIO = Claim(
    id="error-ratio-to-costly-alone",
    statement="Averaged over problems, cheap rows lower FIRE's error",
    paper=_BEST,
    measure="log of FIRE's NRMSE / that on the costly rows alone, one value for each problem and budget",
    direction="less",
    threshold=0.0,
)
DISTRIBUTION = Claim(
    id="distribution-helps-network",
    statement="Showing a network variance and quantiles, not the mean alone, improves the residual model's likelihood",
    paper="the ablation's mean-only variant is worse in most settings",
    measure="negative log likelihood with the mean alone minus with all (targets in test sds); median over cells",
    direction="greater",
    threshold=0.0,
    interval="sign",
)
DISTRIBUTION_GP = Claim(
    id="distribution-helps-gp",
    statement="The same with a Gaussian process as regressor",
    paper="the ablation's mean-only variant is worse in most settings",
    measure="negative log likelihood with the mean alone minus with all (targets in test sds); median over cells",
    direction="greater",
    threshold=0.0,
    interval="sign",
)
BEST_ERROR = Claim(
    id="best-rank-error",
    statement="FIRE has the best mean rank in error",
    paper="best with TabPFN v2, a network far larger than the one shipped here",
    measure="FIRE's rank in NRMSE minus that of the best other method, chosen after seeing them all, by cell",
    direction="less",
    threshold=0.0,
)
BEST_LIKELIHOOD = Claim(
    id="best-rank-likelihood",
    statement="FIRE has the best mean rank in likelihood",
    paper="best with TabPFN v2, a network far larger than the one shipped here",
    measure="FIRE's rank in negative log likelihood minus that of the best other method, chosen after seeing them all",
    direction="less",
    threshold=0.0,
)
FASTER = Claim(
    id="no-slower-than-nargp-time_ratio",
    statement="With a thousand cheap rows FIRE with a network takes no longer than NARGP",
    paper="runtime advantage over Gaussian process methods",
    measure="log of FIRE's seconds / NARGP's, fit and prediction, at 1,000 cheap rows or more; one value for each seed",
    direction="less",
    threshold=0.0,
)
CLAIMS = (BEATS_ALONE, ERROR_RATIO, DISTRIBUTION, DISTRIBUTION_GP, BEST_ERROR, BEST_LIKELIHOOD, FASTER)
