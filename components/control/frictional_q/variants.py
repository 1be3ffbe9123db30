"""What a learner's members share, and what sets Frictional Q-Learning, its ablation and BCQ apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kfp_methods.components.control.frictional_q.choices import MethodName, NormalMode


@dataclass(frozen=True)
class Settings:
    """Sizes, rates and the discount, the same for every member of a run.

    Attributes:
        n_states: S.
        n_actions: D.
        max_action: m; actions lie in ±m.
        latent: size of each latent.
        hidden: width of critics and actors.
        cvae_hidden: width of encoders and decoder.
        gamma: discount.
        tau: share of the online weights in each Polyak step.
        policy_frequency: the actor and the target networks move every so many steps.
        actor_lr: Adam's rate for actors.
        critic_lr: for critics.
        cvae_lr: for the VAE and its discriminator.
        n_act: proposals of which the best is done.
        normal_mode: which normals are the background: the one the critic likes least, or all.
        both_signs: whether the negated normals count as well.
        use_tc: whether the latents' total correlation is punished.
    """

    n_states: int
    n_actions: int
    max_action: float = 1.0
    latent: int = 4
    hidden: int = 256
    cvae_hidden: int = 512
    gamma: float = 0.99
    tau: float = 0.005
    policy_frequency: int = 2
    actor_lr: float = 3e-4
    critic_lr: float = 1e-3
    cvae_lr: float = 1e-3
    n_act: int = 128
    normal_mode: NormalMode = "critic"
    both_signs: bool = False
    use_tc: bool = True


@dataclass(frozen=True)
class Variant:
    """One method that proposes actions with a VAE and refines them with an actor.

    Attributes:
        method: its name.
        remap: whether the actor maps a proposal anew, m tanh f(s, a); otherwise it perturbs it by phi m tanh f.
        phi: largest perturbation, in units of m.
        beta: weight of the KL terms beside the squared errors (sums over dimensions).
        shared: whether there is a second, shared latent.
        contrastive: whether normals are rebuilt from the shared latent alone.
        latent_clip: prior draws are clamped to this size.
        n_target: proposals in a target.
        least: weight of the smaller critic in a target; the larger has the rest.
        log_std: bounds of the encoders' log-std.
    """

    method: MethodName
    remap: bool
    phi: float
    beta: float
    shared: bool
    contrastive: bool
    latent_clip: float
    n_target: int
    least: float = 1.0
    log_std: tuple[float, float] = (-5.0, 2.0)


def variants(
    methods: tuple[MethodName, ...],
    settings: Settings,
    *,
    phi: float,
    beta: float,
    latent_clip: float,
    n_target: int,
    n_target_bcq: int,
) -> tuple[Variant, ...]:
    """The settings of the named methods; contrastive ones first, those with one latent last.

    BCQ (Fujimoto, Meger and Precup 2019): one latent clamped to ±0.5, perturbations up to 0.05, the smaller critic
    weighs 0.75, log-std in [-4, 15]. Its loss is the squared error's mean over D entries plus half the KL's mean over L
    dimensions; times D, so that the error is a sum as in FQL's, the KL's sum weighs D / (2 L). The ablation is FQL
    without normals and total correlation.
    """
    bcq_beta = 0.5 * settings.n_actions / settings.latent
    perturb = Variant("fql_perturb", False, phi, beta, True, True, latent_clip, n_target)
    known = (
        perturb,
        replace(perturb, method="fql_remap", remap=True),
        replace(perturb, method="plain_vae", contrastive=False),
        Variant("bcq", False, 0.05, bcq_beta, False, False, 0.5, n_target_bcq, 0.75, (-4.0, 15.0)),
    )
    return tuple(variant for variant in known if variant.method in methods)


@dataclass(frozen=True)
class Member:
    """One trained policy: of which method, from which of the run's seeds (its number among them)."""

    method: MethodName
    seed: int
