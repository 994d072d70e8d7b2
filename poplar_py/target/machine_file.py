"""Machines from a TOML file: a known system with some of its figures replaced.

base = "m2000"
name = "lab"
num_ipus = 8
topology = "custom"
links = [[0, 1, 4], [1, 2, 2]]
host_rate_in = { value = 12e9, source = "measured", note = "our server" }

[chip]
base = "gc200"
tiles = 1000
clock = 1.5e9
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from poplar_py.diagnostics import FileError, Location, OptionError, ParseError, reason_of
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.figures import Figure
from poplar_py.target.systems import SYSTEMS, System

TOPOLOGIES = ("single", "ladder", "torus", "custom")
Part = TypeVar("Part", Chip, System)


def load_system(path: str | Path) -> System:
    """The system a TOML file describes.

    Raises FileError, ParseError for bad TOML, OptionError for unknown keys or wrong values.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise FileError(
            f"cannot read machine file {name!r}: {reason}", Location(name, 0, 0)
        ) from None
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"not a TOML file: {reason_of(error)}", Location(name, 1, 1)) from None
    return system_from(data, Path(path).stem, Location(name, 1, 1))


def system_from(data: dict[str, Any], name: str, loc: Location) -> System:
    """A system from the parsed file."""
    rest = dict(data)
    base = _base(SYSTEMS, rest.pop("base", "ipu"), "system", loc)
    chip_data: Any = rest.pop("chip", {})
    if not isinstance(chip_data, dict):
        raise OptionError("chip is no table", loc, "write [chip] and its keys below")
    chip = _chip_from(cast("dict[str, Any]", chip_data), base.chip, loc)
    links = tuple(_link(x, loc) for x in rest.pop("links", base.links))
    out = replace(base, name=name, chip=chip, links=links)
    out = _replaced(out, rest, loc)
    if out.topology not in TOPOLOGIES:
        raise OptionError(
            f"unknown topology {out.topology!r}", loc, f"one of {', '.join(TOPOLOGIES)}"
        )
    if min(out.num_ipus, out.ipus_per_machine, out.pod) < 1:
        raise OptionError("num_ipus, ipus_per_machine and pod are at least 1", loc)
    return out


def _chip_from(data: dict[str, Any], base: Chip, loc: Location) -> Chip:
    rest = dict(data)
    named = rest.pop("base", None)
    chip = base if named is None else _base(CHIPS, named, "chip", loc)
    return _replaced(chip, rest, loc)


def _base(table: dict[str, Any], name: Any, what: str, loc: Location) -> Any:
    if name not in table:
        raise OptionError(f"unknown {what} {name!r}", loc, f"known: {', '.join(table)}")
    return table[name]


def _link(value: Any, loc: Location) -> tuple[int, int, int]:
    items = cast("list[Any]", value if isinstance(value, (list, tuple)) else [])
    if len(items) != 3 or not all(isinstance(x, int) and x >= 0 for x in items):
        raise OptionError(f"a link is [ipu, ipu, units], not {value!r}", loc)
    return (items[0], items[1], items[2])


def _replaced(part: Part, data: dict[str, Any], loc: Location) -> Part:
    names = {f.name for f in fields(part)} - {"chip", "links"}
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            remedy = f"did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"unknown key {key!r} in a machine file", loc, remedy)
        changes[key] = _value(getattr(part, key), key, value, loc)
    return replace(part, **changes)


def _value(old: Any, key: str, value: Any, loc: Location) -> Any:
    if not isinstance(old, Figure):
        if type(value) is not type(old):
            raise OptionError(f"{key} is {value!r}, not {type(old).__name__}", loc)
        return value
    note = ""
    source = loc.file
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if set(table) - {"value", "source", "note"} or "value" not in table:
            raise OptionError(f"{key} is a number, or a table of value, source and note", loc)
        source, note = str(table.get("source", source)), str(table.get("note", ""))
        value = table["value"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        raise OptionError(f"{key} is {value!r}, not a number of 0 or more", loc)
    return Figure(float(value), old.unit, source, note)
