"""How the gap to AdaSSP depends on the number of columns, on rows of uniform direction whose best fit is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kfp_methods.components.tabular.iterative_hessian_mixing import sample
from kfp_methods.components.tabular.iterative_hessian_mixing.choices import MethodName
from kfp_methods.components.tabular.iterative_hessian_mixing.measuring import Settings, mechanism
from kfp_methods.components.tabular.iterative_hessian_mixing.noise import Noise
from kfp_methods.components.tabular.iterative_hessian_mixing.regression import Floats, Regression

ROWS, COLUMNS, EPSILON = 20_000, (10, 40, 160), 1.0
MOST_SEEDS = 20


@dataclass(frozen=True)
class Dimension:
    """Training error above least squares' at d columns, for each seed's own rows [S]."""

    d: int
    ihm: Floats
    adassp: Floats
    seeds: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """AdaSSP's excess / that of iterative Hessian mixing: the geometric mean, for some seeds' are far larger."""
        return float(np.exp(self.log_ratio.mean()))

    @property
    def log_ratio(self) -> Floats:
        """ln of each seed's ratio [S]."""
        return np.log(self.adassp) - np.log(self.ihm)


def dimensions(
    settings: Settings,
    *,
    rows: int = ROWS,
    columns: Sequence[int] = COLUMNS,
    follow: Callable[[Iterable[int]], Iterator[int]] = iter,
) -> list[Dimension]:
    """Both mechanisms at epsilon 1 on fresh rows for each seed."""
    found = []
    for d in follow(columns):
        excess = np.array([_excess(settings, rows, d, seed) for seed in settings.seeds])
        found.append(Dimension(d, excess[:, 0], excess[:, 1], settings.seeds))
    return found


def _excess(settings: Settings, rows: int, d: int, seed: int) -> list[float]:
    """That of iterative Hessian mixing and of AdaSSP."""
    data = Regression(*sample.directions(rows, d, seed))
    least = data.moments.mse(data.moments.least_squares)
    names: tuple[MethodName, ...] = ("ihm", "adassp")
    thetas = (
        mechanism(data, settings, name, EPSILON)(Noise.seeded([seed], d, stream)) for stream, name in enumerate(names)
    )
    return [float(data.moments.mse(theta)[0] - least) for theta in thetas]
