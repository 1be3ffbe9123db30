"""Reference models: classifiers trained as the target was, on other data, and their verdicts on records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from kfp_methods.components.tabular.bmia.architectures import last_layer_weights
from kfp_methods.components.tabular.bmia.arrays import Floats
from kfp_methods.components.tabular.bmia.choices import HessianName, ScoreName
from kfp_methods.components.tabular.bmia.parallel import Job, Trained
from kfp_methods.components.tabular.bmia.posterior import POSTERIORS, with_bias
from kfp_methods.components.tabular.bmia.records import Records
from kfp_methods.components.tabular.bmia.scores import sample_scores, score, true_class_probability
from kfp_methods.components.tabular.bmia.training import Recipe, derived_seed, outputs


class Scored(NamedTuple):
    """A model's verdict on records: membership scores [n] and true-class probabilities [n], float64."""

    scores: Floats
    probabilities: Floats


class ReferenceVerdict(NamedTuple):
    """A reference's verdict on records: `trained` weights' and the scores under posterior samples [n, M]."""

    trained: Scored
    samples: Floats


@dataclass(frozen=True)
class ScoredReference:
    """A reference's verdicts, one for each set of records asked about.

    Attributes:
        verdicts: in the order asked.
        prior_precision: the one used.
        train_seconds: training the reference.
        score_seconds: posterior, sampling and the scores of the first set of records; not what is drawn for a sweep.
    """

    verdicts: tuple[ReferenceVerdict, ...]
    prior_precision: float
    train_seconds: float
    score_seconds: float


def score_logits(logits: Tensor, labels: Tensor, name: ScoreName) -> Scored:
    """Verdict of logits [n, C] on records with `labels` [n]."""
    logits = logits.cpu()
    return Scored(score(name, logits, labels).numpy(), true_class_probability(logits, labels).numpy())


def reference_jobs(pool: Records, n_references: int, n_classes: int, recipe: Recipe, seed: int) -> list[Job]:
    """References to train, each on its own random half of the pool; job k is the same for any number."""
    jobs = []
    for k in range(n_references):
        rows = np.random.default_rng(derived_seed(seed, k, 0)).permutation(len(pool))[: len(pool) // 2]
        jobs.append(Job(pool.take(rows), n_classes, recipe, derived_seed(seed, k, 1)))
    return jobs


def posterior_samples(
    reference: Trained, *, n_samples: int, hessian: HessianName, prior_precision: float | None, seed: int
) -> tuple[Tensor, float]:
    """Last layers drawn from a reference's posterior [M, C, D], and the prior precision used.

    Raises:
        InputError: the model does not end in a linear layer, or is too large for hessian=full.
    """
    features, logits = outputs(reference.model, reference.training.x)
    weights = last_layer_weights(reference.model)
    posterior = POSTERIORS[hessian].fit(with_bias(features), logits.double().softmax(-1), weights)
    prior = posterior.optimal_prior_precision() if prior_precision is None else prior_precision
    return posterior.sample(n_samples, np.random.default_rng(seed), prior), prior


def score_reference(
    reference: Trained,
    asked: Sequence[Records],
    *,
    n_samples: int,
    further_samples: int = 0,
    score_name: ScoreName,
    hessian: HessianName,
    prior_precision: float | None,
    seed: int,
) -> ScoredReference:
    """Turns one reference into many by its posterior and scores records under all of them.

    Args:
        reference: the trained model with its training data.
        asked: sets of records to score.
        n_samples: posterior samples M.
        further_samples: samples beyond them, drawn for a sweep over M on the first set.
        score_name: which score.
        hessian: structure of the posterior.
        prior_precision: None for the one of greatest evidence.
        seed: of the samples.

    Raises:
        InputError: the model does not end in a linear layer, or is too large for hessian=full.
    """
    started = time.perf_counter()
    draws, prior = posterior_samples(
        reference, n_samples=n_samples, hessian=hessian, prior_precision=prior_precision, seed=seed
    )

    def samples(records: Records, features: Tensor, draws: Tensor) -> Floats:
        return sample_scores(with_bias(features), records.y.to(features.device), draws, score_name)

    verdicts: list[ReferenceVerdict] = []
    seconds = 0.0
    for records in asked:
        features, logits = outputs(reference.model, records.x)
        found = samples(records, features, draws)
        seconds = seconds or time.perf_counter() - started
        if further_samples and not verdicts:
            further, _ = posterior_samples(
                reference,
                n_samples=further_samples,
                hessian=hessian,
                prior_precision=prior,
                seed=derived_seed(seed, 1),
            )
            found = np.concatenate([found, samples(records, features, further)], axis=1)
        verdicts.append(ReferenceVerdict(score_logits(logits, records.y, score_name), found))
    return ScoredReference(tuple(verdicts), prior, reference.seconds, seconds)
