"""docs/poplar_names.tsv: every path of a name that is done exists, and used names are done."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "docs" / "poplar_names.tsv"
ROWS = list(csv.DictReader(FILE.open(), delimiter="\t"))
STATUS = {"done", "done differently", "not done"}
USED = 3
"""A name that so many public programs use must be there."""


def look_up(path: str) -> object:
    """The object a dotted path names: the longest module, then attributes."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(error.name or " "):
                raise
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


def test_rows_are_whole() -> None:
    assert len(ROWS) > 400
    names = [(r["part"], r["name"]) for r in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert row["status"] in STATUS, row
        assert bool(row["path"]) == (row["status"] != "not done"), row
        assert row["note"] or row["status"] == "done", row


@pytest.mark.parametrize("part", sorted({r["part"] for r in ROWS}))
def test_paths_exist(part: str) -> None:
    missing: list[str] = []
    for row in ROWS:
        if row["part"] != part or row["status"] == "not done":
            continue
        try:
            look_up(row["path"])
        except (AttributeError, ModuleNotFoundError):
            missing.append(row["path"])
    assert not missing


def test_used_names_are_done() -> None:
    missing = [r["name"] for r in ROWS if r["status"] == "not done" and int(r["uses"] or 0) >= USED]
    assert not missing
