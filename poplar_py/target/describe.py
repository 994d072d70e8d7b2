"""A target as text, exact for known systems and for machines from files.

    target "m2000" ipus 4 tiles 1472
    target "lab" ipus 2 tiles 1000 type "IPU_MODEL" machine {"base": "m2000", ...}

A machine's figures are written where they differ from the known system and chip they are based on.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, cast

from poplar_py.diagnostics import UNKNOWN, Location, OptionError, quote_name
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.figures import Figure
from poplar_py.target.machine_file import system_from
from poplar_py.target.systems import SYSTEMS, System
from poplar_py.target.target import Target


def target_text(target: Target) -> str:
    """The text of a target; ``parse_tile_module`` reads it back."""
    text = f"target {quote_name(target.system.name)} ipus {target.num_ipus} "
    text += f"tiles {target.tiles_per_ipu}"
    if target.target_type != "IPU":
        text += f" type {quote_name(target.target_type)}"
    if _known(target.system.name, target.num_ipus) != target.system:
        text += f" machine {quote_name(json.dumps(machine_data(target.system)))}"
    return text


def target_from(
    name: str,
    ipus: int,
    tiles: int,
    kind: str = "IPU",
    machine: str | None = None,
    loc: Location = UNKNOWN,
) -> Target:
    """The target of the parts of its text. Raises OptionError."""
    if machine is None:
        found_system = _known(name, ipus)
        if found_system is None:
            names = ", ".join([*SYSTEMS, *CHIPS])
            raise OptionError(f"unknown system {name!r}", loc, f"known: {names}")
        system = found_system
    else:
        system = system_from(_json(machine, loc), name, loc)
    if kind not in ("IPU", "IPU_MODEL", "CPU"):
        raise OptionError(f"unknown target type {kind!r}", loc)
    found = Target.of(system, ipus, tiles)
    return Target(found.system, found.num_ipus, found.tiles_per_ipu, kind)


def _known(name: str, ipus: int) -> System | None:
    """The system of that name; chips stand for as many of them as asked, linked."""
    if name in CHIPS:
        return Target.ipu(name, ipus).system
    return SYSTEMS.get(name)


def machine_data(system: System) -> dict[str, Any]:
    """What differs from a known system and chip, in the form of a machine file."""
    base = min(SYSTEMS.values(), key=lambda s: (len(_changes(s, system)), s.name))
    chip = min(CHIPS.values(), key=lambda c: (len(_changes(c, system.chip)), c.name))
    data: dict[str, Any] = {"base": base.name, **_changes(base, system)}
    if system.links:
        data["links"] = [list(x) for x in system.links]
    data["chip"] = {"base": chip.name, **_changes(chip, system.chip)}
    return data


def _changes(base: Chip | System, part: Chip | System) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in fields(part):
        old, new = getattr(base, f.name), getattr(part, f.name)
        if old == new or f.name in ("chip", "links") or (f.name, type(part)) == ("name", System):
            continue
        if isinstance(new, Figure):
            new = {"value": float(new.value), "source": new.source, "note": new.note}
        out[f.name] = new
    return out


def _json(text: str, loc: Location) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError("the machine of a target is not valid JSON", loc) from None
    if not isinstance(data, dict):
        raise OptionError("the machine of a target is no object", loc)
    return cast("dict[str, Any]", data)
