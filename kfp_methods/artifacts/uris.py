"""A URI becomes a local file or folder, within a size bound and without leaving the cache folder."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from kfp_methods.artifacts.files import GIB, MAX_FILES, folder_files, readable_file, shown_bytes
from kfp_methods.artifacts.remote import NoDriverError, bounded_callback, explain, open_filesystem
from kfp_methods.errors import InputError, Problem
from kfp_methods.wording import token

MAX_FETCH_BYTES = 16 * GIB
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_OBJECT_STORES = ("s3", "gs", "gcs", "minio")
_WEB = ("http", "https")
_ACCEPTED = "a local path, s3://, gs://, https://, runs:/ or models:/"
_PLAIN = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")  # nothing left to encode (RFC 3986)
_VERSION_KEYS = ("ETag", "etag", "generation", "Last-Modified", "LastModified")


def fetch(uri: str, *, field: str, cache: Path, max_bytes: int = MAX_FETCH_BYTES, timeout: float = 60.0) -> Path:
    """A local path with what `uri` names: a file, or a folder where the place it names is a folder.

    A local path (also `~/…` and `file://…`) is checked and returned as it is. `s3://`, `gs://` and
    `http(s)://` are read through fsspec, `runs:/` and `models:/` through MLflow, into `cache`; what was read
    before under the same URI, size and entity tag is not read again. `minio://`, which Kubeflow shows for its
    own store, is read as `s3://`; the endpoint and keys come from the environment (AWS_ENDPOINT_URL,
    AWS_ACCESS_KEY_ID, …).

    Args:
        field: the input's name, for errors.
        max_bytes: bound on the file, or on the folder's files together; it is checked before anything is
            read, and while reading where no length is announced.
        timeout: seconds to wait for a connection, and for the next bytes, of a web server or object store.

    Raises:
        InputError: naming the URI without its credentials.
    """
    uri = os.fspath(uri)
    match = _SCHEME.match(uri)
    scheme = match.group(1).lower() if match else ""
    if not uri or "\x00" in uri:
        raise _bad(uri, field, "is no URI", f"Give {_ACCEPTED}")
    if scheme in ("", "file"):
        return _local(uri, scheme, field, max_bytes)
    if scheme in ("runs", "models"):
        return _from_mlflow(uri, field, Path(cache), max_bytes)
    if scheme not in (*_OBJECT_STORES, *_WEB):
        raise _bad(uri, field, f"{scheme}:// is not supported", f"Give {_ACCEPTED}")
    _check_remote(uri, scheme, field)
    try:
        return _from_remote(uri, scheme, field, Path(cache), max_bytes, timeout)
    except InputError:
        raise
    except NoDriverError as missing:
        raise _bad(
            uri,
            field,
            f"{scheme}:// needs the package {missing}",
            "Install it: pip install 'kfp-methods[cloud]'",
        ) from None
    except Exception as error:  # whatever a driver raises; its text may hold keys, so it is told in our words
        raise _bad(uri, field, *explain(error)) from None


def redacted(uri: str) -> str:
    """The URI without user, password, query or fragment, which may hold credentials."""
    match = _SCHEME.match(uri)
    if not match or match.group(1).lower() in ("file", "runs", "models"):
        return uri
    address, query_mark, _ = uri.partition("?")
    address, fragment_mark, _ = address.partition("#")
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = authority.rpartition("@")[2]
    elif "@" in path and re.search(r":(?!\d*$)", authority):
        # A password with a slash in it: what looks like the path begins inside the password.
        authority, path = "", path.rpartition("@")[2]
        slash = ""
    return f"{scheme}://{authority}{slash}{path}" + ("?…" if query_mark or fragment_mark else "")


def _bad(uri: str, field: str, problem: str, remedy: str) -> InputError:
    return InputError(Problem(field, redacted(uri), problem, remedy))


def _local(uri: str, scheme: str, field: str, max_bytes: int) -> Path:
    text = uri
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise _bad(
                uri,
                field,
                f"names another machine, {parts.netloc!r}",
                "Write file:///path with three slashes",
            )
        text = os.fsdecode(unquote_to_bytes(uri.partition(":")[2].removeprefix("//").removeprefix("localhost")))
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise _bad(uri, field, "names a home folder that does not exist", "Write the whole path") from None
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if is_folder:
        if not folder_files(path, field=field, max_bytes=max_bytes):
            raise _bad(uri, field, "is a folder without files", "Give a folder that holds a model, or a file")
        return path
    return readable_file(path, field=field, max_bytes=max_bytes).path


def _check_remote(uri: str, scheme: str, field: str) -> None:
    try:
        parts = urlsplit(uri)
        _ = parts.port if scheme in _WEB else None
    except ValueError:
        raise _bad(uri, field, "is not a well-formed URI", f"Write {scheme}://host/path") from None
    if "://" not in uri or not parts.netloc:
        raise _bad(uri, field, "names no host or bucket", f"Write {scheme}:// and the host or bucket: {scheme}://…/…")
    if scheme in _OBJECT_STORES and ("@" in parts.netloc or ":" in parts.netloc):
        raise _bad(
            uri,
            field,
            "holds credentials",
            "Take them out; give them as the pod's secret or in the environment",
        )
    if scheme in _OBJECT_STORES and not parts.path.strip("/"):
        raise _bad(uri, field, "names a whole bucket", f"Name the object or folder: {scheme}://bucket/name")


def _from_remote(uri: str, scheme: str, field: str, cache: Path, max_bytes: int, timeout: float) -> Path:
    filesystem = open_filesystem(scheme, timeout, encoded=_PLAIN.fullmatch(uri) is not None)
    place = uri if scheme in _WEB else uri.partition("://")[2].rstrip("/")
    about = filesystem.info(place)
    is_folder = about["type"] == "directory"
    objects = _objects_below(filesystem, place, uri, field) if is_folder else {"": about}
    sizes = [int(entry["size"]) for entry in objects.values() if entry.get("size") is not None]
    if sum(sizes) > max_bytes:
        raise _bad(uri, field, *_too_large(sum(sizes), max_bytes))
    name = _safe_name(unquote(PurePosixPath(urlsplit(uri).path).name))
    target = cache / _entry(uri, objects) / name
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as staging:
        staged = Path(staging, name)
        callback = bounded_callback(max_bytes, lambda size: _bad(uri, field, *_too_large(size, max_bytes)))
        for relative, entry in objects.items():
            destination = staged / relative if relative else staged
            destination.parent.mkdir(parents=True, exist_ok=True)
            filesystem.get_file(entry["name"], str(destination), callback=callback)
        return _publish(staged, target)


def _objects_below(filesystem: Any, place: str, uri: str, field: str) -> dict[str, Mapping[str, Any]]:
    """The objects of a folder by their name relative to it; refuses names that would leave the cache."""
    objects: dict[str, Mapping[str, Any]] = {}
    for key, entry in filesystem.find(place, detail=True).items():
        relative = key.removeprefix(place).removeprefix("/")
        if not relative or relative.endswith("/"):
            continue  # the marker some tools write for a folder
        if any(part in ("", ".", "..") for part in relative.split("/")) or "\x00" in relative:
            raise _bad(uri, field, f"holds an object with an unsafe name, {token(relative)}", "Rename it")
        objects[relative] = entry
    if not objects:
        raise _bad(uri, field, "is a folder without files", "Check the path, or give a file")
    if len(objects) > MAX_FILES:
        raise _bad(uri, field, f"holds more than {MAX_FILES} files", "Give only the folder that is needed")
    return objects


def _entry(uri: str, objects: Mapping[str, Mapping[str, Any]]) -> str:
    """The cache's folder for this version of these objects; a new one where no version is known."""
    identity = hashlib.sha256(uri.encode("utf-8", "surrogateescape"))
    for relative, about in objects.items():
        version = next((str(about[key]) for key in _VERSION_KEYS if about.get(key)), None) or uuid.uuid4().hex
        identity.update(repr((relative, about.get("size"), version)).encode("utf-8", "surrogateescape"))
    return identity.hexdigest()[:32]


