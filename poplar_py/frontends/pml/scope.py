"""What a running function of a `.pml` model knows, and small helpers of the elaborator."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from poplar_py.diagnostics import Location, PoplarPyError, ShapeError, TypeMismatch
from poplar_py.frontends.pml.values import PmlValue, describe

__all__ = ["Frame", "TooLarge", "called_at", "checked_call", "located", "similar"]


@dataclass
class Frame:
    """One running function: its names, and how its weights and values are called."""

    scope: str
    names: dict[str, PmlValue] = field(default_factory=dict[str, PmlValue])
    children: dict[str, int] = field(default_factory=dict[str, int])
    weights: set[str] = field(default_factory=set[str])
    returned: tuple[PmlValue, ...] | None = None
    repeats: int = 0

    def full_name(self, name: str) -> str:
        return f"{self.scope}.{name}" if self.scope else name

    def child_scope(self, name: str) -> str:
        """`name` the first time, then `name_1`, `name_2`, ..."""
        count = self.children.get(name, 0)
        self.children[name] = count + 1
        return self.full_name(f"{name}_{count}" if count else name)


class TooLarge(ShapeError):
    """Ends the run at once."""


def called_at(name: str, loc: Location) -> str:
    return f"in {name}, called at {loc.short}"


@contextmanager
def located(loc: Location) -> Generator[None]:
    """Errors without a place get `loc`."""
    try:
        yield
    except PoplarPyError as error:
        error.at(loc)
        raise


def checked_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Call with arguments a user wrote: those that do not fit are a TypeMismatch."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(list(inspect.signature(function).parameters)[1:])
        raise TypeMismatch(f"{name}: {error}", remedy=f"it takes ({names})") from None
    for key, value in bound.arguments.items():
        if bound.signature.parameters[key].annotation not in ("int", "float"):
            continue
        if not isinstance(value, int | float):
            raise TypeMismatch(f"{name}: {key} must be a number, not {describe(value)}")
    return function(*bound.args, **bound.kwargs)


def similar(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else ""
