"""Seconds of the symbolic phases against phase 1 of the same mixture, and against training LICEM.

Run: `python benchmarks/mcbe.py`. Rows are those of the method's sample.
"""

from __future__ import annotations

import torch

from kfp_methods.components.tabular.mcbe import sample, search, training
from kfp_methods.components.tabular.mcbe.training import Settings

_EXPERTS = 5


def main() -> None:
    """Prints a line for each number of training rows."""
    torch.set_num_threads(1)
    print(f"{'rows':>6} {'phase 1 s':>10} {'phases 2, 3 s':>14} {'ratio':>6} {'LICEM s':>8} {'symbolic/LICEM':>15}")
    settings = Settings()
    for n in (1_000, 4_000):
        data = sample.digits(n, 500, 500, 0)
        first = training.mixture(data, _EXPERTS, "mlp", settings, 0)
        second, _ = training.symbolic(data, first, settings, search.Settings(), 5_000, 100, 0)
        licem = training.per_row(data, settings, 0, embedded=False)
        one, two, three = (sum(each.seconds.values()) for each in (first, second, licem))
        print(f"{n:6,} {one:10.1f} {two:14.1f} {two / one:6.2f} {three:8.1f} {(one + two) / three:15.1f}")


if __name__ == "__main__":
    main()
