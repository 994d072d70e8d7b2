"""popops by index: slices at device offsets, rows looked up and updated, rows of scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from poplar_py import popops
from poplar_py.poplar import program
from poplar_py.types import DType, bool_, i32, u8, u32
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES"]

TABLE_TYPES = (None, i32, u8, bool_)
"""Element types of tables: the lab's, integers, bytes, bools."""
JOIN = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def whole(lab: Lab, shape: tuple[int, ...], low: int = -3, high: int = 3) -> Array:
    """Small whole numbers of the lab's type, whose sums and products are exact."""
    return np.round(lab.values(shape, low - 0.4, high + 0.4)).astype(lab.dtype.numpy)


def some(lab: Lab, shape: tuple[int, ...], dtype: DType | None) -> Array:
    return lab.values(shape, 0 if dtype in (u8, u32) else -9, 9, dtype)


def index(lab: Lab, shape: tuple[int, ...], size: int) -> Array:
    """Positions below `size`, signed or not."""
    return lab.values(shape, 0, size - 1, i32 if lab.chance() else u32)


# ---------------------------------------------------------------------- at an offset
def _dynamic_slice(given: bool) -> Case:
    def case(lab: Lab) -> None:
        for dtype in TABLE_TYPES:
            x = some(lab, lab.shape(1, 4, 9), dtype)
            axis = lab.pick(0, x.ndim - 1)
            size = lab.pick(1, x.shape[axis])
            start = lab.pick(0, x.shape[axis] - size)
            t, at = lab.put(x), lab.put(np.array([start], (np.int32, np.uint32)[lab.pick(0, 1)]))
            want = x.take(range(start, start + size), axis)
            if given:
                out = lab.put(np.zeros_like(want))
                popops.dynamic_slice_with_output(lab.graph, out, t, at, axis, size, lab.prog)
            else:
                out = popops.dynamic_slice(lab.graph, t, at, axis, size, lab.prog)
            lab.expect(out, want, exact=True)

    return case


