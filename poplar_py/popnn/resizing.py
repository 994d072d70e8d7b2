"""Resize of spatial dims: nearest by views, linear as one weighted sum a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.poputil.shapes import need_room
from poplar_py.types import f64

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor, program

__all__ = ["resize"]

METHODS = ("nearest", "linear")
COORDINATES = ("half_pixel", "align_corners", "asymmetric")


def resize(
    graph: Graph,
    x: Tensor,
    sizes: Sequence[int],
    prog: program.Sequence,
    name: str = "",
    *,
    method: str = "nearest",
    coordinates: str = "half_pixel",
) -> Tensor:
    """x [N, C, *in] with spatial sizes `sizes`.

    `method`: nearest (the lower neighbour of a tie) or linear; `coordinates`: half_pixel,
    align_corners or asymmetric. Nearest costs no vertices. Raises OptionError, ShapeError.
    """
    if method not in METHODS or coordinates not in COORDINATES:
        fail(
            OptionError,
            f"resize method {method!r}, coordinates {coordinates!r}",
            remedy=f"methods: {', '.join(METHODS)}; coordinates: {', '.join(COORDINATES)}",
        )
    if len(sizes) != len(x.shape) - 2 or min((*sizes, *x.shape[2:]), default=1) < 1:
        fail(ShapeError, f"resize of a tensor of shape {tuple(x.shape)} to {tuple(sizes)}")
    need_room(graph, (*x.shape[:2], *sizes))
    name = name or f"resize_{method}"
    for dim, size in enumerate(sizes, 2):
        if x.shape[dim] == size:
            continue
        place = _coordinates(x.shape[dim], size, coordinates)
        if method == "nearest":
            nearest = np.clip(np.ceil(place - 0.5), 0, x.shape[dim] - 1).astype(np.int64)
            x = x.take(nearest, dim)
        else:
            x = _linear(graph, x, dim, place, prog, f"{name}/{dim}")
    return x


def _coordinates(before: int, after: int, kind: str) -> npt.NDArray[np.float64]:
    """Where each new element lies in the old ones."""
    index = np.arange(after, dtype=np.float64)
    if kind == "align_corners":
        return index * ((before - 1) / max(after - 1, 1))
    if kind == "asymmetric":
        return index * (before / after)
    return (index + 0.5) * (before / after) - 0.5


def _linear(
    graph: Graph,
    x: Tensor,
    dim: int,
    place: npt.NDArray[Any],
    prog: program.Sequence,
    name: str,
) -> Tensor:
    """(1 - w) * x[low] + w * x[low + 1] along one dim."""
    size = x.shape[dim]
    place = np.clip(place, 0, size - 1)
    low = np.minimum(place.astype(np.int64), max(size - 2, 0))
    high = np.minimum(low + 1, size - 1)
    shape = tuple(len(place) if d == dim else 1 for d in range(len(x.shape)))
    acc = "f64" if x.dtype is f64 else "f32"
    kind = np.float64 if x.dtype is f64 else np.float32
    weight = (place - low).astype(kind).reshape(shape)
    held = graph.add_constant(None, shape, weight, f"{name}/weights", "linear")
    a, b = (f"cast(${i},{acc})" for i in (0, 1))
    text = f"cast(add(mul({a},sub(c(1),$2)),mul({b},$2)),{x.dtype.name})"
    tensors = [x.take(low, dim), x.take(high, dim), held]
    return map_expr(graph, text, tensors, prog, name, x.dtype)
