"""B-spline kernels over the edges of a graph: bases at pseudo coordinates, weighted features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program_data import check_writable
from poplar_py.popops.fill import fill_constant
from poplar_py.popops.offsets import as_offsets
from poplar_py.popops.tables import PART
from poplar_py.poputil.boxes import divisor_at_most, grid_boxes
from poplar_py.poputil.layout import compact
from poplar_py.poputil.place import interval_mapping, place_near, spread_tiles
from poplar_py.types import f16, f32, u8

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = ["spline_basis", "spline_weighting"]

Ints = npt.NDArray[np.int64]


def _shares(graph: Graph, rows: int) -> tuple[Ints, Ints]:
    """Rows [begin, end) of every vertex: an even share of all workers."""
    share = -(-rows // (graph.num_tiles * graph.target.num_workers))
    begin = np.arange(0, rows, share, dtype=np.int64)
    return begin, np.minimum(begin + share, rows)


def spline_basis(
    graph: Graph,
    pseudo: Tensor,
    kernel_size: Tensor,
    is_open_spline: Tensor,
    basis: Tensor,
    weight_index: Tensor,
    degree: int,
    prog: program.Sequence,
    name: str = "spline_basis",
) -> None:
    """basis [edges, (degree + 1)^dims] of pseudo [edges, dims] (f16 or f32, from 0 to 1), and with
    the same shape the number of the weight each coefficient belongs to (i32 or u32).

    kernel_size [dims] counts the weights of a dim (integers); where is_open_spline [dims] (u8) is
    not 0 the spline does not close to a ring. Coefficient s is the product over dims d of B-spline
    piece s_d, s written in base degree + 1 with dim 0 fastest, as are the weights. Raises
    ShapeError, TypeMismatch, AliasedWrite, and OptionError for a degree that is not 1, 2 or 3.
    """
    if degree not in (1, 2, 3):
        fail(OptionError, f"B-splines of degree {degree}", remedy="1, 2 or 3")
    if len(pseudo.shape) != 2:
        fail(ShapeError, f"pseudo coordinates {list(pseudo.shape)}, [edges, dims] is wanted")
    edges, dims = pseudo.shape
    splines = (degree + 1) ** dims
    _has_shape(kernel_size, (dims,), "kernel sizes")
    _has_shape(is_open_spline, (dims,), "marks of open splines")
    _has_shape(basis, (edges, splines), "basis")
    _has_shape(weight_index, (edges, splines), "weight indices")
    if is_open_spline.dtype is not u8 or not basis.dtype is pseudo.dtype in (f16, f32):
        kinds = f"{pseudo.dtype} -> {basis.dtype}, open {is_open_spline.dtype}"
        fail(TypeMismatch, f"a spline basis {kinds}")
    check_writable(basis, "the basis")
    check_writable(weight_index, "the weight indices")
    if basis.numel == 0:
        return
    begin, end = _shares(graph, edges)
    tile = place_near(graph, basis.flatten(), begin * splines)
    none = np.zeros(len(begin), np.int64)
    fields = {
        "basis": Edges.flat(basis.flatten(), begin * splines, end * splines),
        "index": Edges.flat(
            as_offsets(graph, weight_index, prog, name), begin * splines, end * splines
        ),
        "x": Edges.flat(pseudo.flatten(), begin * dims, end * dims),
        "kernel": Edges.flat(as_offsets(graph, kernel_size, prog, name), none, none + dims),
        "open": Edges.flat(is_open_spline, none, none + dims),
    }
    cs = graph.add_compute_set(name)
    codelet = f"popops::SplineBasis<{pseudo.dtype.name},{degree}>"
    graph.add_vertices(cs, codelet, tile, fields, {"splines": splines}, name=name)
    prog.add(program.Execute(cs))


def spline_weighting(
    graph: Graph,
    features: Tensor,
    weight: Tensor,
    basis: Tensor,
    weight_index: Tensor,
    prog: program.Sequence,
    name: str = "spline_weighting",
) -> Tensor:
    """[edges, outputs]: features [edges, inputs] times weight [kernel, inputs, outputs], of which
    edge e takes the sum of weight[weight_index[e, s]] times basis[e, s] over s.

    Products are added in f32 and rounded once. An index outside the weights ends the run with a
    TileException. Raises ShapeError and TypeMismatch.
    """
    _check_weighting(features, weight, basis, weight_index)
    (edges, inputs), (kernel, _, outputs) = features.shape, weight.shape
    if edges * outputs * basis.shape[1] * inputs == 0:
        return fill_constant(graph, features.dtype, (edges, outputs), 0, prog, name)
    index = as_offsets(graph, weight_index, prog, name)
    cols = divisor_at_most(outputs, max(1, PART // (kernel * inputs)))
    blocks, splines = outputs // cols, basis.shape[1]
    workers = graph.num_tiles * graph.target.num_workers
    lo, size = grid_boxes((blocks, edges), (1, -(-edges * blocks // workers)))
    result = size[:, 1] * cols
    tile = spread_tiles(graph, len(lo))
    mapping = interval_mapping(result, tile)
    out = graph.add_variable(features.dtype, (blocks, edges, cols), name, mapping=mapping)
    stored = weight.reshape((kernel, inputs, blocks, cols)).dim_shuffle((2, 0, 1, 3))
    held = compact(graph, stored, prog, f"{name}/weight").flatten()
    first, last, end = lo[:, 1], lo[:, 1] + size[:, 1], np.cumsum(result)
    part = kernel * inputs * cols
    fields = {
        "out": Edges.flat(out.flatten(), end - result, end),
        "x": Edges.flat(features.flatten(), first * inputs, last * inputs),
        "w": Edges.flat(held, lo[:, 0] * part, (lo[:, 0] + 1) * part),
        "basis": Edges.flat(basis.flatten(), first * splines, last * splines),
        "index": Edges.flat(index, first * splines, last * splines),
    }
    cs = graph.add_compute_set(name)
    state = {"channels": inputs, "splines": splines, "cols": cols}
    codelet = f"popops::SplineWeighting<{features.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, fields, state, name=name)
    prog.add(program.Execute(cs))
    return out.dim_shuffle((1, 0, 2)).reshape((edges, outputs))


def _check_weighting(features: Tensor, weight: Tensor, basis: Tensor, weight_index: Tensor) -> None:
    if len(features.shape) != 2 or len(weight.shape) != 3 or len(basis.shape) != 2:
        shapes = [list(t.shape) for t in (features, weight, basis)]
        fail(ShapeError, f"features, weights and basis {shapes}")
    (edges, inputs), (kernel, _, outputs), splines = features.shape, weight.shape, basis.shape[1]
    _has_shape(weight, (kernel, inputs, outputs), "weights")
    _has_shape(basis, (edges, splines), "basis")
    _has_shape(weight_index, (edges, splines), "weight indices")
    kinds = {t.dtype for t in (features, weight, basis)}
    if len(kinds) > 1 or not kinds <= {f16, f32}:
        fail(TypeMismatch, f"features {features.dtype}, weights {weight.dtype}, {basis.dtype}")


def _has_shape(t: Tensor, shape: tuple[int, ...], what: str) -> None:
    if tuple(t.shape) != shape:
        fail(ShapeError, f"{what} {list(t.shape)}, {list(shape)} is wanted")