def _safe_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)[-60:].lstrip(".-") or "data"


def _publish(staged: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged.replace(target)
    except OSError:  # another process was first with the same folder
        if not target.exists():
            raise
    return target


def _too_large(size: int, max_bytes: int) -> tuple[str, str]:
    return (
        f"is {shown_bytes(size)} or more, over the {shown_bytes(max_bytes)} allowed here",
        "Give a smaller file",
    )


def _from_mlflow(uri: str, field: str, cache: Path, max_bytes: int) -> Path:
    place = uri.partition(":")[2].strip("/")
    if not place or (uri.startswith("runs:") and "/" not in place) or ".." in place.split("/"):
        raise _bad(uri, field, "is incomplete", "Write runs:/RUN_ID/path, models:/NAME/VERSION or models:/NAME@ALIAS")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as folder:
        staging = Path(folder, "artifact")
        staging.mkdir()
        relative = _download(uri, field, staging, max_bytes)
        return _publish(staging, cache / uuid.uuid4().hex) / relative


def _download(uri: str, field: str, staging: Path, max_bytes: int) -> Path:
    """Downloads by MLflow's own resolvers into the folder `staging`, and says where in it."""
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        size = _mlflow_size(uri, max_bytes)
        if size > max_bytes:
            raise _bad(uri, field, *_too_large(size, max_bytes))
        path = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(staging)))
    except InputError:
        raise
    except MlflowException as error:
        raise _bad(uri, field, *_mlflow_reason(error)) from None
    except Exception as error:  # whatever the artifact store's driver raises
        raise _bad(uri, field, *explain(error)) from None
    if not path.resolve().is_relative_to(staging.resolve()):
        raise _bad(uri, field, "is kept under an unsafe name", "Log the artifact again under a plain name")
    if path.is_dir():
        if not folder_files(path, field=field, max_bytes=max_bytes):
            raise _bad(uri, field, "names an empty folder", "Check the artifact's path in the MLflow UI")
    else:
        readable_file(path, field=field, max_bytes=max_bytes)
    return path.relative_to(staging)


