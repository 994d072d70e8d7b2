"""Where the largest elements of fields lie, as expected coordinates of a softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poplar_py.diagnostics import OptionError, ShapeError
from poplar_py.poplar import concat
from poplar_py.poplar.faults import fail
from poplar_py.popnn.norm import softmax
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.reduction import reduce
from poplar_py.types import f32, f64

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor, program

__all__ = ["spatial_softmax_2d"]


def spatial_softmax_2d(
    graph: Graph,
    fields: Tensor,
    temperature: float | Tensor,
    prog: program.Sequence,
    name: str = "spatial_softmax_2d",
    *,
    disable_softmax: bool = False,
) -> Tensor:
    """[C, 2]: the expected (row, column) of each field of fields [C, H, W], both from -1 to 1.

    A field's weights are its softmax after division by the temperature, a number other than 0 or a
    tensor of one element; with `disable_softmax` the fields are the weights. Raises OptionError,
    ShapeError.
    """
    if fields.rank != 3 or 0 in fields.shape:
        fail(ShapeError, f"fields [C, H, W], not {list(fields.shape)}")
    if isinstance(temperature, int | float) and not temperature:
        fail(OptionError, "a temperature of 0 divides by it")
    count, height, width = fields.shape
    acc = f64 if fields.dtype is f64 else f32
    weights = fields.reshape((count, height * width))
    if not disable_softmax:
        parts, text = [weights], f"div(cast($0,{acc.name}),c({temperature!r}))"
        if not isinstance(temperature, int | float):
            parts.append(temperature.reshape((1, 1)))
            text = f"div(cast($0,{acc.name}),cast($1,{acc.name}))"
        cooled = map_expr(graph, text, parts, prog, f"{name}/cool", acc)
        weights = softmax(graph, cooled, 1, prog, f"{name}/softmax")
    columns: list[Tensor] = []
    for axis, size in ((0, height), (1, width)):
        line = np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
        grid = np.broadcast_to(line[:, None] if axis == 0 else line, (height, width))
        places = grid.reshape((1, height * width)).astype(acc.numpy)
        held = graph.add_constant(acc, places.shape, places, f"{name}/places{axis}", "linear")
        text = f"mul(cast($0,{acc.name}),$1)"
        product = map_expr(graph, text, [weights, held], prog, f"{name}/product{axis}", acc)
        total = reduce(graph, product, (1,), "sum", prog, f"{name}/sum{axis}", fields.dtype)
        columns.append(total.reshape((count, 1)))
    return concat(columns, 1)
