"""What a score model's output stands for and how data are noised; read by interfaces, so nothing heavy is imported."""

from __future__ import annotations

from typing import Literal

Prediction = Literal["denoised", "score", "epsilon", "v"]
Process = Literal["ve", "vp"]
Preconditioning = Literal["edm", "none"]
NetworkKind = Literal["mlp", "unet"]

# Noise levels in standard deviations of the data: those that the built-in network is trained on, and those at which the
# exact score of a data set can be computed in single precision.
TRAINED_SIGMAS = (0.03, 3.0)
EMPIRICAL_SIGMAS = (1e-3, 1e3)
