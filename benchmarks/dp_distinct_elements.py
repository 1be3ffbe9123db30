"""Memory and speed of remembering every user against sample and hold, at the cap T^(2/3).

Run: `python benchmarks/dp_distinct_elements.py`. Streams are those of the method's sample: one event per step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kfp_methods.components.tabular.dp_distinct_elements import mechanisms, streams
from kfp_methods.components.tabular.dp_distinct_elements.measuring import two_thirds
from kfp_methods.components.tabular.dp_distinct_elements.mechanisms import Counted
from kfp_methods.components.tabular.dp_distinct_elements.randomness import Randomness
from kfp_methods.components.tabular.dp_distinct_elements.streams import Stream

_ROUNDS = 3
_DELTA = 1e-6


def tree_linear(stream: Stream) -> Counted:
    """Every user remembered."""
    return mechanisms.tree_linear(stream, two_thirds(stream.T))


def sample_hold(stream: Stream) -> Counted:
    """Few remembered; its coins are part of the work."""
    return mechanisms.sample_hold(stream, two_thirds(stream.T), _DELTA, Randomness.seeded(0).coins(stream))


def measured(stream: Stream, run: Callable[[Stream], Counted]) -> tuple[int, float]:
    """Peak bits, and events a second: the best of three, each from a stream that nothing is known of yet."""
    taken = []
    for _ in range(_ROUNDS):
        fresh = Stream(stream.step, stream.user, stream.op, stream.T, stream.names)
        started = time.perf_counter()
        found = run(fresh)
        taken.append(time.perf_counter() - started)
    return found.bits, len(stream.step) / min(taken)


def main() -> None:
    """Prints a line for each length."""
    print(f"{'T':>8} {'tree bits':>11} {'hold bits':>10} {'ratio':>6} {'tree events/s':>14} {'hold events/s':>14}")
    for power in (10, 12, 14, 16, 18):
        stream = streams.made(2**power, 0)
        linear, held = measured(stream, tree_linear), measured(stream, sample_hold)
        ratio = linear[0] / held[0]
        print(f"{2**power:8,} {linear[0]:11,} {held[0]:10,} {ratio:6.1f} {linear[1]:14,.0f} {held[1]:14,.0f}")


if __name__ == "__main__":
    main()
