"""The names that a user chooses from; read by the interface, so nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal

ModelKind = Literal["train", "empirical", "edm_mlp", "diffusers"]
BaselineName = Literal["flipd", "nb", "mle", "twonn", "lpca", "ess"]
GapRule = Literal["difference", "ratio"]
BandWidth = Literal["relative", "absolute"]
Law = Literal["gaussian", "laplace", "nonlinear"]
SamplePart = Literal["manifolds_64", "manifolds_1024", "manifolds_3072", "digits", "fashion_mnist"]

TITLES: dict[str, str] = {
    "lhsd": "LHSD",
    "lhsd_exact": "LHSD, exact eigenvalues",
    "flipd": "FLIPD",
    "nb": "normal bundle",
    "mle": "MLE (20 neighbours)",
    "twonn": "TwoNN (100 neighbours)",
    "lpca": "local PCA (100 neighbours)",
    "ess": "ESS (100 neighbours)",
}