def _dynamic_update(lab: Lab) -> None:
    for dtype in TABLE_TYPES:
        x = some(lab, lab.shape(1, 4, 9), dtype)
        axis = lab.pick(0, x.ndim - 1)
        size = lab.pick(1, x.shape[axis])
        start = lab.pick(0, x.shape[axis] - size)
        part = some(lab, (*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype)
        want = np.moveaxis(x.copy(), axis, 0)
        want[start : start + size] = np.moveaxis(part, axis, 0)
        want = np.moveaxis(want, 0, axis)
        t, u, at = lab.put(x), lab.put(part), lab.put(np.array([start], np.int32))
        over = lab.chance()
        out = popops.dynamic_update(lab.graph, t, u, at, axis, lab.prog, in_place=over)
        lab.expect(out, want, exact=True)
        lab.expect(t, want if over else x, exact=True)


def _tables(lab: Lab) -> None:
    """A table written at an offset, and another one read there."""
    for dtype in (lab.dtype, i32):
        rows, width = lab.pick(2, 9), lab.pick(1, 40)
        x, part = some(lab, (rows, width), dtype), some(lab, (2, width), dtype)
        begin = lab.pick(0, rows - 2)
        at = lab.put(np.array([begin], np.int32))
        held = popops.slice_table(lab.graph, lab.put(x), lab.prog)
        table = popops.create_update_table(lab.graph, dtype, (rows, width), 2)
        popops.zero(lab.graph, table.tensor, lab.prog)
        popops.update_table(lab.graph, table, lab.put(part), at, lab.prog)
        want = np.zeros_like(x)
        want[begin : begin + 2] = part
        got = popops.dynamic_slice(lab.graph, held, at, 0, 2, lab.prog)
        lab.expect(held, x, exact=True)
        lab.expect(got, x[begin : begin + 2], exact=True)
        lab.expect(table.tensor, want, exact=True)


def _sliceable(lab: Lab) -> None:
    """A tensor made for slices holds what it is given, and is sliced right."""
    shape = lab.shape(1, 4, 8)
    dims = tuple(d for d in range(len(shape)) if lab.chance())
    made = popops.create_sliceable_tensor(lab.graph, lab.dtype, shape, dims)
    x = lab.values(shape)
    lab.put(x, like=made)
    axis = dims[0] if dims else 0
    start = lab.pick(0, shape[axis] - 1)
    at = lab.put(np.array([start], np.int32))
    got = popops.dynamic_slice(lab.graph, made, at, axis, 1, lab.prog)
    lab.expect(got, x.take([start], axis), exact=True)
    for tiles in _tiles_along(lab, made, dims):
        assert len(set(tiles)) == 1


def _tiles_along(lab: Lab, made: Any, dims: tuple[int, ...]) -> list[list[int]]:
    """The tiles that hold the elements along `dims`, for each place of the other dims."""
    tile = np.zeros(made.numel, np.int64)
    for number, intervals in enumerate(lab.graph.get_tile_mapping(made)):
        for begin, end in intervals:
            tile[begin:end] = number
    others = [d for d in range(len(made.shape)) if d not in dims]
    rows = int(np.prod([made.shape[d] for d in others], dtype=np.int64))
    grid = tile.reshape(made.shape).transpose(*others, *dims).reshape(rows, -1)
    return grid.tolist()


def _slice_tensor(lab: Lab) -> None:
    x = lab.values(lab.shape(1, 3, 8))
    t, axis = lab.put(x), lab.pick(0, x.ndim - 1)
    size, count = lab.pick(1, x.shape[axis]), lab.pick(1, 3)
    made = popops.create_slice_tensor(lab.graph, t, axis, size, count)
    starts = [lab.pick(0, x.shape[axis] - size) for _ in range(count)]
    for i, start in enumerate(starts):
        at = lab.put(np.array([start], np.int32))
        popops.dynamic_slice_with_output(lab.graph, made.index(i, 0), t, at, axis, size, lab.prog)
    want = np.stack([x.take(range(s, s + size), axis) for s in starts])
    lab.expect(made, want, exact=True)


# ---------------------------------------------------------------------- rows by index
def _gather(lab: Lab) -> None:
    for dtype in TABLE_TYPES:
        x = some(lab, lab.shape(1, 4, 9), dtype)
        axis = lab.pick(0, x.ndim - 1)
        where = index(lab, lab.odd_shape(0, 2), x.shape[axis])
        out = popops.gather(lab.graph, lab.put(x), lab.put(where), axis, lab.prog)
        lab.expect(out, np.take(x, where.astype(np.int64), axis), exact=True)


def _multi_slice(lab: Lab) -> None:
    for dtype in TABLE_TYPES:
        x = some(lab, (lab.pick(1, 70), lab.pick(1, 40)), dtype)
        where = index(lab, (lab.pick(0, 40),), len(x))
        out = popops.multi_slice(lab.graph, lab.put(x), lab.put(where), lab.prog)
        lab.expect(out, x[where.astype(np.int64)], exact=True)


def _table(constant: bool) -> Case:
    def case(lab: Lab) -> None:
        x = lab.values((lab.pick(1, 70), lab.pick(1, 40)))
        where = index(lab, (lab.pick(1, 40),), len(x))
        if constant:
            held = popops.constant_table(lab.graph, x, len(where))
        else:
            held, stored = popops.create_table(lab.graph, lab.dtype, x.shape, len(where))
            assert np.prod(stored) == x.size
            lab.put(x, like=held)
        out = popops.multi_slice(lab.graph, held, lab.put(where), lab.prog)
        lab.expect(out, x[where.astype(np.int64)], exact=True)
        lab.expect(held, x, exact=True)

    return case


def updated(x: Array, where: Array, updates: Array, operation: str, scale: float = 1) -> Array:
    out = x.astype(np.float64)
    for row, value in zip(where.tolist(), updates.astype(np.float64), strict=True):
        if row >= len(x):
            continue
        out[row] = JOIN[operation](out[row], scale * value) if operation in JOIN else value
    return out


def _indices(lab: Lab) -> None:
    x = lab.values((lab.pick(1, 70), lab.pick(1, 40)))
    where = lab.values((lab.pick(1, 40), 1), 0, len(x) - 1, u32)
    made = lab.put(where, like=popops.create_indices_tensor(lab.graph, [0], len(where)))
    out = popops.multi_slice(lab.graph, lab.put(x), made, lab.prog)
    lab.expect(out, x[where[:, 0].astype(np.int64)], exact=True)


def _host_rows(name: str) -> Case:
    """Rows go to a remote buffer in one order and come back in another."""

    def case(lab: Lab) -> None:
        rows, width, count = lab.pick(2, 6), lab.pick(1, 30), lab.pick(1, 4)
        buffer = lab.graph.add_remote_buffer("rows", lab.dtype, width, rows)
        x = lab.values((rows, width))
        for i in range(rows):
            at = lab.put(np.array([i], np.uint32))
            lab.prog.add(program.Copy(lab.put(x[i : i + 1]), buffer, at))
        where = lab.values((count,), 0, rows - 1, u32)
        if name == "create_host_sliceable_tensor":
            index, held = popops.create_host_sliceable_tensor(
                lab.graph, lab.dtype, (count, width), lab.chance()
            )
            lab.put(where, like=index)
        else:
            index = lab.put(where)
            held = popops.create_host_transferable_tensor(
                lab.graph, lab.dtype, (count, width), lab.chance()
            )
        lab.prog.add(program.Copy(buffer, held, index))
        lab.expect(held, x[where.astype(np.int64)], exact=True)

    return case


def _scatter(lab: Lab) -> None:
    for operation in ("none", *JOIN):
        x = whole(lab, (lab.pick(1, 12), lab.pick(1, 20)))
        where = index(lab, (lab.pick(0, 9),), len(x))
        updates = whole(lab, (len(where), x.shape[1]), -2, 2)
        t = lab.put(x)
        out = popops.scatter(
            lab.graph, t, lab.put(where), lab.put(updates), lab.prog, reduction=operation
        )
        lab.expect(out, updated(x, where, updates, operation), exact=True)
        lab.expect(t, x, exact=True)


def _multi_update(lab: Lab) -> None:
    for operation in ("none", *JOIN):
        x = whole(lab, (lab.pick(1, 12), lab.pick(1, 20)))
        where = index(lab, (lab.pick(0, 9),), len(x) + 1)  # some one beyond the end
        updates = whole(lab, (len(where), x.shape[1]), -2, 2)
        t = lab.put(x)
        popops.multi_update(
            lab.graph, t, lab.put(where), lab.put(updates), lab.prog, operation=operation
        )
        lab.expect(t, updated(x, where, updates, operation), exact=True)


def _multi_update_by(operation: str) -> Case:
    def case(lab: Lab) -> None:
        for _ in range(2):
            x = whole(lab, (lab.pick(1, 12), lab.pick(1, 20)))
            where = index(lab, (lab.pick(0, 9),), len(x) + 1)  # some one beyond the end
            updates = whole(lab, (len(where), x.shape[1]), -2, 2)
            scale = lab.pick(-2, 2) if operation == "add" else 1
            note: dict[str, Any] = {}
            if operation == "add":
                given = lab.put(np.array(scale, lab.dtype.numpy)) if lab.chance() else scale
                note = {"scale": given}
            t = lab.put(x)
            call = getattr(popops, f"multi_update_{operation}")
            call(lab.graph, t, lab.put(where), lab.put(updates), lab.prog, **note)
            lab.expect(t, updated(x, where, updates, operation, scale), exact=True)

    return case


# ---------------------------------------------------------------------- one scalar of a row
def _one_hot(lab: Lab) -> None:
    for dtype in (lab.dtype, i32, bool_):
        depth = lab.pick(1, 9)
        where = index(lab, lab.odd_shape(0, 3), depth)
        out = popops.one_hot(lab.graph, lab.put(where), depth, dtype, lab.prog)
        lab.expect(out, np.arange(depth) == where[..., None], exact=True)


def _encode_one_hot(lab: Lab) -> None:
    for on, off in ((1, 0), (lab.pick(1, 9), lab.pick(-9, 0))):
        where = index(lab, (lab.pick(0, 9),), lab.pick(1, 9))
        depth = lab.pick(1, 9)
        out = lab.put(lab.values((len(where), depth)))
        popops.encode_one_hot(lab.graph, lab.put(where), out, lab.prog, on=on, off=off)
        lab.expect(out, np.where(np.arange(depth) == where[:, None], on, off), exact=True)


def _labels(lab: Lab, rows: int, cols: int) -> tuple[Array, Array]:
    """Labels of every row, some masked, some beyond the end; and where they are inside."""
    dtype = i32 if lab.chance() else u32
    where = lab.values((rows,), 0, cols, i32)
    where[lab.rng.random(rows) < 0.2] = -1
    return where.astype(dtype.numpy), np.flatnonzero((where >= 0) & (where < cols))


def _select_scalar(lab: Lab) -> None:
    for dtype in (lab.dtype, i32):
        rows = lab.values((lab.pick(0, 30), lab.pick(1, 12)), dtype=dtype)
        where, inside = _labels(lab, *rows.shape)
        out = popops.select_scalar_from_rows(lab.graph, lab.put(rows), lab.put(where), lab.prog)
        want = np.where((where == rows.shape[1]) & dtype.is_float, np.nan, 0)
        want[inside] = rows[inside, where[inside].astype(np.int64)]
        lab.expect(out, want, exact=True)


def _update_scalar(lab: Lab) -> None:
    for dtype in (lab.dtype, i32):
        rows = lab.values((lab.pick(0, 30), lab.pick(1, 12)), dtype=dtype)
        where, inside = _labels(lab, *rows.shape)
        values = lab.values((len(rows),), dtype=dtype)
        less, over = lab.put(rows), lab.put(rows)
        w = lab.put(where)
        popops.update_scalar_in_rows(lab.graph, less, w, lab.prog)
        popops.update_scalar_in_rows(lab.graph, over, w, lab.prog, values=lab.put(values))
        at = (inside, where[inside].astype(np.int64))
        for tensor, new in ((less, rows[at] - 1), (over, values[inside])):
            want = rows.copy()
            want[at] = new
            want[where == rows.shape[1]] = np.nan if dtype.is_float else 0
            lab.expect(tensor, want, exact=True)


def _histogram(lab: Lab) -> None:
    x = np.round(lab.values(lab.odd_shape(), -3, 3) * 2) / 2
    levels = np.unique(np.round(lab.values((lab.pick(1, 6),), -2, 2) * 2) / 2)
    levels = levels.astype(lab.dtype.numpy)
    out = popops.histogram(lab.graph, lab.put(x.astype(lab.dtype.numpy)), lab.put(levels), lab.prog)
    lab.expect(out, np.histogram(x, [-np.inf, *levels, np.inf])[0], exact=True)


def _sequence_slice(lab: Lab) -> None:
    """Later sequences win over earlier ones; what falls outside the target is dropped."""
    for clear in (False, True):
        rest = lab.shape(0, 2, 5)
        source, target = (lab.values((lab.pick(5, 9), *rest)) for _ in range(2))
        count = lab.pick(0, 4)
        lengths = lab.values((count,), 0, 4, i32)
        begin = lab.values((count,), 0, 1, i32)
        to = lab.values((count,), 0, len(target) - 1, u32)
        t = lab.put(target)
        numbers = [lab.put(a) for a in (lengths, begin, to)]
        popops.sequence_slice(lab.graph, lab.put(source), t, *numbers, clear, lab.prog)
        want = np.zeros_like(target) if clear else target.copy()
        for n, a, o in zip(lengths.tolist(), begin.tolist(), to.tolist(), strict=True):
            fits = min(n, len(target) - o)
            want[o : o + fits] = source[a : a + fits]
        lab.expect(t, want, exact=True)


CASES: dict[str, Case] = {
    "dynamic_slice": _dynamic_slice(False),
    "dynamic_slice_with_output": _dynamic_slice(True),
    "dynamic_update": _dynamic_update,
    "slice_table": _tables,
    "create_update_table": _tables,
    "update_table": _tables,
    "create_sliceable_tensor": _sliceable,
    "create_slice_tensor": _slice_tensor,
    "gather": _gather,
    "multi_slice": _multi_slice,
    "create_host_sliceable_tensor": _host_rows("create_host_sliceable_tensor"),
    "create_host_transferable_tensor": _host_rows("create_host_transferable_tensor"),
    "create_indices_tensor": _indices,
    "create_table": _table(False),
    "constant_table": _table(True),
    "scatter": _scatter,
    "multi_update": _multi_update,
    "multi_update_add": _multi_update_by("add"),
    "multi_update_max": _multi_update_by("max"),
    "multi_update_mul": _multi_update_by("mul"),
    "one_hot": _one_hot,
    "encode_one_hot": _encode_one_hot,
    "select_scalar_from_rows": _select_scalar,
    "update_scalar_in_rows": _update_scalar,
    "histogram": _histogram,
    "sequence_slice": _sequence_slice,
}
