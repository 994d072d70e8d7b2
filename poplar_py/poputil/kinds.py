"""Arguments of the libraries' functions are of the kinds their annotations name, or are refused.

The libraries export their functions through `check_kinds`; what calls a function by its module (the
compiler, other libraries) is not checked again.
"""

from __future__ import annotations

import collections.abc
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, cast

import numpy as np

from poplar_py.diagnostics import TypeMismatch
from poplar_py.poplar import ComputeSet, Graph, Target, Tensor, program
from poplar_py.poplar.faults import fail
from poplar_py.types import DType

__all__ = ["check_kinds", "fits", "need_kinds"]

Rearranged = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], dict[str, Any]]]
_FUNCTION: Any = collections.abc.Callable
_NAMES: dict[str, Any] = {
    "ComputeSet": ComputeSet,
    "Graph": Graph,
    "Items": collections.abc.Sequence,
    "Sequence": collections.abc.Sequence,
    "Callable": _FUNCTION,
    "Mapping": collections.abc.Mapping,
    "Target": Target,
    "Tensor": Tensor,
    "program": program,
    "DType": DType,
}
"""What modules import for annotations only."""

_WORDS: dict[Any, str] = {
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "True or False",
    str: "a text",
    DType: "an element type, for example poplar.FLOAT",
}


def check_kinds(space: dict[str, Any], names: Iterable[str], **aliases: Any) -> None:
    """Put a check of arguments before the functions `names` of a module's names `space`.

    Calls then raise TypeMismatch at the user's line when an argument is none of what the annotation
    of its parameter names (`aliases` stand for kinds of other names). NumPy's numbers go for
    Python's, whole ones for floats, 0 and 1 for truth, and any iterable for a sequence.
    """
    for name in names:
        function = space[name]
        if callable(function) and not isinstance(function, type):
            known = {**space, **_NAMES, **_globals_of(function), **aliases}
            space[name] = _checked(name, function, known)


def _globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names of the module that defines a function, or the class of a callable object."""
    inner: Any = inspect.unwrap(function)
    if not inspect.isfunction(inner):
        inner = type(inner).__call__
    return inspect.unwrap(inner).__globals__


def _checked(
    called: str, function: Callable[..., Any], known: dict[str, Any]
) -> Callable[..., Any]:
    rest_of = cache(lambda: _rest(function, known))
    hints_of = cache(lambda: _hints(function, known))
    rearranged: Rearranged | None = function.__dict__.get("rearranged")

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        found: dict[str, Any] = {}
        own = args
        if rearranged:
            own, found = rearranged(args)
        hints = hints_of()
        need_kinds(called, hints, own)
        for value in own[len(hints) :]:
            _need(called, "an argument", rest_of(), value)
        for name, value in (*found.items(), *named.items()):
            _need(called, name, hints.get(name, Any), value)
        return function(*args, **named)

    return call


def need_kinds(called: str, hints: Mapping[str, Any], values: Iterable[Any]) -> None:
    """Raise TypeMismatch at the user's line unless each value is of the kind of its name."""
    for (name, hint), value in zip(hints.items(), values, strict=False):
        _need(called, name, hint, value)


def _need(called: str, name: str, hint: Any, value: Any) -> None:
    if fits(value, hint):
        return
    message = f"{called}: {name} is {_shown(value)}"
    fail(TypeMismatch, message, f"give {_wanted(hint)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def _wanted(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(_wanted(part) for part in typing.get_args(hint))
    if hint in (None, type(None)):
        return "None"
    origin = typing.get_origin(hint)
    if origin is _FUNCTION:
        return "a function"
    if origin is not None and issubclass(origin, collections.abc.Iterable):
        parts = [_wanted(p) for p in typing.get_args(hint) if p is not ...]
        return f"a list of {', '.join(dict.fromkeys(parts)) or 'values'}"
    return _WORDS.get(hint) or f"a {getattr(hint, '__qualname__', hint)}"


# ---------------------------------------------------------------------- annotations
def _hints(function: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    """The kinds of the parameters in their order; those of `*args` and `**named` are free."""
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    out: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in free:
            break
        out[p.name] = _resolved(p.annotation, known)
    return out


def _rest(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    """The kind of what stands in `*args`."""
    for p in inspect.signature(function).parameters.values():
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            return _resolved(p.annotation, known)
    return Any


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """An annotation without texts in it."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if hint == "Sequence":  # only programs stand without the kind of their items
        return program.Sequence
    if isinstance(hint, str):
        return _resolved(eval(hint, names), names)
    if hint is inspect.Parameter.empty:
        return Any
    parts = typing.get_args(hint)
    if not parts or typing.get_origin(hint) in (_FUNCTION, typing.Literal):
        return hint
    found = tuple(p if p is ... else _resolved(p, names) for p in parts)
    if _is_union(hint):
        return typing.Union[found]  # noqa: UP007
    return hint if found == parts else typing.get_origin(hint)[found]  # type: ignore[index]


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


# ---------------------------------------------------------------------- values
def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind an annotation names."""
    test = _SIMPLE.get(hint) if isinstance(hint, collections.abc.Hashable) else None
    if test is not None:
        return test(value)
    if _is_union(hint):
        return any(fits(value, part) for part in typing.get_args(hint))
    origin: Any = typing.get_origin(hint)
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray)
    if origin is _FUNCTION:
        return callable(value)
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return isinstance(value, Mapping)
    if origin is not None and issubclass(origin, collections.abc.Iterable):
        return _fits_items(value, cast("type", origin), typing.get_args(hint))
    return not isinstance(hint, type) or isinstance(value, hint)


def _fits_items(value: Any, origin: type, parts: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes | Mapping | Tensor) or not isinstance(value, Iterable):
        return False
    if isinstance(value, Iterator):
        return True
    items = list(cast("Iterable[Any]", value))
    if issubclass(origin, tuple) and ... not in parts:
        return len(items) == len(parts) and all(map(fits, items, parts))
    return all(fits(item, parts[0]) for item in items)


def _has(value: object, method: str) -> bool:
    return hasattr(type(value), method)


def _is_whole(value: Any) -> bool:
    """A whole number of 64 bits; arrays only of rank 0."""
    if type(value) is not int and (not _has(value, "__index__") or np.ndim(value)):
        return False
    return -(1 << 63) <= operator.index(value) < 1 << 64


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or (_is_whole(value) and int(value) in (0, 1))


def _is_number(value: Any) -> bool:
    return _has(value, "__float__") and np.ndim(value) == 0


def _is_anything(value: Any) -> bool:
    del value
    return True


_SIMPLE: dict[Any, Callable[[Any], bool]] = {
    int: _is_whole,
    float: _is_number,
    bool: _is_truth,
    Any: _is_anything,
    object: _is_anything,
    None: lambda value: value is None,
    type(None): lambda value: value is None,
}
