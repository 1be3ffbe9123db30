"""How a pydantic field travels through Kubeflow: as a parameter of which type, or as which artifact."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from kfp_methods.wording import counted

ParameterType = Literal["int", "float", "bool", "str", "list", "dict"]
_PLAIN: dict[Any, ParameterType] = {int: "int", float: "float", bool: "bool", str: "str", list: "list", dict: "dict"}


@dataclass(frozen=True)
class InputKind:
    """An input field on its way in.

    `accepts` and `entry_accepts` say in words what constrains the value, and each entry of a list; "" where
    nothing does. `takes_text`: is any text a value? `holds_numbers`: are the value or its entries numbers?
    """

    name: str
    kfp_type: str
    is_artifact: bool
    is_list_of_artifacts: bool
    default: Any
    presets: Mapping[str, Any]
    choices: tuple[Any, ...]
    description: str
    accepts: str
    entry_accepts: str
    takes_text: bool
    holds_numbers: bool

    @property
    def parameter_name(self) -> str:
        """The KFP parameter's name: an artifact's is its URI's, for the Kubeflow UI cannot pass artifacts."""
        return f"{self.name}_uri" if self.is_artifact else self.name


@dataclass(frozen=True)
class OutputKind:
    """An output field on its way out."""

    name: str
    kfp_type: str
    is_artifact: bool
    format: str
    description: str


def preset_values(info: FieldInfo) -> Mapping[str, Any]:
    """The defaults by preset, empty where the field has one plain default."""
    extra = info.json_schema_extra
    presets = extra.get("presets", {}) if isinstance(extra, dict) else {}
    return presets if isinstance(presets, Mapping) else {}


def input_kind(name: str, info: FieldInfo, artifact_base: type) -> InputKind:
    """Reads a field of `Inputs`.

    Raises:
        TypeError: the annotation is neither a JSON type nor an artifact (an error of the method's author).
    """
    members = _union_members(info.annotation)
    artifact = next((m for m in members if _is_subclass(m, artifact_base)), None)
    listed: Any = next((get_args(m)[0] for m in members if get_origin(m) is list and get_args(m)), None)
    in_list = _is_subclass(listed, artifact_base)
    choices = tuple(value for m in members if get_origin(m) is Literal for value in get_args(m))
    kfp_type = artifact.kfp_type if artifact else listed.kfp_type if in_list else _parameter_type(name, members)
    return InputKind(
        name=name,
        kfp_type=kfp_type,
        is_artifact=bool(artifact) or in_list,
        is_list_of_artifacts=in_list,
        default=None if artifact or in_list else info.get_default(call_default_factory=True),
        presets=preset_values(info),
        choices=choices if len(members) == 1 else (),
        description=_describe(info, choices, _entry_constraints(members), union=len(members) > 1),
        accepts=_form(info) or _accepted(info.metadata, listed=any(_is_collection(m) for m in members)),
        entry_accepts=_accepted(_entry_constraints(members), listed=False),
        takes_text=str in members,
        holds_numbers=_numbers_only(members),
    )


def _form(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra.get("form", "")) if isinstance(extra, dict) else ""


def _is_collection(member: Any) -> bool:
    return (get_origin(member) or member) in (list, dict)


def _entry_constraints(members: list[Any]) -> list[Any]:
    """What `list[Annotated[int, Field(ge=1)]]` asks of each entry."""
    entries = [get_args(m)[0] for m in members if get_origin(m) is list and get_args(m)]
    return [
        part
        for entry in entries
        if get_origin(entry) is Annotated
        for info in get_args(entry)[1:]
        for part in (info.metadata if isinstance(info, FieldInfo) else [info])
    ]


def _numbers_only(members: list[Any]) -> bool:
    inner = [part for m in members for part in (_union_members(get_args(m)[0]) if get_origin(m) is list else [m])]
    return bool({int, float} & set(inner)) and bool not in inner


def output_kind(name: str, info: FieldInfo, artifact_types: Mapping[type, str]) -> OutputKind:
    """Reads a field of `Outputs`; see `input_kind`."""
    members = _union_members(info.annotation)
    inner = [get_args(m)[0] if get_origin(m) is list and get_args(m) else m for m in members]
    inner = [get_args(m)[0] if get_origin(m) is Annotated else m for m in inner]
    artifact = next((t for base, t in artifact_types.items() for m in inner if _is_subclass(m, base)), None)
    extra = info.json_schema_extra
    return OutputKind(
        name=name,
        kfp_type=artifact or _parameter_type(name, members),
        is_artifact=artifact is not None,
        format=str(extra.get("format", "csv")) if isinstance(extra, dict) else "csv",
        description=info.description or "",
    )


def _union_members(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for arg in get_args(annotation) if arg is not type(None) for member in _union_members(arg)]
    return [annotation]


def _parameter_type(name: str, members: list[Any]) -> ParameterType:
    found: set[ParameterType] = set()
    for member in members:
        if get_origin(member) is Literal:
            found |= {_PLAIN[type(value)] for value in get_args(member)}
        elif (plain := _PLAIN.get(get_origin(member) or member)) is not None:
            found.add(plain)
        else:
            raise TypeError(f"field {name!r}: {member!r} is neither a JSON type nor an artifact")
    if len(found) == 1:
        return found.pop()
    if found == {"int", "float"}:
        return "float"
    return "str"


def _is_subclass(candidate: Any, base: type) -> bool:
    return isinstance(candidate, type) and (candidate is base or base in candidate.__mro__)


_WORDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
_LENGTHS = {"min_length": "at least {}", "max_length": "at most {}"}


def _accepted(constraints: list[Any], *, listed: bool) -> str:
    """Every bound in words, for one limit without the other sends a user from one error to the next."""
    bounds = {
        name: getattr(part, name)
        for part in constraints
        for name in (*_WORDS, *_LENGTHS)
        if getattr(part, name, None) is not None
    }
    numbers = " and ".join(words.format(bounds[name]) for name, words in _WORDS.items() if name in bounds)
    lengths = [(words, bounds[name]) for name, words in _LENGTHS.items() if name in bounds]
    if not lengths:
        return numbers
    unit = counted(lengths[-1][1], *(("entry", "entries") if listed else ("character",)))
    counts = " and ".join(words.format(count) for words, count in lengths) + f" {unit.partition(' ')[2]}"
    return f"{numbers}, {counts}" if numbers else counts


_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "min_length": "length ≥", "max_length": "length ≤"}


def _describe(info: FieldInfo, choices: tuple[Any, ...], entries: list[Any], *, union: bool) -> str:
    """The field's description followed by what it accepts and where its default comes from."""
    bounds = [*_signs(info.metadata), *(f"each {sign}" for sign in _signs(entries))]
    accepted = [f"{'or ' if union else 'one of '}{', '.join(map(str, choices))}"] if choices else []
    presets = preset_values(info)
    chosen = [f"chosen by preset: {', '.join(f'{k} {v}' for k, v in presets.items())}"] if presets else []
    notes = "; ".join([*accepted, *bounds, *chosen])
    return f"{info.description or ''}{f' [{notes}]' if notes else ''}"


def _signs(constraints: list[Any]) -> list[str]:
    return [
        f"{sign} {getattr(part, name)}"
        for part in constraints
        for name, sign in _SIGNS.items()
        if getattr(part, name, None) is not None
    ]
