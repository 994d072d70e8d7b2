"""Tensors as text: which elements of which variables they list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from poplar_py.poplar.arrays import as_ints, coalesce
from poplar_py.poplar.enums import SerializationFormat
from poplar_py.poplar.errors import TensorCreationError
from poplar_py.poplar.faults import a_text, fail
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.views import Runs
from poplar_py.types import DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poplar_py.poplar.graph import Graph

__all__ = ["read_tensors", "write_tensors"]


def write_tensors(out: TextIO, tensors: Sequence[Tensor], form: str) -> None:
    """Write tensors as a JSON list: type, shape, and regions (variable, its name, begin, end)."""
    _check_form(form)
    if not hasattr(out, "write"):
        fail(TensorCreationError, f"tensors are written to {out!r}", "give an open text file")
    json.dump([_described(t) for t in tensors], out)


def _described(tensor: Tensor) -> dict[str, Any]:
    names = tensor.graph.variables
    regions = [[v, names[v].name, i.begin, i.end] for v, i in tensor.get_var_regions()]
    return {"type": tensor.dtype.name, "shape": list(tensor.shape), "regions": regions}


def read_tensors(graph: Graph, source: TextIO, form: str) -> list[Tensor]:
    """Tensors of a graph whose variables are those of the graph that wrote them."""
    _check_form(form)
    if not hasattr(source, "read"):
        fail(TensorCreationError, f"tensors are read from {source!r}", "give an open text file")
    try:
        rows = json.loads(source.read())
        return [_rebuilt(graph, row) for row in rows]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        fail(
            TensorCreationError, f"no list of tensors: {error}", "give what serialize_tensors gave"
        )


def _rebuilt(graph: Graph, row: dict[str, Any]) -> Tensor:
    dtype, shape = DTYPES[row["type"]], tuple([int(n) for n in row["shape"]])
    start: list[int] = []
    length: list[int] = []
    for ident, name, begin, end in cast("list[tuple[int, str, int, int]]", row["regions"]):
        var = graph.variables[ident] if 0 <= ident < len(graph.variables) else None
        if var is None or var.name != name or var.dtype.size != dtype.size:
            fail(TensorCreationError, f"this graph has no variable {name!r} with number {ident}")
        if not 0 <= begin < end <= var.size:
            fail(TensorCreationError, f"elements {begin} to {end} of variable {name!r}")
        start.append(var.base + begin)
        length.append(end - begin)
    if min(shape, default=0) < 0 or int(np.prod(shape, dtype=object)) != sum(length):
        fail(TensorCreationError, f"{sum(length)} elements for a tensor of shape {list(shape)}")
    runs = coalesce(as_ints(start), as_ints(length))
    return Tensor(graph.whole, Runs(shape, *runs), dtype)


def _check_form(form: str) -> None:
    if a_text(form, "a format").lower() not in list(SerializationFormat):
        fail(TensorCreationError, f"unknown format {form!r}", "the format is json")
