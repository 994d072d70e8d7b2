"""popops on whole tensors: reductions, sorts, fills, rearrangements, checks and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poplar_py import popops
from poplar_py.poplar import Tensor, program
from poplar_py.types import DType, bool_, f16, f32, i32, u8, u32
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.popops_index_cases import some, whole

__all__ = ["CASES"]

Axes = tuple[int, ...]
REDUCE: dict[str, Callable[[Array, Axes], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "prod": lambda x, d: x.prod(d),
    "max": lambda x, d: x.max(d, initial=-np.inf),
    "min": lambda x, d: x.min(d, initial=np.inf),
    "square_sum": lambda x, d: (x * x).sum(d),
    "mean": lambda x, d: x.sum(d) / max(1, np.prod([x.shape[i] for i in d])),
    "log_add": lambda x, d: _log_add(x, d),
}
"""Meaning of every reduction of numbers, in f64."""
POPLIBS = {
    "ADD": "sum", "MUL": "prod", "MAX": "max", "MIN": "min", "SQUARE_ADD": "square_sum",
    "LOG_ADD": "log_add", "LOGICAL_AND": "and", "LOGICAL_OR": "or",
}  # fmt: skip


def _log_add(x: Array, dims: Axes) -> Array:
    for d in sorted(dims, reverse=True):
        x = np.logaddexp.reduce(x, axis=d, initial=-np.inf)
    return np.asarray(x)


def axes(lab: Lab, rank: int) -> Axes:
    return tuple(d for d in range(rank) if lab.chance())


def addends(lab: Lab, kind: str, shape: tuple[int, ...]) -> Array:
    """Numbers whose reduction is exact: small whole ones, and few that are not 1 for products; some
    logarithms of nothing."""
    if kind == "log_add":
        return np.where(lab.rng.random(shape) < 0.2, -np.inf, lab.values(shape, -9, 9)).astype(
            lab.dtype.numpy
        )
    if kind == "prod":
        return np.where(lab.rng.random(shape) < 0.9, 1, whole(lab, shape, -2, 2)).astype(
            lab.dtype.numpy
        )
    return whole(lab, shape)


def _wide_shape(lab: Lab) -> tuple[int, ...]:
    """Now and then a shape long enough for the work to be cut along the reduced dim."""
    return lab.shape(1, 2, 120) if lab.pick(0, 2) == 0 else lab.odd_shape()


def _compare(lab: Lab, kind: str, out: Tensor, want: Array) -> None:
    exact = kind not in ("mean", "log_add")
    lab.expect(out, want, exact=exact)


def _reduce(lab: Lab) -> None:
    for kind, meaning in REDUCE.items():
        x = addends(lab, kind, _wide_shape(lab))
        dims = axes(lab, x.ndim)
        out = popops.reduce(lab.graph, lab.put(x), dims, kind, lab.prog)
        _compare(lab, kind, out, np.asarray(meaning(x.astype(np.float64), dims)))
    x = lab.values(lab.odd_shape(), dtype=bool_)
    dims = axes(lab, x.ndim)
    t = lab.put(x)
    lab.expect(popops.reduce(lab.graph, t, dims, "and", lab.prog), x.all(dims))
    lab.expect(popops.reduce(lab.graph, t, dims, "or", lab.prog), x.any(dims))
    _reduce_integers(lab)


def _reduce_integers(lab: Lab) -> None:
    """i32 as f32 does, without the mean; halves summed to f32."""
    for kind in ("sum", "prod", "max", "min"):
        x = lab.values(lab.shape(1, 3, 9), -2, 2, i32)
        dims = axes(lab, x.ndim)
        out = popops.reduce(lab.graph, lab.put(x), dims, kind, lab.prog)
        lab.expect(out, REDUCE[kind](x.astype(np.float64), dims))
    x = whole(lab, lab.shape(1, 3, 30), -60, 60)
    dims = axes(lab, x.ndim)
    out = popops.reduce(lab.graph, lab.put(x), dims, "ADD", lab.prog, out_dtype=f32)
    assert out.dtype is f32
    lab.expect(out, x.astype(np.float64).sum(dims), exact=True)


def _reduce_many(lab: Lab) -> None:
    given: list[tuple[Tensor, Axes, str]] = []
    wanted: list[Array] = []
    for name, kind in POPLIBS.items():
        if kind in ("and", "or"):
            x: Array = lab.values(lab.odd_shape(), dtype=bool_)
            f: Any = {"and": np.all, "or": np.any}[kind]
        else:
            x, f = addends(lab, kind, lab.odd_shape()), REDUCE[kind]
        dims = axes(lab, x.ndim)
        given.append((lab.put(x), dims, name))
        wanted.append(np.asarray(f(x if x.dtype == bool else x.astype(np.float64), dims)))
    outs = popops.reduce_many(lab.graph, given, lab.prog)
    for (_, _, name), out, want in zip(given, outs, wanted, strict=True):
        _compare(lab, POPLIBS[name], out, want)


def _reduce_with_output(lab: Lab) -> None:
    for kind in ("sum", "square_sum", "max", "log_add"):
        x = addends(lab, kind, lab.shape(1, 3, 9))
        dims = axes(lab, x.ndim)
        want = np.asarray(REDUCE[kind](x.astype(np.float64), dims))
        note: dict[str, Any] = {}
        if kind != "max" and lab.chance():
            scale = lab.pick(-4, 4) / 2
            want = want + scale if kind == "log_add" else want * scale
            note["scale"] = lab.put(np.array(scale, np.float32)) if lab.chance() else scale
        held = whole(lab, want.shape)
        if kind != "max" and lab.chance():
            want = np.logaddexp(held, want) if kind == "log_add" else held + want
            note["update"] = True
        out = lab.put(held)
        popops.reduce_with_output(lab.graph, lab.put(x), out, dims, kind, lab.prog, **note)
        _compare(lab, kind, out, want)


# ---------------------------------------------------------------------- order
def _distinct(lab: Lab, shape: tuple[int, ...]) -> Array:
    """Values that repeat nowhere."""
    size = int(np.prod(shape))
    return lab.rng.permutation(size).reshape(shape).astype(lab.dtype.numpy) - 30


def _repeated(lab: Lab, shape: tuple[int, ...]) -> Array:
    """Values that repeat, so that ties are told apart by position."""
    return whole(lab, shape, -2, 2)


def _picked(x: Array, k: int, axis: int, largest: bool) -> Array:
    """Positions of the k best, equal ones in their order."""
    key = -x.astype(np.float64) if largest else x.astype(np.float64)
    return np.argsort(key, axis, kind="stable").take(range(k), axis)


def _top_k(name: str) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32):
            largest = lab.chance()
            x = _repeated(lab, lab.shape(1, 3, 9)).astype(dtype.numpy)
            axis = lab.pick(-x.ndim, x.ndim - 1)
            k = lab.pick(0, x.shape[axis])
            where = _picked(x, k, axis, largest)
            call = getattr(popops, name)
            if name == "top_k_key_value":
                v = some(lab, x.shape, i32)
                got = call(lab.graph, lab.put(x), lab.put(v), k, axis, largest, lab.prog)
                second = np.take_along_axis(v, where, axis)
            else:
                got = call(lab.graph, lab.put(x), k, axis, largest, lab.prog)
                second = where
            lab.expect(got[0], np.take_along_axis(x, where, axis), exact=True)
            lab.expect(got[1], second)

    return case


def _sort(lab: Lab) -> None:
    for dtype in (lab.dtype, i32):
        x = _repeated(lab, lab.shape(1, 3, 9)).astype(dtype.numpy)
        axis = lab.pick(0, x.ndim - 1)
        t, over = lab.put(x), lab.put(x)
        values, where = popops.sort(lab.graph, t, axis, lab.prog)
        popops.sort_in_place(lab.graph, over, axis, lab.prog)
        order = np.argsort(x, axis, kind="stable")
        lab.expect(values, np.sort(x, axis), exact=True)
        lab.expect(where, order)
        lab.expect(over, np.sort(x, axis), exact=True)
        lab.expect(t, x, exact=True)


def _sort_key_value(lab: Lab) -> None:
    keys = _repeated(lab, lab.shape(1, 3, 9))
    axis = lab.pick(0, keys.ndim - 1)
    values = some(lab, keys.shape, (i32, u8, None)[lab.pick(0, 2)])
    k, v, k2, v2 = (lab.put(a) for a in (keys, values, keys, values))
    moved = popops.sort_key_value(lab.graph, k, v, axis, lab.prog)
    popops.sort_key_value_in_place(lab.graph, k2, v2, axis, lab.prog)
    order = np.argsort(keys, axis, kind="stable")
    beside = np.take_along_axis(values, order, axis)
    lab.expect(moved, beside, exact=True)
    lab.expect(k2, np.take_along_axis(keys, order, axis), exact=True)
    lab.expect(v2, beside, exact=True)
    lab.expect(v, values, exact=True)


def _arg(largest: bool) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32):
            x = _repeated(lab, lab.shape(1, 3, 9)).astype(dtype.numpy)
            axis = lab.pick(-x.ndim, x.ndim - 1)
            call = popops.arg_max if largest else popops.arg_min
            f = np.argmax if largest else np.argmin
            t = lab.put(x)
            lab.expect(call(lab.graph, t, axis, lab.prog), f(x, axis))
            last = x.shape[axis] - 1 - f(np.flip(x, axis), axis)
            lab.expect(call(lab.graph, t, axis, lab.prog, last=True), last)

    return case


def _cumulative(lab: Lab) -> None:
    for kind in ("sum", "prod"):
        x = addends(lab, kind, lab.shape(1, 3, 9))
        axis = lab.pick(-x.ndim, x.ndim - 1)
        exclusive, reverse = lab.chance(), lab.chance()
        out = popops.cumulative(
            lab.graph, lab.put(x), axis, kind, lab.prog, exclusive=exclusive, reverse=reverse
        )
        rows = np.moveaxis(x.astype(np.float64), axis, 0)
        rows = rows[::-1] if reverse else rows
        if exclusive:
            start = np.full_like(rows[:1], kind == "prod")
            rows = np.concatenate([start, rows[:-1]])
        want = (np.cumsum if kind == "sum" else np.cumprod)(rows, 0)
        want = want[::-1] if reverse else want
        lab.expect(out, np.moveaxis(want, 0, axis), exact=True)


# ---------------------------------------------------------------------- contents, places
def _fill(name: str) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32, u8, bool_):
            shape = lab.odd_shape()
            value = 0 if name == "zero" else lab.pick(0, 1) if dtype is bool_ else lab.pick(0, 9)
            if name == "fill_constant":
                out = popops.fill_constant(lab.graph, dtype, shape, value, lab.prog)
            else:
                out = lab.put(lab.values(shape, 0, 9, dtype))
                rest = () if name == "zero" else (value,)
                getattr(popops, name)(lab.graph, out, *rest, lab.prog)
            lab.expect(out, np.full(shape, value), exact=True)

    return case


def _iota(lab: Lab) -> None:
    for dtype in (lab.dtype, i32, u32):
        n, start = lab.pick(0, 40), lab.pick(0, 9)
        out = popops.iota(lab.graph, n, dtype, start)
        lab.expect(out, np.arange(start, start + n), exact=True)


def _pad(lab: Lab) -> None:
    for dtype in (lab.dtype, i32, bool_):
        x = lab.values(lab.odd_shape(), dtype=dtype)
        before, after = ([lab.pick(0, 2) for _ in x.shape] for _ in range(2))
        value = lab.pick(0, 1)
        out = popops.pad(lab.graph, lab.put(x), before, after, value, lab.prog)
        pairs = list(zip(before, after, strict=True))
        want = np.pad(x, pairs, constant_values=value) if pairs else x
        lab.expect(out, want, exact=True)


def _partial_transpose(lab: Lab) -> None:
    for dtype in (lab.dtype, u8):
        x = some(lab, lab.shape(2, 4, 9), dtype)
        out = popops.partial_transpose(lab.graph, lab.put(x), lab.prog)
        lab.expect(out, np.swapaxes(x, -1, -2), exact=True)


def _normalise_image(lab: Lab) -> None:
    image = lab.values((*lab.shape(2, 3, 6), 3), 0, 255, u8)
    offsets, scales = lab.values((3,), 0.1, 1), lab.values((3,), 0.5, 2)
    out = popops.normalise_image(
        lab.graph, lab.put(image), 1 / 256, lab.put(offsets), lab.put(scales), lab.prog
    )
    want = (image / 256 - offsets.astype(np.float64)) * scales.astype(np.float64)
    lab.expect(out, np.pad(want, [(0, 0)] * (image.ndim - 1) + [(0, 1)]))


# ---------------------------------------------------------------------- checks, loops
def _all_true(lab: Lab) -> None:
    for odds in (0.5, 0, 1):
        x = lab.rng.random(lab.odd_shape()) < odds
        lab.expect(popops.all_true(lab.graph, lab.put(x), lab.prog), np.asarray(x.all()))


def _has(name: str, found: Callable[[Array], Array]) -> Case:
    def case(lab: Lab) -> None:
        for bad in (None, np.nan, np.inf, -np.inf):
            x = lab.values(lab.odd_shape())
            if bad is not None and x.size:
                x.flat[lab.pick(0, x.size - 1)] = bad
            out = getattr(popops, name)(lab.graph, lab.put(x), lab.prog)
            lab.expect(out, np.asarray(found(x).any()))

    return case


def _check_accuracy(lab: Lab) -> None:
    to: DType = f16 if lab.dtype is f32 else f32
    for value in (0.5, 0.1, 1e-3, 3e4, 1e6 if lab.dtype is f32 else 6e4):
        x = np.array(value).astype(lab.dtype.numpy)
        for tolerance in (1e-6, 1e-2):
            with np.errstate(over="ignore"):
                back = x.astype(to.numpy).astype(np.float64)
            want = abs(back - float(x)) <= tolerance * float(x)
            t = lab.put(x.reshape((1,) * lab.pick(0, 2)))
            out = popops.check_accuracy_when_cast(lab.graph, t, to, tolerance, lab.prog)
            lab.expect(out, np.asarray(want))


def _loop(name: str) -> Case:
    """The sum of the counter, a tensor that changes its sign, and its last values in a ring."""

    def case(lab: Lab) -> None:
        begin, step = (0, 1) if name == "counted_loop" else (lab.pick(-3, 3), lab.pick(1, 3))
        steps = range(begin, begin + lab.pick(0, 9), step)
        total, x = lab.put(np.zeros(1, np.int32)), lab.values((3, 4))
        t = lab.put(x)
        ring = popops.CircBuf(lab.graph, lab.dtype, 3, x.shape)

        def body(i: Tensor) -> program.Program:
            inner = program.Sequence()
            popops.add_in_place(lab.graph, total, i, inner)
            ring.add(t, inner)
            popops.neg_in_place(lab.graph, t, inner)
            return inner

        if name == "counted_loop":
            loop = popops.counted_loop(lab.graph, len(steps), body)
        else:
            loop = popops.counted_for_loop(lab.graph, begin, steps.stop, step, body)
        lab.prog.add(loop)
        lab.expect(total, np.array([sum(steps)]))
        lab.expect(t, -x if len(steps) % 2 else x, exact=True)
        for k in range(3):
            round_ = len(steps) - 1 - k
            want = 0 * x if round_ < 0 else -x if round_ % 2 else x
            lab.expect(ring.prev(k, lab.prog), want, exact=True)

    return case


CASES: dict[str, Case] = {
    "reduce": _reduce,
    "reduce_many": _reduce_many,
    "reduce_with_output": _reduce_with_output,
    **{n: _top_k(n) for n in ("top_k", "top_k_with_permutation", "top_k_key_value")},
    "sort": _sort,
    "sort_in_place": _sort,
    "sort_key_value": _sort_key_value,
    "sort_key_value_in_place": _sort_key_value,
    "arg_max": _arg(True),
    "arg_min": _arg(False),
    "cumulative": _cumulative,
    **{name: _fill(name) for name in ("fill", "fill_constant", "zero")},
    "iota": _iota,
    "pad": _pad,
    "partial_transpose": _partial_transpose,
    "normalise_image": _normalise_image,
    "all_true": _all_true,
    "has_nan": _has("has_nan", np.isnan),
    "has_nan_or_inf": _has("has_nan_or_inf", lambda x: ~np.isfinite(x)),
    "check_accuracy_when_cast": _check_accuracy,
    "counted_loop": _loop("counted_loop"),
    "counted_for_loop": _loop("counted_for_loop"),
}
