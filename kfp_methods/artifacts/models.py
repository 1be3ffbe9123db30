"""A model folder or ONNX file that holds weights and nothing that runs."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import safetensors

from kfp_methods import wording
from kfp_methods.artifacts.files import GIB, Source, folder_files, readable_file, too_large
from kfp_methods.artifacts.formats import PROGRAMS, SAFE_MODEL, format_of
from kfp_methods.wording import counted, token

if TYPE_CHECKING:
    import onnxruntime

MAX_MODEL_BYTES = 64 * GIB
_MAX_JSON_BYTES = 64 * 2**20
_MAX_ONNX_BYTES = 2 * GIB  # protobuf's own bound; larger weights lie in external files
_SAVE = "Save it with model.save_pretrained(folder, safe_serialization=True)"
_ONNX_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : ([A-Z_]+)")
_CODE_KEYS = ("auto_map", "custom_pipelines")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")


def huggingface_folder(
    path: Path,
    *,
    field: str,
    architectures: Sequence[str] | None = None,
    tokenizer: bool = False,
    max_bytes: int = MAX_MODEL_BYTES,
) -> Path:
    """The folder, known to hold a Hugging Face model as `save_pretrained` writes it, in safetensors.

    Load it with `use_safetensors=True, trust_remote_code=False, local_files_only=True`.

    Args:
        architectures: the accepted entries of the configuration's `architectures`; None accepts all.
        tokenizer: must the folder also hold a tokenizer?

    Raises:
        InputError: when a part is missing or damaged, when the weights are pickled, when the configuration
            asks for code of its own (`auto_map`, a kernel from a hub), or when a link leads out of the
            folder.
    """
    path = Path(path)
    source = Source(path, field)
    if not path.is_dir():
        readable_file(path, field=field, max_bytes=max_bytes)
        raise source.error("is a file where a model folder is expected", _SAVE)
    files = folder_files(path, field=field, max_bytes=max_bytes)
    if "config.json" not in files:
        near = [name for name in files if PurePosixPath(name).name == "config.json"]
        remedy = f"Give its folder {PurePosixPath(near[0]).parent}" if near else _SAVE
        raise source.error("holds no config.json", remedy)
    config = _json_object(Source(files["config.json"], field))
    for name, file in files.items():
        if name.endswith(".json") and "/" not in name and not name.endswith(".index.json"):
            _refuse_code(Source(file, field))
    _check_architecture(source, config, architectures)
    _check_weights(source, files, field)
    if tokenizer and not any(name in files for name in _TOKENIZERS):
        raise source.error("holds no tokenizer", "Save it beside the model: tokenizer.save_pretrained(folder)")
    return path


def _json_object(source: Source) -> dict[str, Any]:
    readable_file(source.path, field=source.field, max_bytes=_MAX_JSON_BYTES)
    try:
        content = json.loads(source.path.read_bytes())
    except (ValueError, RecursionError):
        raise source.error("is not JSON", _SAVE) from None
    if not isinstance(content, dict):
        raise source.error("is not a JSON object", _SAVE)
    return content


def _refuse_code(source: Source) -> None:
    """Parses only files in which a key in question occurs: a tokenizer's may be large."""
    text = source.path.read_bytes() if source.path.stat().st_size <= _MAX_JSON_BYTES else b""
    if not any(key in text for key in (b"auto_map", b"custom_pipelines", b"attn_implementation", b"\\u")):
        return
    for key, value in _entries(_json_object(source)):
        if key in _CODE_KEYS and value:
            raise source.error(
                f"asks for code of the model's own ({key!r})",
                "Give a model whose architecture is part of transformers itself",
            )
        if key in ("attn_implementation", "_attn_implementation") and "/" in str(value):
            raise source.error(f"asks for a kernel from a hub ({key!r}: {token(str(value))})", "Take that entry out")


