"""Matrix products by register blocks.

With constant second operands shared by the batch a product is a 1 x 1 convolution over its rows;
with computed ones (attention) both operands are read where they are, 16 x 16 block by block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Edges
from poplar_py.poplar.arrays import offsets_of, ragged
from poplar_py.poplar.program import Execute
from poplar_py.poplin.blockconv import bias_tensor, block_conv, residual_lanes
from poplar_py.poplin.blocks import Blocks, Finish, Group
from poplar_py.poplin.epilogue import Inline
from poplar_py.poplin.lanes import RowTable, Window, blocked_copy, halo_table, one_piece
from poplar_py.poplin.params import ConvForm
from poplar_py.poplin.place import TileRange, block_mapping, spread
from poplar_py.poplin.plan import Machine, Problem, make_plan, piece_widths, remember
from poplar_py.poputil.blocked import (
    LANES,
    blocks_of,
    lane_addresses,
    view_of_blocked,
)
from poplar_py.types import DType, dtype_of, f16, f32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.groups import ComputeSet
    from poplar_py.poplar.program import Sequence
    from poplar_py.poplin.operands import Operand

__all__ = ["block_mat_mul_applies", "blocked_constant", "computed_mat_mul", "shared_mat_mul"]

Ints = npt.NDArray[np.int64]
PLAIN = ConvForm.of(3)


def block_mat_mul_applies(a: DType, b: DType, out: DType) -> bool:
    """Whether the block kernels can do it: f32 or f16 throughout."""
    return a in (f32, f16) and a is b is out


def shared_mat_mul(
    graph: Graph,
    a: Tensor,
    b: npt.NDArray[Any],
    bias: Operand | None,
    unit: int,
    prog: Sequence,
    name: str,
    tiles: TileRange,
    form: Inline,
    residual: Tensor | None,
) -> Tensor:
    """a [W, K] times the constant b [K, N]: [W, N]. `unit` rows belong to one batch entry."""
    rows, k = a.shape
    n = b.shape[1]
    x = a.dim_shuffle((1, 0)).reshape((1, k, 1, 1, rows))
    w = b.T.reshape((n, k, 1, 1, 1))
    extra = None
    if residual is not None:
        extra = residual.dim_shuffle((1, 0)).reshape((1, n, 1, 1, rows))
    out = block_conv(
        graph, x, w, bias, PLAIN, prog, name, tiles, form, extra, unit=unit, matrix=True
    )
    return out.reshape((n, rows)).dim_shuffle((1, 0))


def computed_mat_mul(
    graph: Graph,
    a: Operand,
    b: Operand,
    bias: Operand | None,
    prog: Sequence,
    name: str,
    tiles: TileRange,
    form: Inline,
    residual: Tensor | None,
) -> Tensor:
    """a [B, M, K] times b [B, K, N]: [B, M, N]."""
    (batch, m, k), n = a.shape, b.shape[2]
    dtype = dtype_of(a) if isinstance(a, np.ndarray) else a.dtype
    problem = _problem(graph, dtype, (batch, m, k, n), tiles, bias is not None, residual, form)
    plan = make_plan(problem)
    remember(graph, name, plan)
    blocks = Blocks(graph, plan, batch, dtype, prog, name, tiles)
    tables = _row_tables(graph, a, blocks.groups(), dtype, prog, name, tiles)
    weights = _vector_blocks(graph, b, prog, name, tiles)
    if residual is not None:
        residual = residual.dim_shuffle((0, 2, 1)).reshape((batch, n, 1, 1, m))
    finish = Finish(
        form,
        bias_tensor(graph, bias, plan, dtype, prog, name),
        residual_lanes(graph, residual, plan, prog, name, tiles),
    )
    base, view = blocks.output(n, (m,), name)
    first = np.zeros(plan.output_groups, np.int64)
    for cs, groups, target in blocks.steps(base, finish):
        for g, table in zip(groups, tables, strict=True):
            edges = blocks.common_edges(g, table, first, finish, target)
            edges["w"] = _block_edges(blocks, g, weights, k)
            _add_group(blocks, g, edges, form, k, cs)
    return view.dim_shuffle((0, 2, 1))


def _problem(
    graph: Graph,
    dtype: DType,
    sizes: tuple[int, int, int, int],
    tiles: TileRange,
    biased: bool,
    residual: Tensor | None,
    form: Inline,
) -> Problem:
    batch, m, k, n = sizes
    return Problem(
        size=dtype.size,
        rows=batch,
        width=m,
        out_blocks=blocks_of(n),
        in_blocks=blocks_of(k),
        kernel_rows=1,
        kernel_width=1,
        stride=1,
        dilation=1,
        chans=LANES,
        tiles=tiles.count,
        read_piece=piece_widths(m)[0],
        row_weights=True,
        extras=biased + (residual is not None),
        act=form.act,
        residual=residual is not None,
        memory=tiles.memory,
        machine=Machine.of(graph.target),
    )


def _add_group(
    blocks: Blocks, g: Group, edges: dict[str, Edges], finish: Inline, k: int, cs: ComputeSet
) -> None:
    """Vertices of one block width; `k` elements are summed, the last block has what is left."""
    plan = blocks.plan
    partial = plan.splits > 1
    form = Inline() if partial else finish
    flag = "true" if partial else "false"
    kind = f"{blocks.dtype.name},{g.px},{plan.nb},{LANES}"
    codelet = f"poplin::MatMulBlock<{kind},{form.code},{flag}>"
    last = blocks.split_bounds[g.split[g.ptr[:-1]] + 1] == plan.problem.in_blocks
    tail = np.where(last, k - (plan.problem.in_blocks - 1) * LANES, LANES)
    state = {"tail": tail, "lo": form.lo, "hi": form.hi}
    order, tiles = blocks.order(g), blocks.tile_of(g)
    blocks.graph.add_vertices(cs, codelet, tiles, edges, state, order=order, name=blocks.name)


def blocked_constant(graph: Graph, data: npt.NDArray[Any], name: str, tiles: TileRange) -> Tensor:
    """An array [B, M, K] as a constant in the blocked layout; the view [B, M, K]."""
    batch, m, k = data.shape
    blocks = blocks_of(k)
    full = np.zeros((batch, m, blocks * LANES), data.dtype)
    full[..., :k] = data
    laid = full.reshape((batch, m, blocks, LANES)).transpose(0, 2, 1, 3)
    mapping = block_mapping(spread(batch * blocks, tiles), m * LANES)
    kind = dtype_of(data)
    base = graph.add_constant(kind, laid.shape, np.ascontiguousarray(laid), name, mapping=mapping)
    return view_of_blocked(base, blocks * LANES).slice(0, k, 1).dim_shuffle((0, 2, 1))


def _row_tables(
    graph: Graph,
    a: Operand,
    groups: list[Group],
    dtype: DType,
    prog: Sequence,
    name: str,
    tiles: TileRange,
) -> list[RowTable]:
    """The rows of a for every vertex group, from a copy unless whole in place."""
    if isinstance(a, np.ndarray):
        a = blocked_constant(graph, a, f"{name}/a", tiles)
    tables = _tables_of(graph, a, groups, dtype)
    if tables is not None and all(t.inside for t in tables):
        return tables
    x = a.dim_shuffle((0, 2, 1))
    copy = blocked_copy(graph, x, prog, f"{name}/a", tiles, piece_widths(a.shape[1]))
    tables = _tables_of(graph, copy.dim_shuffle((0, 2, 1)).reshape(a.shape), groups, dtype)
    assert tables is not None, "a blocked copy always has lanes"
    return tables


def _tables_of(graph: Graph, a: Tensor, groups: list[Group], dtype: DType) -> list[RowTable] | None:
    """The rows of a where they lie; None when its elements do not lie in lanes.

    A last block of fewer lanes is read whole: its other lanes are not used, but must exist.
    """
    batch, m, _ = a.shape
    lanes = lane_addresses(graph, a)
    if lanes is None:
        return None
    spatial = lanes.reshape((lanes.shape[0], batch, 1, 1, m))
    return [_plain_table(graph, dtype, spatial, g) for g in groups]


def _plain_table(graph: Graph, dtype: DType, lanes: Ints, g: Group) -> RowTable:
    window = Window(g.px, 0, g.px, 0)
    table = halo_table(graph, dtype, lanes, PLAIN, (1, 1), (1, 1), window, g.x0)
    assert table is not None
    return table


# ---------------------------------------------------------------------- the vector operand
def _vector_blocks(graph: Graph, b: Operand, prog: Sequence, name: str, tiles: TileRange) -> Ints:
    """Addresses of the 16 x 16 blocks of b [B, K, N], lanes along N: [N/16, B, K/16]."""
    if isinstance(b, np.ndarray):
        b = blocked_constant(graph, b, f"{name}/b", tiles)
    found = _whole_blocks(graph, b)
    if found is None:
        found = _transposed(graph, b, prog, name, tiles)
    if found is None:
        channels_first = b.dim_shuffle((0, 2, 1))
        copy = blocked_copy(graph, channels_first, prog, f"{name}/b", tiles)
        found = _whole_blocks(graph, copy.dim_shuffle((0, 2, 1)))
    assert found is not None
    return found


def _whole_blocks(graph: Graph, b: Tensor) -> Ints | None:
    """Block addresses when 16 rows of 16 lanes are one run of one tile each, else None."""
    lanes = lane_addresses(graph, b)
    if lanes is None:
        return None
    k = lanes.shape[2]
    begin = np.arange(0, k, LANES, dtype=np.int64)
    count = np.minimum(LANES, k - begin)
    first, last = lanes[..., begin], lanes[..., begin + count - 1]
    steps = np.diff(lanes, axis=-1) != LANES
    steps[..., begin[1:] - 1] = False
    if steps.any() or (last - first != (count - 1) * LANES).any():
        return None
    return first if one_piece(graph, first, count * LANES) else None


def _transposed(
    graph: Graph, b: Tensor, prog: Sequence, name: str, tiles: TileRange
) -> Ints | None:
    """Block addresses after transposing blocks whose lanes run along K, else None."""
    batch, _, n = b.shape
    if n % LANES:
        return None
    source = _whole_blocks(graph, b.dim_shuffle((0, 2, 1)))  # [K/16, B, N/16]
    if source is None:
        return None
    kb, nb = source.shape[0], source.shape[2]
    count = batch * nb * kb
    tile = spread(count, tiles)
    mapping = block_mapping(tile, LANES * LANES)
    out = graph.add_variable(
        b.dtype, (batch, nb, kb, LANES, LANES), f"{name}/transposed", mapping=mapping
    )
    begin = np.arange(count, dtype=np.int64) * LANES * LANES
    size = np.full(count, LANES * LANES, np.int64)
    start = source.transpose(1, 2, 0).ravel()
    runs = Edges.from_runs(np.arange(count + 1, dtype=np.int64), start, size, b.dtype)
    edges = {
        "out": Edges.flat(out.flatten(), begin, begin + LANES * LANES),
        "x": Edges.nested(np.arange(count + 1, dtype=np.int64), runs),
    }
    cs = graph.add_compute_set(f"{name}/transpose")
    codelet = f"poplin::TransposeBlock<{b.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, {}, name=cs.name)
    prog.add(Execute(cs))
    base = int(out.runs()[0][0])
    where = base + begin.reshape((batch, nb, kb))
    return np.ascontiguousarray(where.transpose(1, 0, 2))


def _block_edges(blocks: Blocks, g: Group, weights: Ints, k: int) -> Edges:
    """w: NB blocks for every input block of the vertex's split."""
    nb = blocks.plan.nb
    groups, batch, kb = blocks.plan.output_groups, weights.shape[1], weights.shape[2]
    # [groups, nb, B, K/16] -> [groups, B, K/16, nb]
    table = weights.reshape((groups, nb, batch, kb)).transpose(0, 2, 3, 1).ravel()
    size = np.full(kb, LANES * LANES, np.int64)
    size[-1] = (k - (kb - 1) * LANES) * LANES
    i = g.ptr[:-1]
    lo, hi = blocks.split_bounds[g.split[i]], blocks.split_bounds[g.split[i] + 1]
    count = (hi - lo) * nb
    at = ((g.og[i] * batch + g.row[i]) * kb + lo) * nb
    vertex, rank = ragged(count)
    start = table[at[vertex] + rank]
    length = size[lo[vertex] + rank // nb]
    runs = Edges.from_runs(np.arange(len(start) + 1), start, length, blocks.dtype)
    return Edges.nested(offsets_of(count), runs)
