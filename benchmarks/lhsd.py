"""What a point costs with LHSD, FLIPD and the normal-bundle method as the number of features D grows.

    python benchmarks/lhsd.py --dimensions 64 128 256 512

All three look at the same score in one process on one core: a network of 64 coordinates with a linear rest, so that
its cost is nearly the same at every D. Seconds are medians of three timings of four points, after one that warms up.
"""

from __future__ import annotations

import argparse

from kfp_methods.components.science.lhsd.costs import costs
from kfp_methods.components.science.lhsd.estimate import Quadrature
from kfp_methods.networks import one_core


def main() -> None:
    """Measures and prints one line for each D."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[64, 128, 256, 512], help="rising, from 64")
    parser.add_argument("--probes", type=int, default=32, help="LHSD's probes K")
    parser.add_argument("--steps", type=int, default=5, help="LHSD's Lanczos steps m")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with one_core():
        measured = costs(given.dimensions, Quadrature(given.probes, given.steps), given.seed)
    print(f"seconds for a point, K = {given.probes}, m = {given.steps}")
    print(f"{'D':>6} {'LHSD':>9} {'FLIPD':>9} {'NB':>9} {'LHSD/NB':>9} {'LHSD/FLIPD':>11} {'products':>9}")
    for cost in measured:
        ratios = cost.lhsd_seconds / cost.nb_seconds, cost.lhsd_seconds / cost.flipd_seconds
        print(
            f"{cost.n_features:>6} {cost.lhsd_seconds:>9.5f} {cost.flipd_seconds:>9.5f} {cost.nb_seconds:>9.5f} "
            f"{ratios[0]:>9.3f} {ratios[1]:>11.2f} {cost.products:>9}"
        )


if __name__ == "__main__":
    main()
