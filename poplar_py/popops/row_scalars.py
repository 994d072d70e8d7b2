"""One element of every row by a device index, counts between levels, and copied sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import program
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.faults import fail
from poplar_py.poplar.program_data import check_writable
from poplar_py.popops.offsets import as_offsets
from poplar_py.popops.overlap import apart
from poplar_py.popops.reduction import reduce
from poplar_py.poputil.layout import fresh
from poplar_py.poputil.place import interval_mapping, place_near, spread_tiles
from poplar_py.types import u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor

__all__ = [
    "MASKED_LABEL_CODE",
    "histogram",
    "select_scalar_from_rows",
    "sequence_slice",
    "update_scalar_in_rows",
]

Ints = npt.NDArray[np.int64]
MASKED_LABEL_CODE = 0xFFFFFFFF
"""The label of a row that does not count, as u32; -1 as i32."""
SHARE = 4096
"""Most elements of a vertex that counts."""


def _row_shares(graph: Graph, rows: int) -> tuple[Ints, Ints]:
    """Rows [begin, end) of every vertex: an even share of all workers."""
    share = max(1, -(-rows // (graph.num_tiles * graph.target.num_workers)))
    begin = np.arange(0, rows, share, dtype=np.int64)
    return begin, np.minimum(begin + share, rows)


def _check_rows(rows: Tensor, indices: Tensor) -> None:
    if rows.rank != 2 or indices.numel != rows.shape[0]:
        fail(ShapeError, f"{indices.numel} indices for rows {list(rows.shape)}")


def select_scalar_from_rows(
    graph: Graph, rows: Tensor, indices: Tensor, prog: program.Sequence, name: str = "select_scalar"
) -> Tensor:
    """rows[i, indices[i]] of every row: [n].

    An index of MASKED_LABEL_CODE (-1) gives 0, another one outside the row NaN, of integers 0.
    Raises ShapeError.
    """
    _check_rows(rows, indices)
    index, (n, cols) = as_offsets(graph, indices, prog, name), rows.shape
    if n == 0:
        return fresh(graph, rows.dtype, (0,), name)
    begin, end = _row_shares(graph, n)
    tile = place_near(graph, rows.flatten(), begin * cols)
    mapping = interval_mapping(end - begin, tile)
    out = graph.add_variable(rows.dtype, (n,), name, mapping=mapping)
    cs = graph.add_compute_set(name)
    edges = {
        "out": Edges.flat(out, begin, end),
        "x": Edges.flat(rows.flatten(), begin * cols, end * cols),
        "index": Edges.flat(index, begin, end),
    }
    codelet = f"popops::SelectFromRow<{rows.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, {"cols": cols}, name=name)
    prog.add(program.Execute(cs))
    return out


def update_scalar_in_rows(
    graph: Graph,
    rows: Tensor,
    indices: Tensor,
    prog: program.Sequence,
    name: str = "update_scalar",
    *,
    values: Tensor | None = None,
) -> None:
    """rows[i, indices[i]] -= 1, the gradient of a cross entropy; or, with `values`, = values[i].

    An index of MASKED_LABEL_CODE (-1) changes nothing; another one outside the row makes the whole
    row NaN, of integers 0. Raises ShapeError, AliasedWrite.
    """
    _check_rows(rows, indices)
    check_writable(rows, "the target")
    index, (n, cols) = as_offsets(graph, indices, prog, name), rows.shape
    if rows.numel == 0:
        return
    begin, end = _row_shares(graph, n)
    tile = place_near(graph, rows.flatten(), begin * cols)
    edges = {"x": Edges.flat(rows.flatten(), begin * cols, end * cols)}
    kind = "DecrementInRow"
    if values is not None:
        kind = "UpdateInRow"
        (values,) = apart(graph, [values], rows, prog, name)
        edges["value"] = Edges.flat(values.flatten(), begin, end)
    (index,) = apart(graph, [index], rows, prog, name)
    edges["index"] = Edges.flat(index, begin, end)
    cs = graph.add_compute_set(name)
    codelet = f"popops::{kind}<{rows.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, {"cols": cols}, name=name)
    prog.add(program.Execute(cs))


def histogram(
    graph: Graph, x: Tensor, levels: Tensor, prog: program.Sequence, name: str = "histogram"
) -> Tensor:
    """u32 counts of x below levels[0], between each two levels, and from the last level on.

    `levels` ascend. Every vertex counts its share of x; the counts are then added.
    """
    flat, bins = x.flatten(), levels.numel + 1
    workers = graph.num_tiles * graph.target.num_workers
    share = max(1, min(SHARE, max(64, -(-flat.numel // workers))))
    begin = np.arange(0, max(flat.numel, 1), share, dtype=np.int64)
    end = np.minimum(begin + share, flat.numel)
    tile = place_near(graph, flat, begin) if flat.numel else spread_tiles(graph, 1)
    count = len(begin)
    mapping = interval_mapping(np.full(count, bins, np.int64), tile)
    partial = graph.add_variable(u32, (count, bins), f"{name}/partial", mapping=mapping)
    at = np.arange(count, dtype=np.int64)
    none = np.zeros(count, np.int64)
    edges = {
        "out": Edges.flat(partial.flatten(), at * bins, (at + 1) * bins),
        "x": Edges.flat(flat, begin, end),
        "levels": Edges.flat(levels.flatten(), none, none + levels.numel),
    }
    cs = graph.add_compute_set(name)
    graph.add_vertices(cs, f"popops::Histogram<{x.dtype.name}>", tile, edges, name=name)
    prog.add(program.Execute(cs))
    return partial.flatten() if count == 1 else reduce(graph, partial, [0], "sum", prog, name)


def sequence_slice(
    graph: Graph,
    source: Tensor,
    out: Tensor,
    lengths: Tensor,
    source_offsets: Tensor,
    out_offsets: Tensor,
    zero_unused: bool,
    prog: program.Sequence,
    name: str = "sequence_slice",
) -> None:
    """out[o[s] : o[s] + n[s]] = source[a[s] : a[s] + n[s]] for every sequence s, in order.

    `source` and `out` have equal dims after the first; the lengths and offsets are integers [s].
    `zero_unused` sets the other rows of `out` to 0. Parts that fall outside `out` are dropped; rows
    outside `source` end the run with a TileException. Raises ShapeError.
    """
    if source.shape[1:] != out.shape[1:] or source.dtype is not out.dtype:
        fail(ShapeError, f"sequences of {source!r} into {out!r}")
    rows, cols = out.shape[0], out.numel // max(out.shape[0], 1)
    if out.numel == 0:
        return
    (source,) = apart(graph, [source], out, prog, name, by_element=False)
    begin, end = _row_shares(graph, rows)
    tile = place_near(graph, out.flatten(), begin * cols)
    numbers = {"rows": lengths, "source": source_offsets, "target": out_offsets}
    none = np.zeros(len(begin), np.int64)
    edges = {
        "out": Edges.flat(out.flatten(), begin * cols, end * cols),
        "x": Edges.flat(source.flatten(), none, none + source.numel),
    }
    for field, t in numbers.items():
        edges[field] = Edges.flat(as_offsets(graph, t, prog, name), none, none + t.numel)
    cs = graph.add_compute_set(name)
    state = {"cols": cols, "base": begin.astype(np.int32), "zero": bool(zero_unused)}
    codelet = f"popops::SequenceCopy<{out.dtype.name}>"
    graph.add_vertices(cs, codelet, tile, edges, state, name=name)
    prog.add(program.Execute(cs))
