"""Names that inputs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

FunctionalName = Literal["borda", "bt", "rank_centrality", "win_tie_half"]
FUNCTIONALS: Mapping[str, str] = {
    "borda": "Win probability (Borda)",
    "bt": "Bradley-Terry strength",
    "rank_centrality": "Rank centrality",
    "win_tie_half": "Wins and half of the ties",
}
BtLink = Literal["win_loss", "logit"]
MuModel = Literal["auto", "lightgbm", "logistic", "mlp"]
TextFeatures = Literal["none", "tfidf_svd100", "minilm"]
SamplePart = Literal["validity", "rate", "digits", "plans", "cycles"]
WIN, LOSS, TIE, BOTH_BAD = 0, 1, 2, 3  # classes of a verdict: the model shown first wins, loses, ...
