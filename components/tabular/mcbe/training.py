"""Training: phase 1 of all mixtures, and the further phases of linear and symbolic experts."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor, nn
from torch.nn import functional

from kfp_methods.components.tabular.mcbe import formulas, search
from kfp_methods.components.tabular.mcbe.choices import SelectorKind
from kfp_methods.components.tabular.mcbe.data import Data, Tensors
from kfp_methods.components.tabular.mcbe.networks import (
    BlackBox,
    Encoder,
    FormulaExperts,
    LinearExperts,
    Mixture,
    MLPExperts,
    PerRow,
    chosen,
    sampled,
)

_STOP, _PLATEAU = 50, 25
_SECOND = 0.25  # share of the epochs that a further phase takes
_PLAIN, _WORSE = 2e-3, 1.001
_FASTER = 5.0  # learning rate of the symbolic fine-tuning / of the first phase
Follow = Callable[[range], Iterable[int]]


@dataclass(frozen=True)
class Settings:
    """As the inputs have them."""

    hidden: int = 128
    latent: int = 64
    selector: SelectorKind = "mlp"
    concept_penalty: float = 1.0
    task_penalty: float = 1.0
    weight_reg: float = 1e-4
    threshold: float = 1e-3
    int_prob: float = 0.25
    disjoint: bool = True
    tau: tuple[float, float] = (2.0, 0.05)
    balance: float = 0.0
    epochs: int = 80
    lr: float = 5e-4
    batch: int = 128
    device: str = "cpu"


@dataclass
class Trained:
    """A model at its best validation loss. seconds: of its phases."""

    model: Any
    validation: float
    seconds: dict[str, float]


def temperature(step: int, total: int, tau: tuple[float, float]) -> float:
    """From tau[0] to tau[1] along half a cosine."""
    return tau[1] + (tau[0] - tau[1]) * (1 + math.cos(math.pi * min(1.0, step / max(1, total)))) / 2


def concept_loss(logits: Tensor, c: Tensor, binary: Tensor) -> Tensor:
    """Mean over concepts of cross entropy (binary) or squared error."""
    cross = functional.binary_cross_entropy_with_logits(logits, c.clamp(0, 1), reduction="none")
    return torch.where(binary, cross, (logits - c) ** 2).mean()


def task_loss(output: Tensor, y: Tensor, data: Data) -> Tensor:
    """Squared error, cross entropy of classes, or of two classes."""
    if not data.classes:
        return functional.mse_loss(output, y)
    if data.outputs == 1:
        return functional.binary_cross_entropy_with_logits(output[:, 0], y)
    return functional.cross_entropy(output, y)


def mixture(data: Data, M: int, kind: str, settings: Settings, seed: int, follow: Follow = iter) -> Trained:
    """Phase 1 of a mixture of M experts, "linear" or "mlp"; of linear ones also the phase without small weights."""
    with _seeded(seed):
        encoder = _encoder(data, settings)
        K, outputs = len(data.c_names), data.outputs
        experts: nn.Module = (
            LinearExperts(M, K, outputs, settings.latent)
            if kind == "linear"
            else MLPExperts(M, K, outputs, settings.latent, plain=bool(data.classes))
        )
        model = Mixture(encoder, experts, M, outputs, settings.latent, data.binary, settings.selector)
    found = _fit(_to(model, data, settings), data, settings, settings.epochs, settings.lr, seed, follow)
    if kind != "linear":
        return found
    with torch.no_grad():
        found.model.experts.mask.copy_((found.model.experts.weights().abs() > settings.threshold).float())
    second = replace(settings, weight_reg=0.0)
    return _fit(found.model, data, second, _further(settings), settings.lr, seed + 1, iter)


def symbolic(
    data: Data, first: Trained, settings: Settings, regression: search.Settings, rows: int, most_fits: int, seed: int,
    follow: Callable[[list[tuple[int, int]]], Iterable[tuple[int, int]]] = iter,
) -> tuple[Trained, list[dict[str, Any]]]:  # fmt: skip
    """Phases 2 and 3: formulas for the MLP experts of `first`, then all trained on. Also what each search gave."""
    picked, c, y = _expert_rows(data, first.model, settings)
    rng = np.random.default_rng([seed, 2])
    M, outputs = first.model.M, data.outputs
    started = time.perf_counter()
    found: list[list[sympy.Expr]] = [[sympy.Float(0.0)] * outputs for _ in range(M)]
    notes = []
    todo = [(m, o) for m in range(M) for o in range(outputs) if (picked[:, o] == m).any()]
    for number, (m, o) in enumerate(follow(todo)):
        at = np.flatnonzero(picked[:, o] == m)
        at = rng.choice(at, rows, replace=False) if len(at) > rows else at
        target = y[at, m, o] if data.classes else y[at, 0, o]
        note: dict[str, Any] = {"expert": m, "output": o, "rows": len(at), "searched": number < most_fits}
        if number < most_fits:
            try:
                found[m][o], front = search.choose(c[at], target, replace(regression, seed=seed + number))
                note["front"] = [(entry.length, entry.mse) for entry in front]
            except RuntimeError as error:  # operon's own
                found[m][o], note["failed"] = sympy.Float(float(target.mean())), str(error)[:100]
        else:
            found[m][o] = sympy.Float(float(target.mean()))
        notes.append(note)
    scale = data.scale
    concepts = torch.tensor(scale.c_mean, dtype=torch.float32), torch.tensor(scale.c_sd, dtype=torch.float32)
    outs = torch.tensor(scale.y_mean, dtype=torch.float32), torch.tensor(scale.y_sd, dtype=torch.float32)
    model = copy.deepcopy(first.model)
    model.experts = FormulaExperts(found, concepts, outs).to(settings.device)
    trained = _fit(model, data, settings, _further(settings), _FASTER * settings.lr, seed + 2, iter)
    trained.seconds["search"] = time.perf_counter() - started - trained.seconds["training"]
    return _plainer(trained, data, settings), notes


def _plainer(trained: Trained, data: Data, settings: Settings) -> Trained:
    """Constants near whole numbers as these, and without small summands, unless validation gets worse by it."""
    validation, scale = Tensors.of(data, 1, settings.device), data.scale
    experts: FormulaExperts = trained.model.experts
    before = experts
    plain = [
        [formulas.tidied(one, float(scale.y_sd[o]), _PLAIN) for o, one in enumerate(row)] for row in experts.current()
    ]
    trained.model.experts = FormulaExperts(
        plain, (experts.c_mean, experts.c_sd), (experts.y_mean, experts.y_sd)
    ).to(settings.device)  # fmt: skip
    value = _validate(trained.model, validation, data, settings)
    if value > _WORSE * trained.validation:
        trained.model.experts = before
    else:
        trained.validation = value
    return trained


def _expert_rows(data: Data, model: Mixture, settings: Settings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of training rows: the chosen expert [n, O], concepts in their units [n, K], and targets.

    These are y [n, 1, O] of a regression, and the experts' logits [n, M, O] of a classification.
    """
    train, scale = Tensors.of(data, 0, settings.device), data.scale
    model.eval()
    with torch.no_grad():
        logits, selector = model.encode(train.x)
        c = train.c if settings.disjoint else model.predicted(logits)
        outputs = model.experts(c)
    raw = c.cpu().double().numpy() * scale.c_sd + scale.c_mean
    y = outputs.cpu().double().numpy() if data.classes else data.y[data.rows(0)][:, None, :]
    return selector.argmax(1).cpu().numpy(), raw, y


