"""To the unit cube and back, by the training rows alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.fire.predictive import Floats, Predictive
from kfp_methods.components.tabular.fire.two_stage import Rows


@dataclass(frozen=True)
class Scaling:
    """x_low and x_range [d], y_low and y_range of the training rows of all levels; a range of 0 is written as 1."""

    x_low: Floats
    x_range: Floats
    y_low: float
    y_range: float

    @classmethod
    def of(cls, rows: Rows) -> Scaling:
        """By their least and largest values."""
        x_range, y_range = np.ptp(rows.X, axis=0), float(np.ptp(rows.y))
        return cls(rows.X.min(0), np.where(x_range > 0, x_range, 1.0), float(rows.y.min()), y_range or 1.0)

    def features(self, X: Floats) -> Floats:
        """To the unit cube; constant features to 0."""
        return (X - self.x_low) / self.x_range

    def rows(self, rows: Rows) -> Rows:
        """Both features and targets."""
        return Rows(self.features(rows.X), (rows.y - self.y_low) / self.y_range, rows.level)

    def restored(self, found: Predictive) -> Predictive:
        """In the target's own units; the variance times the range squared."""
        return found.scaled(self.y_low, self.y_range)

    def outside(self, X: Floats) -> float:
        """Share of rows with a feature outside of the training rows' box."""
        unit = self.features(X)
        return float(((unit < 0) | (unit > 1)).any(1).mean())
