"""Targets as JSON: all figures of the system and chip, so that a file does not depend on tables."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from poplar_py.target.chips import Chip
from poplar_py.target.figures import Figure
from poplar_py.target.systems import System
from poplar_py.target.target import MAX_IPUS, MAX_TILES_PER_IPU, Target

MAX_TILE_BYTES = 1 << 32


def target_to_json(target: Target) -> dict[str, Any]:
    """The target with its system and chip."""
    return {
        "system": _part_to_json(target.system),
        "num_ipus": target.num_ipus,
        "tiles_per_ipu": target.tiles_per_ipu,
        "target_type": target.target_type,
    }


def target_from_json(data: dict[str, Any]) -> Target:
    """The inverse. Raises ValueError, KeyError or TypeError for what is no target."""
    ipus, tiles = data["num_ipus"], data["tiles_per_ipu"]
    if not isinstance(ipus, int) or not 1 <= ipus <= MAX_IPUS:
        raise ValueError(f"a target of {ipus!r} IPUs")
    if not isinstance(tiles, int) or not 1 <= tiles <= MAX_TILES_PER_IPU:
        raise ValueError(f"a target of {tiles!r} tiles per IPU")
    target = Target(_system(data["system"]), ipus, tiles, str(data["target_type"]))
    if not 0 < target.bytes_per_tile <= MAX_TILE_BYTES or target.clock <= 0:
        raise ValueError("a target with impossible figures")
    return target


def _part_to_json(part: System | Chip) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in fields(part):
        value = getattr(part, f.name)
        if isinstance(value, Figure):
            out[f.name] = {
                "value": value.value,
                "unit": value.unit,
                "source": value.source,
                "note": value.note,
            }
        elif isinstance(value, Chip):
            out[f.name] = _part_to_json(value)
        elif isinstance(value, tuple):
            out[f.name] = [list(link) for link in cast(tuple[tuple[int, ...], ...], value)]
        else:
            out[f.name] = value
    return out


def _figure(data: dict[str, Any]) -> Figure:
    value = data["value"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
        raise ValueError(f"a figure of {value!r}")
    return Figure(value, str(data["unit"]), str(data["source"]), str(data["note"]))


def _system(data: dict[str, Any]) -> System:
    values = _values(System, data)
    values["chip"] = Chip(**_values(Chip, data["chip"]))
    values["links"] = tuple((int(a), int(b), int(n)) for a, b, n in data["links"])
    return System(**values)


def _values(kind: type[System] | type[Chip], data: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in fields(kind):
        value = data[f.name]
        if f.type == "Figure":
            out[f.name] = _figure(value)
        elif f.type == "int":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{f.name} is {value!r}")
            out[f.name] = value
        elif f.type == "str":
            out[f.name] = str(value)
    return out
