"""From validated inputs to what was measured: the protocol on the sample's tasks, or a user's selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kfp_methods.components.tabular.weak_monotonicity import frontier, protocol, sample, selecting
from kfp_methods.components.tabular.weak_monotonicity.choices import LearnerName
from kfp_methods.components.tabular.weak_monotonicity.frontier import Floats
from kfp_methods.components.tabular.weak_monotonicity.learners import Pool
from kfp_methods.components.tabular.weak_monotonicity.selecting import Picked
from kfp_methods.components.tabular.weak_monotonicity.user_data import UserData

if TYPE_CHECKING:
    from kfp_methods.components.tabular.weak_monotonicity.component import WeakMonotonicityInputs
    from kfp_methods.context import Context

_GRID, _MOST_PAIRED = 41, 1_000
_SHOWN_LABELS = 8  # of the sample's last task, so that there is a selection to look at


@dataclass(frozen=True)
class Found:
    """models, tasks and pool: of the selection that is shown. picked: every rule's choice from n labels of the target.
    Q [M]: risks on all its examples, None without evidence. curve: excess by K, n and learner. found and pairs: each
    choice of tasks of the sample's protocol, empty for a user's own table, as risks [tasks, M].
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    pool: Pool
    picked: list[Picked]
    n: int
    target: str
    Q: Floats | None
    curve: pd.DataFrame
    found: pd.DataFrame
    pairs: pd.DataFrame
    risks: Floats | None

    @property
    def modulus(self) -> pd.DataFrame:
        """W(t), V(t) and N(t) on a grid of t; of a thousand models at random, where there are more."""
        picked = np.arange(len(self.pool.R))
        if len(picked) > _MOST_PAIRED:
            picked = np.sort(np.random.default_rng((len(picked), 1)).choice(picked, _MOST_PAIRED, replace=False))
        R = self.pool.R[picked]
        grid = np.linspace(0, max(float(frontier.distances(R).max()), 1e-3), _GRID)
        frame = pd.DataFrame({"t": grid, "covering_number": frontier.covering_numbers(R, grid)})
        if self.Q is None:
            return frame
        return frame.assign(
            upper=frontier.upper_modulus(R, self.Q[picked], grid), lower=frontier.lower_modulus(R, self.Q[picked], grid)
        )


def pool_of(R: Floats, inputs: WeakMonotonicityInputs) -> Pool:
    """The models by their source risks."""
    t = inputs.cover_t if isinstance(inputs.cover_t, float) else None
    return Pool(R, delta=inputs.delta, t=t, tie_fix=inputs.tie_fix)


def _settings(inputs: WeakMonotonicityInputs, examples: int, names: list[LearnerName]) -> protocol.Settings:
    return protocol.Settings(
        learners=tuple(name for name in names if name != "q_aggregation"),
        n_grid=tuple(sorted({n for n in inputs.n_grid if n <= examples})) or (examples,),
        n_subsamples=inputs.n_subsamples,
        n_choices=inputs.n_choices,
        delta=inputs.delta,
        t=inputs.cover_t if isinstance(inputs.cover_t, float) else None,
        tie_fix=inputs.tie_fix,
        seed=inputs.seed,
    )


def on_sample(inputs: WeakMonotonicityInputs, context: Context) -> Found:
    """Trains the pool, runs the protocol, and picks for the last task from a few labels."""
    made = sample.pool(inputs.pool, lambda names: context.progress(names, "training classifiers"))
    names = list(dict.fromkeys(inputs.learners))
    settings = _settings(inputs, made.losses.shape[2], names)
    sources = sorted(set(inputs.k_sources))
    found, pairs = protocol.run(
        made.losses, sources, settings, lambda cells: context.progress(cells, "choices of tasks")
    )
    risks = made.losses.mean(2)
    pool = pool_of(risks[:-1].T, inputs)
    labelled = np.random.default_rng((inputs.seed, 9, 1)).permutation(made.losses.shape[2])[:_SHOWN_LABELS]
    data = UserData(made.models, made.tasks[:-1], pool.R, made.losses[-1][:, labelled])
    return Found(
        models=made.models,
        tasks=made.tasks[:-1],
        pool=pool,
        picked=selecting.select(data, pool, names, inputs.seed),
        n=_SHOWN_LABELS,
        target=made.tasks[-1],
        Q=risks[-1],
        curve=protocol.curve(found),
        found=found,
        pairs=pairs,
        risks=risks,
    )


def on_users(inputs: WeakMonotonicityInputs, data: UserData, context: Context) -> Found:
    """Picks for the user's target, with the learning curve within their labels."""
    pool, names = pool_of(data.R, inputs), list(dict.fromkeys(inputs.learners))
    with context.bar("picking", 1) as advance:
        picked = selecting.select(data, pool, names, inputs.seed)
        advance()
    Q, curve, n = None, pd.DataFrame(), 0
    if data.losses is not None:
        Q, n = data.losses.mean(1), data.losses.shape[1]
        settings = _settings(inputs, max(1, n // 2), names)
        excess = protocol.excess(pool, data.losses, settings, np.random.default_rng((inputs.seed, 8, 1)))
        curve = pd.DataFrame(
            [
                {"K": len(data.tasks), "n": size, "learner": name, "mean": excess[i, j]}
                for i, size in enumerate(settings.n_grid)
                for j, name in enumerate(settings.learners)
            ]
        )
    return Found(
        data.models, data.tasks, pool, picked, n, "your target", Q, curve, pd.DataFrame(), pd.DataFrame(), None
    )