def black_box(data: Data, settings: Settings, seed: int) -> Trained:
    """x to y."""
    with _seeded(seed):
        model = BlackBox(_encoder(data, settings), settings.latent, data.outputs)
    return _fit(_to(model, data, settings), data, settings, settings.epochs, settings.lr, seed, iter)


def per_row(data: Data, settings: Settings, seed: int, *, embedded: bool) -> Trained:
    """LICEM, or CEM."""
    with _seeded(seed):
        model = PerRow(_encoder(data, settings), settings.latent, data.outputs, data.binary, embedded=embedded)
    return _fit(_to(model, data, settings), data, settings, settings.epochs, settings.lr, seed, iter)


def _further(settings: Settings) -> int:
    return math.ceil(_SECOND * settings.epochs)


def _encoder(data: Data, settings: Settings) -> Encoder:
    return Encoder(data.x.shape[1:], settings.hidden, settings.latent)


def _to(model: nn.Module, data: Data, settings: Settings) -> nn.Module:
    model = model.to(settings.device)
    if data.x.ndim > 2:  # a lazy layer learns its size
        with torch.no_grad():
            model.encoder(torch.zeros(2, *data.x.shape[1:], device=settings.device))  # type: ignore[operator]
    return model


class _seeded:  # noqa: N801 (a context manager)
    """Initial weights from a seed, and torch's own generator as it was."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.state = torch.get_rng_state()
        torch.manual_seed(self.seed)

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self.state)


def _fit(model: Any, data: Data, settings: Settings, epochs: int, lr: float, seed: int, follow: Follow) -> Trained:
    """AdamW, the rate halved on plateaus, early stopping; the state of the best validation loss, the first included."""
    started = time.perf_counter()
    train, validation = (Tensors.of(data, part, settings.device) for part in (0, 1))
    rng = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # one call for all parameters
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, patience=_PLATEAU)
    steps = epochs * math.ceil(len(train.x) / settings.batch)
    best, state, step, since = _validate(model, validation, data, settings), copy.deepcopy(model.state_dict()), 0, 0
    for _ in follow(range(epochs)):
        model.train()
        for at in torch.randperm(len(train.x), generator=rng).split(settings.batch):
            part = Tensors(train.x[at], train.c[at], train.y[at])
            optimiser.zero_grad()
            loss = _loss(model, part, data, settings, temperature(step, steps, settings.tau), rng)
            loss.backward()
            optimiser.step()
            step += 1
        value = _validate(model, validation, data, settings)
        schedule.step(value)
        since += 1
        if value < best:
            best, state, since = value, copy.deepcopy(model.state_dict()), 0
        if since >= _STOP:
            break
    model.load_state_dict(state)
    model.eval()
    return Trained(model, best, {"training": time.perf_counter() - started})


def _loss(model: Any, part: Tensors, data: Data, settings: Settings, tau: float, rng: torch.Generator) -> Tensor:
    if isinstance(model, BlackBox):
        return task_loss(model(part.x), part.y, data)
    logits, rest = model.encode(part.x)
    predicted = torch.where(model.binary, logits.sigmoid(), logits)
    used = part.c
    if not settings.disjoint:  # the task's gradient does not reach the concepts
        true = (torch.rand(len(part.x), 1, generator=rng) < settings.int_prob).to(part.x.device)
        used = torch.where(true, part.c, predicted.detach())
    loss = settings.concept_penalty * concept_loss(logits, part.c, model.binary)
    if isinstance(model, PerRow):
        return loss + settings.task_penalty * task_loss(model.decide(used, rest), part.y, data)
    loss = loss + settings.task_penalty * task_loss(model.decide(used, sampled(rest, tau, rng)), part.y, data)
    if isinstance(model.experts, LinearExperts) and settings.weight_reg:
        loss = loss + settings.weight_reg * model.experts.size()
    if settings.balance:
        share = rest.softmax(1).mean(0)
        loss = loss + settings.balance * (share * share.clamp(min=1e-9).log()).sum(0).mean()
    return loss


@torch.no_grad()
def _validate(model: Any, part: Tensors, data: Data, settings: Settings) -> float:
    model.eval()
    if isinstance(model, BlackBox):
        return float(task_loss(model(part.x), part.y, data))
    logits, rest = model.encode(part.x)
    used = part.c if settings.disjoint else torch.where(model.binary, logits.sigmoid(), logits)
    p = rest if isinstance(model, PerRow) else chosen(rest)
    value = float(task_loss(model.decide(used, p), part.y, data) + concept_loss(logits, part.c, model.binary))
    return value if math.isfinite(value) else math.inf
