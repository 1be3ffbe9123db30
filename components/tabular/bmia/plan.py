"""Which attacks run, each with how many references, and why one cannot."""

from __future__ import annotations

from kfp_methods.components.tabular.bmia.choices import AttackName

TITLES: dict[AttackName, str] = {
    "bmia": "BMIA",
    "global_threshold": "Global threshold",
    "lira_fixed": "LiRA (fixed variance)",
    "lira_per_record": "LiRA (per-record variance)",
    "attack_r": "Attack-R",
    "rmia": "RMIA",
    "qmia": "QMIA",
}
WITHOUT_REFERENCES = ("global_threshold", "qmia")


def title(name: AttackName, n_references: int) -> str:
    """An attack's name for tables and plots, such as "RMIA, 4 references"."""
    short = short_title(name, n_references)
    return short if name in WITHOUT_REFERENCES else f"{short} reference{'s' if n_references > 1 else ''}"


def short_title(name: AttackName, n_references: int) -> str:
    """The same where little room is, such as "RMIA, 4"."""
    words = "MR-BMIA" if name == "bmia" and n_references > 1 else TITLES[name]
    return words if name in WITHOUT_REFERENCES else f"{words}, {n_references}"


def budgets(name: AttackName, n_references: int) -> tuple[int, ...]:
    """With how many references an attack is run when there are `n_references`: one, and all."""
    if name in WITHOUT_REFERENCES:
        return (0,)
    if name in ("attack_r", "lira_per_record") or n_references == 1:
        return (n_references,)
    return (1, n_references)


def why_not(name: AttackName, n_references: int, n_samples: int, *, known_nonmembers: bool) -> str | None:
    """Why an attack cannot run; None when it can.

    Args:
        name: the attack.
        n_references: references it would use.
        n_samples: posterior samples M of each.
        known_nonmembers: whether there are validation records with the target's logits on them.
    """
    if name == "bmia" and n_references * n_samples < 2:
        return "one sample of one reference has no spread"
    if name == "lira_per_record" and n_references < 3:
        return "a record's own variance needs at least 3 references"
    if name in ("rmia", "qmia") and not known_nonmembers:
        return "it needs validation records with the target's logits on them"
    return None
