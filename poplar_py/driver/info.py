"""Facts about this installation, for `poplar-py info` and bug reports."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from poplar_py.codelets.diskcache import cache_folder
from poplar_py.target import SYSTEMS

__all__ = ["cache_folder", "information"]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def information() -> dict[str, object]:
    """Versions, host and systems."""
    facts: dict[str, object] = {"poplar_py": _version("poplar_py")}
    facts["python"] = sys.version.split()[0]
    for package in ("numpy", "llvmlite", "onnx"):
        facts[package] = _version(package)
    facts["host"] = f"{platform.system()} {platform.machine()}"
    facts["cores"] = len(os.sched_getaffinity(0))
    facts["cache"] = str(cache_folder())
    facts["systems"] = [
        {
            "name": system.name,
            "chip": system.chip.name,
            "ipus": system.num_ipus,
            "tiles_per_ipu": int(system.chip.tiles.value),
            "bytes_per_tile": int(system.chip.bytes_per_tile.value),
            "clock_hz": system.chip.clock.value,
            "topology": system.topology,
        }
        for system in SYSTEMS.values()
    ]
    return facts