def _entries(content: object) -> Iterator[tuple[str, object]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield key, value
            yield from _entries(value)
    elif isinstance(content, list):
        for value in content:
            yield from _entries(value)


def _check_architecture(source: Source, config: dict[str, Any], architectures: Sequence[str] | None) -> None:
    if architectures is None:
        return
    named = config.get("architectures") or []
    if not (isinstance(named, list) and named and set(map(str, named)) <= set(architectures)):
        named = [str(name) for name in named] if isinstance(named, list) else []
        given = wording.listed(named, 3)
        near = difflib.get_close_matches(named[0] if named else "", architectures, n=1)
        hint = f" (perhaps {near[0]})" if near else ""
        raise source.error(f"its architecture is {given}", f"Give one of {', '.join(architectures)}{hint}")


def _check_weights(source: Source, files: dict[str, Path], field: str) -> None:
    weights = [name for name in files if name.endswith(".safetensors") and "/" not in name]
    if not weights:
        programs = [name for name, file in files.items() if file.stat().st_size and format_of(file) in PROGRAMS]
        if programs:
            raise source.error(
                f"its only weights are pickled ({token(programs[0])}): loading them runs a program",
                f"{_SAVE} and give that",
            )
        raise source.error("holds no *.safetensors weights", _SAVE)
    for index in (name for name in files if name.endswith(".safetensors.index.json") and "/" not in name):
        shards = _json_object(Source(files[index], field)).get("weight_map")
        if not isinstance(shards, dict):
            raise source.error(f"{token(index)} has no weight_map", _SAVE)
        missing = sorted({str(shard) for shard in shards.values()} - set(weights))
        if missing:
            raise source.error(
                f"{token(index)} names {token(missing[0])}, which the folder does not hold", "Copy all of the model"
            )
    for name in weights:
        try:
            with safetensors.safe_open(files[name], framework="np"):
                pass
        except (OSError, ValueError, safetensors.SafetensorError):
            raise source.error(f"{token(name)} is damaged or cut short", "Copy or save the model again") from None


def onnx_session(
    path: Path,
    *,
    field: str,
    providers: Sequence[str] = ("CPUExecutionProvider",),
    max_bytes: int = MAX_MODEL_BYTES,
) -> onnxruntime.InferenceSession:
    """An onnxruntime session of the model in an ONNX file, or in a folder that holds one.

    Raises:
        InputError: when the file is no valid ONNX model, when its weights lie outside its folder, when it is
            larger than `max_bytes` with them, or when a provider is not available (onnxruntime would take
            another silently).
    """
    import onnxruntime

    source = readable_file(_onnx_file(Path(path), field), field=field, max_bytes=min(max_bytes, _MAX_ONNX_BYTES))
    if format_of(source.path) in PROGRAMS:
        raise source.error("is a program that runs when it is loaded, not an ONNX model", SAFE_MODEL)
    available = onnxruntime.get_available_providers()
    lacking = [provider for provider in providers if provider not in available]
    if lacking:
        raise source.error(f"onnxruntime here lacks {', '.join(lacking)}", f"Run it on one of {', '.join(available)}")
    _check_external_weights(source, max_bytes)
    try:
        return onnxruntime.InferenceSession(source.path, providers=list(providers))
    except Exception as error:  # onnxruntime's exceptions derive from Exception alone
        code = _ONNX_CODE.match(str(error))  # what follows it may hold the file's content
        reason = code.group(1) if code else type(error).__name__
        remedy = (
            f"Check it with onnx.checker.check_model, and that onnxruntime {onnxruntime.__version__} knows its opset"
        )
        raise source.error(f"onnxruntime cannot load it ({reason})", remedy) from None


def _onnx_file(path: Path, field: str) -> Path:
    if not path.is_dir():
        return path
    files = folder_files(path, field=field, max_bytes=MAX_MODEL_BYTES)
    models = [file for name, file in files.items() if name.endswith(".onnx")]
    if len(models) != 1:
        raise Source(path, field).error(
            f"holds {counted(len(models), '.onnx file')} where one is expected", "Give the file itself"
        )
    return models[0]


def _check_external_weights(source: Source, max_bytes: int) -> None:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(source.path, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, RuntimeError):
        raise source.error("is no ONNX model", "Export it with torch.onnx.export or skl2onnx") from None
    if not model.HasField("graph"):
        raise source.error("is no ONNX model: it has no graph", "Export it with torch.onnx.export or skl2onnx")
    folder = source.path.parent.resolve()
    total = source.path.stat().st_size
    for location in sorted(_external_locations(model)):
        target = Path(os.path.join(folder, location))
        if PurePosixPath(location).is_absolute() or not target.resolve().is_relative_to(folder):
            raise source.error(f"its weights lie outside its folder ({token(location)})", "Save it as one file")
        if not target.is_file():
            raise source.error(
                f"its weights {token(location)} are missing", "Give the folder with the model and its weights"
            )
        total += target.stat().st_size
    if total > max_bytes:
        raise too_large(source, total, max_bytes, "with its weights is")


def _external_locations(message: Any) -> set[str]:
    """The files that tensors anywhere in an ONNX message (subgraphs and functions too) lie in."""
    locations: set[str] = set()
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.name == "external_data":
            locations |= {entry.value for entry in value if entry.key == "location"}
            continue
        for item in [value] if hasattr(value, "ListFields") else value:
            if hasattr(item, "ListFields"):
                locations |= _external_locations(item)
    return locations
