"""YAML as people mean it: version 1.2's few types, and a name that is there twice is a mistake.

In YAML 1.1, which PyYAML reads, `no` is false, `1:30` is ninety and `010` is eight; here they are the texts they look
like, and whole numbers are decimal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from kfp_methods.errors import InputError, Problem

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REMEDY = "Give a YAML file with one line `name: value` for each input"


class _Loader(_Base):
    """Text, numbers, true, false, null, lists and mappings."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own way; not shared with its base)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            names = [key.value for key, _ in node.value]
            twice, mark = next((n, k.start_mark) for i, (n, (k, _)) in enumerate(zip(names, node.value, strict=True))
                               if n in names[:i])  # fmt: skip
            raise yaml.MarkedYAMLError(problem=f"{twice} is given twice", problem_mark=mark)
        return mapping


_FORMS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)
for _name, _form, _first in _FORMS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_form})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def load(text: str) -> Any:
    """The value of one YAML document.

    Raises:
        ValueError: it is none; the text says where.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (derived from the safe loader)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError((str(error).splitlines() or ["no YAML"])[0]) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_inputs(path: Path) -> dict[str, Any]:
    """The inputs that a YAML file gives, by name. Raises InputError."""
    try:
        content = load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(Problem("inputs_file", str(path), f"cannot be read ({reason})", _REMEDY)) from None
    if not isinstance(content, dict):
        raise InputError(Problem("inputs_file", str(path), "is not a mapping of names to values", _REMEDY))
    if empty := [str(name) for name, value in content.items() if value is None]:
        remedy = "Give one, or leave the line out"
        raise InputError(Problem(name, None, f"has no value in {path}", remedy) for name in empty)
    return {str(name): value for name, value in content.items()}
