"""A user's file for noop, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make(folder: Path) -> dict[str, Any]:
    path = folder / "zahlen größer.csv"
    path.write_text("x\n1\n2.5\n", encoding="utf-8")
    return {"data_uri": str(path)}


def broken(folder: Path) -> list[tuple[dict[str, Any], list[str]]]:
    def written(name: str, text: str) -> dict[str, Any]:
        (folder / name).write_text(text, encoding="utf-8")
        return {"data_uri": str(folder / name)}

    return [
        ({"data_uri": str(folder / "none.csv")}, ["data_uri", "none.csv"]),
        (written("columns.csv", "y\n1\n"), ["data_uri", "'x'"]),
        (written("nan.csv", "x\n1\n\n2\nnan\n"), ["data_uri", "x"]),
        (written("words.csv", "x\none\n"), ["data_uri", "one"]),
        (written("empty.csv", ""), ["data_uri", "empty"]),
        ({"steps": 0, "pause": -1}, ["steps", "pause"]),
    ]
