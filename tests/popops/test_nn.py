"""popnn and poprand: norms, pooling, recurrences, random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from popops_harness import Program, check, compare, normal

from poplar_py import popnn, popops, poprand
from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Tensor, program
from poplar_py.poputil.blocked import add_blocked
from poplar_py.types import DTYPES, f16, f32, f64


def softmax(v: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(v.astype(np.float64) - v.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("n", [5, 16, 50, 64])
def test_softmax(n: int, axis: int) -> None:
    shape = [3, 4, 5]
    shape[axis] = n
    array = normal(*shape) * 8
    check(
        lambda p, x: popnn.softmax(p.graph, x, axis, p.prog),
        lambda v: softmax(v, axis),
        array,
        tolerance=2e-6,
    )
    check(
        lambda p, x: popnn.log_softmax(p.graph, x, axis, p.prog),
        lambda v: np.log(softmax(v, axis)),
        array,
        tolerance=2e-6,
    )


@pytest.mark.parametrize("dtype", [f16, f64], ids=str)
def test_softmax_types(dtype: object) -> None:
    dt = DTYPES[str(dtype)]
    check(
        lambda p, x: popnn.softmax(p.graph, x, 1, p.prog),
        lambda v: softmax(v, 1),
        normal(9, 40, dtype=dt),
        tolerance=1e-3 if dt.size == 2 else 1e-12,
    )


def test_long_rows() -> None:
    array = normal(2, 30000)
    check(
        lambda p, x: popnn.softmax(p.graph, x, 1, p.prog),
        lambda v: softmax(v, 1),
        array,
        tolerance=1e-5,
        tiles=64,
    )
    check(
        lambda p, x: popnn.layer_norm(p.graph, x, None, None, 1, 1e-5, p.prog),
        lambda v: (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5),
        array,
        tolerance=1e-5,
        tiles=64,
    )


def _in_blocks(p: Program, array: np.ndarray) -> Tensor:
    """[rows, n] stored as [n / 16][rows][16]."""
    rows, n = array.shape
    var = p.graph.add_variable(f32, (n // 16, rows, 16), "blocks", mapping="linear")
    view = var.dim_shuffle((1, 0, 2)).reshape((rows, n))
    return p.place(view, array)


@pytest.mark.parametrize("blocked", [False, True])
def test_layer_norm(blocked: bool) -> None:
    array, scale, bias = normal(24, 64), normal(64, seed=1), normal(64, seed=2)
    p = Program()
    x = _in_blocks(p, array) if blocked else p.input(array)
    out = popnn.layer_norm(p.graph, x, p.input(scale), p.input(bias), 1, 1e-5, p.prog)
    wide = array.astype(np.float64)
    mean, var = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    compare(p.run(out)[0], (wide - mean) / np.sqrt(var + 1e-5) * scale + bias, 2e-6)


@pytest.mark.parametrize("log", [False, True])
def test_blocked_rows_give_the_bits_of_plain_rows(log: bool) -> None:
    array = normal(40, 96)
    p, q = Program(), Program()
    out = popnn.softmax(p.graph, _in_blocks(p, array), 1, p.prog, log=log)
    plain = popnn.softmax(q.graph, q.input(array), 1, q.prog, log=log)
    assert any("Blocks" in g.codelet.name for cs in p.graph.compute_sets for g in cs.groups)
    np.testing.assert_array_equal(p.run(out)[0], q.run(plain)[0])


def windows(
    v: np.ndarray, params: popnn.PoolParams, fill: float
) -> tuple[np.ndarray, tuple[int, ...]]:
    """All windows of v [N, C, *in]: [taps, N, C, *out]."""
    rank = len(params.kernel)
    pads = [(0, 0), (0, 0), *zip(params.pads[:rank], params.pads[rank:], strict=True)]
    padded = np.pad(v.astype(np.float64), pads, constant_values=fill)
    outs = params.out_sizes(v.shape[2:])
    taps = []
    for tap in np.ndindex(*params.kernel):
        cut = [slice(None), slice(None)]
        for d in range(rank):
            first = tap[d] * params.dilations[d]
            cut.append(
                slice(first, first + (outs[d] - 1) * params.strides[d] + 1, params.strides[d])
            )
        taps.append(padded[tuple(cut)])
    return np.stack(taps), outs


PARAMS = [
    ((11, 13), popnn.PoolParams((3, 2), (2, 1), (1, 0, 1, 1), (1, 2))),
    ((12, 12), popnn.PoolParams((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))),
    ((12, 37), popnn.PoolParams((3, 3), (3, 3), (1, 1, 1, 1), (1, 1))),
    ((40,), popnn.PoolParams((3,), (2,), (1, 0), (1,))),
    ((5, 6, 7), popnn.PoolParams((2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 1), (1, 1, 1))),
    ((6, 7), popnn.PoolParams((6, 7), (1, 1), (0, 0, 0, 0), (1, 1))),
]


def _activation(p: Program, array: np.ndarray, blocked: bool) -> Tensor:
    if not blocked:
        return p.input(array)
    blocks, view = add_blocked(p.graph, f32, array.shape, "blocks")
    p.graph.set_tile_mapping(blocks, 2)
    popops.zero(p.graph, blocks, p.prog)
    p.prog.add(program.Copy(p.input(array), view))
    return view


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize(("size", "params"), PARAMS, ids=str)
def test_pooling(size: tuple[int, ...], params: popnn.PoolParams, blocked: bool) -> None:
    array = normal(2, 20 if blocked else 3, *size)
    p = Program()
    x = _activation(p, array, blocked)
    top, _ = popnn.max_pool(p.graph, x, params, p.prog)
    mean = popnn.avg_pool(p.graph, x, params, p.prog)
    mean_all = popnn.avg_pool(p.graph, x, params, p.prog, count_include_pad=True)
    got = p.run(top, mean, mean_all)
    taps, _ = windows(array, params, 0.0)
    ones, _ = windows(np.ones_like(array), params, 0.0)
    compare(got[0], windows(array, params, -np.inf)[0].max(0), 1e-12)
    compare(got[1], taps.sum(0) / ones.sum(0), 1e-5)
    compare(got[2], taps.mean(0), 1e-5)


@pytest.mark.parametrize(
    ("strides", "pads"), [((2, 2), (1, 1, 0, 0)), ((1, 1), (1, 1, 1, 1)), ((2, 2), (0, 0, 1, 1))]
)
def test_pooling_reads_pieces_in_place(strides: tuple[int, ...], pads: tuple[int, ...]) -> None:
    params = popnn.PoolParams((3, 3), strides, pads, (1, 1))
    array = normal(1, 24, 12, 28)
    p = Program()
    blocks, view = add_blocked(p.graph, f32, array.shape, "blocks")
    flat = blocks.flatten()
    for i in range(0, flat.numel, 14 * 16):
        p.graph.set_tile_mapping(flat.slice(i, i + 14 * 16), (i // 224) % 24)
    popops.zero(p.graph, blocks, p.prog)
    p.prog.add(program.Copy(p.input(array), view))
    out, _ = popnn.max_pool(p.graph, view, params, p.prog)
    group = p.graph.compute_sets[-1].groups[0]
    assert "MaxPoolBody" in group.codelet.name
    compare(p.run(out, oracle=True)[0], windows(array, params, -np.inf)[0].max(0), 1e-12)


def test_pooling_positions() -> None:
    params = popnn.PoolParams((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
    array = normal(2, 3, 9, 10)
    place = np.broadcast_to(np.arange(90).reshape(9, 10), array.shape)
    taps, _ = windows(array, params, -np.inf)
    places, _ = windows(place, params, -1)
    best = taps.argmax(0)[None]
    p = Program()
    out, where = popnn.max_pool(p.graph, p.input(array), params, p.prog, indices=True)
    assert where is not None
    got = p.run(out, where)
    compare(got[0], taps.max(0), 1e-12)
    compare(got[1], np.take_along_axis(places, best, 0)[0].astype(np.int32), 0.0)


def sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_lstm(steps: int, reverse: bool) -> None:
    x, w, r, b = normal(steps, 3, 8), normal(24, 8), normal(24, 6), normal(24)
    h0, c0 = normal(3, 6), normal(3, 6, seed=1)
    p = Program()
    tensors = [p.input(v) for v in (x, w, r, b, h0, c0)]
    outs = popnn.lstm(p.graph, *tensors, p.prog, reverse=reverse)
    h, c, all_h = h0, c0, np.zeros((steps, 3, 6))
    for t in reversed(range(steps)) if reverse else range(steps):
        g = x[t] @ w.T + h @ r.T + b
        i, o, f, n = (g[:, k * 6 : k * 6 + 6] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
        h = sigmoid(o) * np.tanh(c)
        all_h[t] = h
    for got, want in zip(p.run(*outs), (all_h, h, c), strict=True):
        compare(got, want, 2e-5)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("steps", [2, 9])
def test_gru(steps: int, before: bool) -> None:
    x, w, r, b, h = normal(steps, 3, 8), normal(18, 8), normal(18, 6), normal(36), normal(3, 6)
    p = Program()
    tensors = [p.input(v) for v in (x, w, r, b, h)]
    outs = popnn.gru(p.graph, *tensors, p.prog, linear_before_reset=before)
    all_h = np.zeros((steps, 3, 6))
    for t in range(steps):
        a = x[t] @ w.T + b[:18]
        z = sigmoid(a[:, :6] + h @ r[:6].T + b[18:24])
        s = sigmoid(a[:, 6:12] + h @ r[6:12].T + b[24:30])
        inner = s * (h @ r[12:].T + b[30:]) if before else (s * h) @ r[12:].T + b[30:]
        h = (1 - z) * np.tanh(a[:, 12:] + inner) + z * h
        all_h[t] = h
    for got, want in zip(p.run(*outs), (all_h, h), strict=True):
        compare(got, want, 2e-5)


@pytest.mark.parametrize("kind", ["tanh", "relu", "sigmoid"])
def test_rnn(kind: str) -> None:
    f: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "tanh": np.tanh,
        "relu": lambda v: np.maximum(v, 0),
        "sigmoid": sigmoid,
    }
    x, w, r, h = normal(7, 2, 5), normal(6, 5), normal(6, 6) * np.float32(0.4), normal(2, 6)
    p = Program()
    tensors = [p.input(v) for v in (x, w, r)]
    y, _ = popnn.rnn(p.graph, *tensors, None, p.input(h), p.prog, activation=kind)
    all_h = []
    for t in range(7):
        h = f[kind](x[t] @ w.T + h @ r.T)
        all_h.append(h)
    compare(p.run(y)[0], np.stack(all_h), 1e-5)


def test_activations() -> None:
    array = normal(9, 30)
    references = {
        "relu": lambda v: np.maximum(v, 0),
        "swish": lambda v: v * sigmoid(v),
        "gelu": lambda v: v / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))),
        "hard_sigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
        "softmax": lambda v: softmax(v, 1),
    }
    for kind, reference in references.items():
        check(
            lambda p, x, k=kind: popnn.non_linearity(p.graph, k, x, p.prog),
            reference,
            array,
            tolerance=1e-5,
        )
    p = Program()
    with pytest.raises(OptionError):
        popnn.non_linearity(p.graph, "wobble", p.input(array), p.prog)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_resize(coordinates: str) -> None:
    array = normal(2, 3, 5, 8)
    p = Program()
    x = p.input(array)
    near = popnn.resize(p.graph, x, (10, 4), p.prog, coordinates=coordinates)
    assert p.vertices == 0
    line = popnn.resize(p.graph, x, (9, 8), p.prog, method="linear", coordinates=coordinates)
    got = p.run(near, line)
    place = {
        "half_pixel": (np.arange(9) + 0.5) * 5 / 9 - 0.5,
        "align_corners": np.arange(9) * 4 / 8,
        "asymmetric": np.arange(9) * 5 / 9,
    }[coordinates]
    rows = np.stack(
        [
            np.interp(place, np.arange(5), column)
            for column in array.astype(np.float64).transpose(0, 1, 3, 2).reshape(-1, 5)
        ]
    )
    compare(got[1], rows.reshape(2, 3, 8, 9).transpose(0, 1, 3, 2), 1e-6)
    assert set(np.unique(got[0])) <= set(np.unique(array))
    with pytest.raises(OptionError):
        popnn.resize(p.graph, x, (9, 8), p.prog, method="magic")


def test_random_numbers_are_sound_and_the_same_on_any_tiles() -> None:
    found = []
    for tiles in (8, 40):
        p = Program(tiles)
        outs = (
            poprand.uniform(p.graph, 5, (1001,), -1, 3, p.prog),
            poprand.normal(p.graph, 5, (1001,), 1, 2, p.prog),
            poprand.truncated_normal(p.graph, 6, (1001,), 0, 1, 1.5, p.prog),
            poprand.bernoulli(p.graph, 7, (1001,), 0.25, p.prog),
        )
        found.append(p.run(*outs))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    u, n, t, hits = found[0]
    assert u.min() >= -1
    assert u.max() < 3
    assert abs(u.mean() - 1) < 0.15
    assert abs(n.mean() - 1) < 0.25
    assert abs(n.std() - 2) < 0.2
    assert np.abs(t).max() <= 1.5
    assert set(np.unique(hits)) == {0, 1}
    assert abs(hits.mean() - 0.25) < 0.06
    p = Program()
    other = poprand.uniform(p.graph, 6, (1001,), -1, 3, p.prog)
    assert not np.array_equal(p.run(other)[0], u)


def test_dropout_keeps_and_scales() -> None:
    array = normal(40, 30)
    p = Program()
    out = p.run(poprand.dropout(p.graph, 3, p.input(array), 0.5, 2.0, p.prog))[0]
    kept = out != 0
    np.testing.assert_array_equal(out[kept], array[kept] * 2)
    assert 0.4 < kept.mean() < 0.6
