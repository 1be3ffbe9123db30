"""What attributing a span at once costs beside token-wise attribution: seconds of the same process and forward pass.

    python benchmarks/flashtrace.py --targets 8 32 128

Runs the embedded model once on a text of about 300 tokens and attributes its last M tokens three ways, in turn: the
span with its hops, token by token with the work that tokens share done once, and token by token with everything
computed anew, as the published comparison does. The forward pass is timed, and counted in a ratio of its own.
"""

from __future__ import annotations

import argparse

import torch

from kfp_methods.components.language import models
from kfp_methods.components.language.attention import capture
from kfp_methods.components.language.flashtrace.claims import LEAST_SPEED
from kfp_methods.components.language.flashtrace.sample import long_text
from kfp_methods.components.language.flashtrace.timing import seconds, sweep


def main() -> None:
    """Measures and prints one line for each number of target tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", default=[8, 32, 128], help="numbers of target tokens M")
    parser.add_argument("--tokens", type=int, default=302, help="length of the text N")
    parser.add_argument("--hops", type=int, default=1, help="hops K of the span")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions; medians are printed")
    parser.add_argument("--limit", type=float, default=15.0, help="seconds above which the naive way is scaled up")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()

    lm = models.load(None, device=given.device)
    text = long_text(2 + given.tokens // 8, seed=0)
    ids = torch.tensor(lm.tokenizer(text).input_ids)[None, : given.tokens]
    capture(lm, ids)  # what torch loads on first use
    captured, forward = seconds(lambda: capture(lm, ids), lm.device)
    print(
        f"{lm.name}, N = {ids.shape[1]} tokens, K = {given.hops}; "
        f"forward pass {forward:.2f} s, counted in the last ratio only"
    )
    print(
        f"{'M':>6} {'span s':>8} {'shared s':>9} {'anew s':>8} {'shared/span':>12} {'anew/span':>10} "
        f"{'with forward':>13}  targets"
    )
    for timing in sweep(
        captured, given.targets, hops=given.hops, chunk=128, repeats=given.repeat, limit_seconds=given.limit
    ):
        span, cached, naive = timing.median
        met = all(timing.median.ratio(way) > share * timing.passes for way, share in LEAST_SPEED.items())
        scaled = "" if timing.measured == timing.M else f" (anew: scaled up from {timing.measured})"
        print(
            f"{timing.M:>6} {span:>8.3f} {cached:>9.3f} {naive:>8.3f} {cached / span:>12.2f} {naive / span:>10.2f} "
            f"{(forward + naive) / (forward + span):>13.2f}  {'met' if met else 'MISSED'}{scaled}"
        )


if __name__ == "__main__":
    main()