def _mlflow_size(uri: str, max_bytes: int) -> int:
    """Bytes of the artifacts at `uri`, counted until they pass `max_bytes`; 0 where unknown."""
    import mlflow

    entries = mlflow.artifacts.list_artifacts(artifact_uri=uri)
    if not entries and uri.count("/") > 1:  # a file: its folder knows its size
        folder, _, name = uri.rstrip("/").rpartition("/")
        around = mlflow.artifacts.list_artifacts(artifact_uri=folder + "/")
        return sum(entry.file_size or 0 for entry in around if PurePosixPath(entry.path).name == name)
    size = 0
    for entry in entries:
        if entry.is_dir:
            size += _mlflow_size(f"{uri.rstrip('/')}/{PurePosixPath(entry.path).name}", max_bytes - size)
        else:
            size += entry.file_size or 0
        if size > max_bytes:
            break
    return size


def _mlflow_reason(error: Any) -> tuple[str, str]:
    code, text = error.error_code, str(error)
    if code in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND") or "not found" in text or "Failed to download" in text:
        return (
            "does not exist in MLflow",
            "Check the run or model, its version and the artifact's path in the MLflow UI",
        )
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
        return (
            "may not be read with these MLflow credentials",
            "Set MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN",
        )
    if "failures occurred while downloading" in text:
        return (
            "cannot be read from MLflow's artifact store",
            "Give this machine the store's credentials and endpoint",
        )
    if "API request to" in text:
        return "the MLflow server does not answer", "Check MLFLOW_TRACKING_URI, and that the server is up"
    return (
        f"MLflow refuses it ({code})",
        "Write runs:/RUN_ID/path, models:/NAME/VERSION or models:/NAME@ALIAS",
    )
