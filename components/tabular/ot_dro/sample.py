"""Data of the sample: a discrete law whose truth is known, weekly returns of stocks, and a regression.

`stocks.npz`: 5-day returns in % of eight stocks (daily relative changes of skfolio's S&P 500 data set, summed over five
trading days, every fifth day), 2010 to 2022; `date` is the last day of each as days since 1970-01-01.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.ot_dro.cones import Floats

SUPPORT: Floats = np.array([
    [0, 0, -0.1], [2, 0, -0.1], [0.5, -5, 0], [0, 1, 0.1], [5, 1, 0.1],
    [0, 0, 0.5], [-1, 0, 0.5], [0, -1, 0.5], [-1, -1, 0.5], [1, 1, 0.5],
])  # fmt: skip
PROBABILITIES: Floats = np.array([0.15, 0.15, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
FIRST_YEAR, LAST_YEAR = 2010, 2021


def draw(N: int, seed: int) -> Floats:
    """N returns of three assets [N, 3] from the discrete law."""
    rng = np.random.default_rng([seed, N, 1])
    return SUPPORT[rng.choice(len(SUPPORT), N, p=PROBABILITIES)]


@lru_cache(maxsize=1)
def stocks() -> pd.DataFrame:
    """Returns in % by date, a column for each stock."""
    with np.load(Path(__file__).parent / "stocks.npz", allow_pickle=False) as stored:
        dates = pd.to_datetime(stored["date"].astype("datetime64[D]"))
        return pd.DataFrame(stored["returns"].astype(np.float64), index=dates, columns=stored["names"].astype(str))


def year(number: int) -> Floats:
    """Returns of one calendar year."""
    frame = stocks()
    return frame.loc[str(number)].to_numpy()


def patients() -> tuple[Floats, Floats]:
    """Sixty rows to fit and the rest to test of scikit-learn's diabetes data: age, sex, bmi and the target, scaled."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    rows = np.column_stack([20 * X[:, :3], (y - 150) / 77])
    return rows[:60], rows[60:]
