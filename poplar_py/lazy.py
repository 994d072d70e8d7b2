"""Packages whose names are imported on first use (PEP 562).

A start that finds its executable in the cache needs little of the compiler; what a package offers
under its own name must not load all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` are modules with the names they define, `modules`
    submodules that are names themselves. A found name is kept in the package."""
    table = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(table[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
