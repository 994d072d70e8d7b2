"""The table of functions of the `.pml` language, and what they ask of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from poplar_py.diagnostics import TypeMismatch
from poplar_py.frontends.pml.values import PmlValue, describe
from poplar_py.ir.core import Value

Builtin = Callable[..., PmlValue]
BUILTINS: dict[str, Builtin] = {}


def builtin(fn: Builtin) -> Builtin:
    """Enter a function under its name without a trailing underscore."""
    BUILTINS[fn.__name__.rstrip("_")] = fn
    return fn


def tensor_of(value: PmlValue, what: str) -> Value:
    """The tensor that argument `what` has to be. Raises TypeMismatch."""
    if not isinstance(value, Value):
        raise TypeMismatch(f"{what} must be a tensor, not {describe(value)}")
    return value


def tensors_of(value: PmlValue, what: str) -> tuple[Value, ...]:
    """The list of tensors that argument `what` has to be. Raises TypeMismatch."""
    if not isinstance(value, tuple):
        raise TypeMismatch(f"{what} must be a list of tensors, not {describe(value)}")
    return tuple(tensor_of(v, what) for v in cast("tuple[PmlValue, ...]", value))


def flag_of(value: PmlValue, what: str) -> bool:
    """True or false, which argument `what` has to be. Raises TypeMismatch."""
    if not isinstance(value, bool):
        raise TypeMismatch(f"{what} must be true or false, not {describe(value)}")
    return value
