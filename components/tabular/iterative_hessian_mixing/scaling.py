"""A table becomes rows of norm at most 1 and targets within [-1, 1], and coefficients find back to its units.

With public bounds the scaling tells nothing of the data. `from_data` copies the paper's experiments, whose means,
spreads and largest norm do tell something: what comes out then is not private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats


@dataclass(frozen=True)
class Scaling:
    """x -> (x - center) / width, y -> (y - y_center) / y_width; rows are then divided by `radius`.

    Attributes:
        center: of each feature [m].
        width: half the range by the bounds, or the standard deviation [m].
        y_center: of the target.
        y_width: half its range, or the largest distance from the center.
        radius: what rows are divided by.
        intercept: whether each row ends with a constant 1, divided by the radius too.
        public: whether all of this is known without the data. Then features and targets are clipped to their bounds.
        clip_rows: whether rows are shortened to norm 1; not needed where the radius bounds every row.
    """

    center: Floats
    width: Floats
    y_center: float
    y_width: float
    radius: float
    intercept: bool
    public: bool
    clip_rows: bool = False

    @classmethod
    def from_bounds(
        cls, features: Floats, target: tuple[float, float], *, intercept: bool, row_clip: float | None = None
    ) -> Self:
        """Features [m, 2] and target with their low and high ends.

        row_clip: radius that rows are divided by and clipped to, instead of the square root of the number of columns.
        """
        low, high = features[:, 0], features[:, 1]
        radius = float(np.sqrt(len(features) + intercept)) if row_clip is None else row_clip
        y_low, y_high = target
        return cls(
            center=0.5 * (low + high),
            width=0.5 * (high - low),
            y_center=0.5 * (y_low + y_high),
            y_width=0.5 * (y_high - y_low),
            radius=radius,
            intercept=intercept,
            public=True,
            clip_rows=row_clip is not None,
        )

    @classmethod
    def from_data(cls, x: Floats, y: Floats) -> Self:
        """As the paper's experiments: standardised, the largest row of norm 1, no constant column. Not private."""
        center, width, y_center = x.mean(0), x.std(0), float(y.mean())
        radius = float(np.linalg.norm((x - center) / width, axis=1).max())
        return cls(center, width, y_center, float(np.abs(y - y_center).max()), radius, intercept=False, public=False)

    @property
    def d(self) -> int:
        """Columns of the rows that this makes."""
        return len(self.center) + self.intercept

    def rows(self, x: Floats, *, clip: bool) -> Floats:
        """Scaled rows [n, d] of x [n, m]; clip: to the bounds, as the mechanism needs it."""
        scaled = (x - self.center) / self.width
        if clip and self.public:
            scaled = np.clip(scaled, -1, 1)
        if self.intercept:
            scaled = np.column_stack([scaled, np.ones(len(scaled))])
        scaled = scaled / self.radius
        if clip and self.clip_rows:
            scaled /= np.maximum(1.0, np.linalg.norm(scaled, axis=1, keepdims=True))
        return scaled

    def targets(self, y: Floats, *, clip: bool) -> Floats:
        """Scaled targets [n]."""
        scaled = (y - self.y_center) / self.y_width
        return np.clip(scaled, -1, 1) if clip and self.public else scaled

    def original(self, theta: Floats) -> tuple[Floats, float]:
        """Slopes [m] and intercept in the table's units, of theta [d] on scaled rows."""
        m = len(self.center)
        slopes = theta[:m] * self.y_width / (self.width * self.radius)
        constant = float(theta[m]) * self.y_width / self.radius if self.intercept else 0.0
        return slopes, self.y_center + constant - float(slopes @ self.center)

    def outside(self, x: Floats, y: Floats) -> tuple[float, float]:
        """Shares of the features' and of the targets' values that bounds clip."""
        features = np.abs((x - self.center) / self.width) > 1 + 1e-12
        targets = np.abs((y - self.y_center) / self.y_width) > 1 + 1e-12
        return float(features.mean()), float(targets.mean())

    def shortened(self, x: Floats) -> float:
        """Share of the rows that are clipped to the radius."""
        whole = Scaling(**{**vars(self), "clip_rows": False}).rows(x, clip=True)
        return float((np.linalg.norm(whole, axis=1) > 1 + 1e-12).mean())
