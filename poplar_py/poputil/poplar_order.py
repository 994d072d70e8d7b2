"""Positional arguments in PopLibs' order, for functions whose own order is another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Tensor
from poplar_py.poplar.faults import fail
from poplar_py.types import DType

__all__ = ["dropout_order", "poplar_order", "product_order", "random_order"]

P = ParamSpec("P")
R = TypeVar("R")
Given = tuple[tuple[Any, ...], dict[str, Any]]
PRODUCT_OPTIONS = frozenset(
    "availableMemoryProportion fullyConnectedPass inputRHSIsPreArranged partialsType "
    "use128BitConvUnitLoad enableMultiStageReduce enableFastReduce remapOutputTensor "
    "planConstraints partialsType.interTile partialsType.interIPU gatherConvOutput "
    "enableSingleInputReduce".split()
)


def poplar_order(rearranged: Callable[[tuple[Any, ...]], Given]) -> Callable[..., Any]:
    """A decorator: ``rearranged(args)`` gives the function's own positional arguments and names."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            own, found = rearranged(args)
            return function(*own, **{**found, **named})  # type: ignore[arg-type]

        call.__dict__["rearranged"] = rearranged  # for the check of kinds
        return call

    return decorate


def random_order(args: tuple[Any, ...]) -> Given:
    """``(graph, seed, modifier, reference, type, ...)`` of poprand's distributions."""
    if len(args) < 5 or not isinstance(args[4], DType):
        return args, {}
    return (*args[:2], args[3], *args[5:]), {"modifier": args[2], "dtype": args[4]}


def dropout_order(args: tuple[Any, ...]) -> Given:
    """``(graph, seed, modifier, in, reference, keep, scale, prog, name)``."""
    if len(args) < 5 or not isinstance(args[4], Tensor):
        return args, {}
    return (*args[:2], args[3], *args[5:]), {"modifier": args[2], "reference": args[4]}


def product_order(args: tuple[Any, ...]) -> Given:
    """``(graph, a, b, prog[, type][, name[, options[, cache]]])`` of poplin's products.

    Of the options the share of tile memory counts; raises OptionError for unknown ones.
    """
    named: dict[str, Any] = {}
    own, rest = args[:4], list(args[4:])
    if rest and isinstance(rest[0], DType):
        named["out_dtype"] = rest.pop(0)
    if len(rest) > 1 and (rest[1] is None or isinstance(rest[1], Mapping)):
        share = _memory_share(cast("Mapping[str, Any]", rest[1] or {}))
        if share is not None:
            named["available_memory_proportion"] = share
        del rest[1:3]
    return (*own, *rest), named


def _memory_share(options: Mapping[str, Any]) -> float | None:
    unknown = next((name for name in options if name not in PRODUCT_OPTIONS), None)
    if unknown is not None:
        known = ", ".join(sorted(PRODUCT_OPTIONS))
        fail(OptionError, f"unknown option {unknown!r} of a product", remedy=f"known: {known}")
    share = options.get("availableMemoryProportion")
    return None if share is None else float(share)
