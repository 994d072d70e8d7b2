"""Training and inference by hand with the libraries, in the forms C++ programs use."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplar, poplin, popnn, popops, poprand, poputil
from poplar_py.poplar import FLOAT, INT, UNSIGNED_INT
from poplar_py.poplar.program import Call, Copy, Repeat, Sequence
from poplar_py.popops import Operation
from poplar_py.popops import expr as pe

TILES = 16


def make_graph() -> tuple[poplar.Device, poplar.Graph]:
    model = poplar.IPUModel()
    model.tiles_per_ipu = TILES
    device = model.create_device()
    graph = poplar.Graph(device)
    popops.add_codelets(graph)
    poplin.add_codelets(graph)
    popnn.add_codelets(graph)
    poprand.add_codelets(graph)
    return device, graph


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_logistic_regression_by_gradient_descent() -> None:
    samples, features, steps, rate = 64, 6, 40, 0.5
    device, graph = make_graph()
    x = graph.add_variable(FLOAT, [samples, features], "x")
    y = graph.add_variable(FLOAT, [samples, 1], "y")
    w = graph.add_variable(FLOAT, [features, 1], "w")
    for t in (x, y, w):
        poputil.map_tensor_linearly(graph, t)
    step = Sequence()
    logits = poplin.mat_mul(graph, x, w, step, FLOAT, "forward")
    p = popops.map(graph, pe.Sigmoid(pe._1), [logits], step, "sigmoid")
    error = popops.sub(graph, p, y, step, "error")
    gradient = poplin.mat_mul(graph, x.transpose(), error, step, FLOAT, "gradient")
    popops.scaled_add_to(graph, w, gradient, -rate / samples, step, "update")
    loss_prog = Sequence()
    loss = popops.map(
        graph,
        -(pe._2 * pe.Log(pe._1) + (1.0 - pe._2) * pe.Log(1.0 - pe._1)),
        [p, y],
        loss_prog,
        "cross entropy",
    )
    total = popops.reduce(graph, loss, FLOAT, [0, 1], Operation.ADD, loss_prog, "loss")
    for name, t in (("x", x), ("y", y), ("w", w)):
        graph.create_host_write(name, t)
    graph.create_host_read("w", w)
    graph.create_host_read("loss", total)
    engine = poplar.Engine(graph, [Repeat(steps, step), loss_prog])
    engine.load(device)
    rng = np.random.default_rng(0)
    data = rng.standard_normal((samples, features)).astype(np.float32)
    labels = (data @ rng.standard_normal((features, 1)) > 0).astype(np.float32)
    for name, value in (("x", data), ("y", labels), ("w", np.zeros((features, 1), np.float32))):
        engine.write_tensor(name, value)
    engine.run(0)
    engine.run(1)
    want, before = np.zeros((features, 1)), np.zeros((features, 1))
    for _ in range(steps):
        before = want
        want = want - rate / samples * data.T @ (sigmoid(data @ want) - labels)
    got = engine.read_tensor("w").reshape(features, 1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    q = sigmoid(data @ before)
    entropy = -(labels * np.log(q) + (1 - labels) * np.log(1 - q)).sum()
    assert float(engine.read_tensor("loss")[0]) == pytest.approx(entropy, rel=1e-4)


def test_two_layers_with_sgd() -> None:
    """Forward, softmax cross entropy, backward and updates, step by step with the libraries."""
    batch, n, hidden, classes, rate = 16, 8, 12, 3, 0.3
    device, graph = make_graph()
    x = graph.add_variable(FLOAT, [batch, n], "x", mapping="linear")
    labels = graph.add_variable(INT, [batch], "labels", mapping="linear")
    w1 = graph.add_variable(FLOAT, [n, hidden], "w1", mapping="linear")
    b1 = graph.add_variable(FLOAT, [hidden], "b1", mapping="linear")
    w2 = graph.add_variable(FLOAT, [hidden, classes], "w2", mapping="linear")
    prog = Sequence()
    z1 = poplin.mat_mul(graph, x, w1, prog, FLOAT, "layer1")
    popops.add_in_place(graph, z1, b1, prog, "layer1/bias")
    a1 = popnn.non_linearity(graph, popnn.NonLinearityType.RELU, z1, prog, "layer1/relu")
    z2 = poplin.mat_mul(graph, a1, w2, prog, FLOAT, "layer2")
    p = popnn.non_linearity(graph, popnn.NonLinearityType.SOFTMAX, z2, prog, "softmax")
    one_hot = graph.clone(p, "expected")
    popops.encode_one_hot(graph, labels, one_hot, prog, "one hot")
    d2 = popops.sub(graph, p, one_hot, prog, "d2")
    gw2 = poplin.mat_mul(graph, a1.transpose(), d2, prog, FLOAT, "gw2")
    d1 = poplin.mat_mul(graph, d2, w2.transpose(), prog, FLOAT, "d1")
    relu = popnn.NonLinearityType.RELU
    d1 = popnn.non_linearity_input_gradient(graph, relu, a1, d1, prog, "d1/relu")
    gw1 = poplin.mat_mul(graph, x.transpose(), d1, prog, FLOAT, "gw1")
    gb1 = popops.reduce(graph, d1, FLOAT, [0], Operation.ADD, prog, "gb1")
    for weights, gradient in ((w1, gw1), (w2, gw2), (b1, gb1)):
        popops.scaled_add_to(graph, weights, gradient, -rate / batch, prog, "sgd")
    for name, t in (("x", x), ("labels", labels), ("w1", w1), ("b1", b1), ("w2", w2)):
        graph.create_host_write(name, t)
    for name, t in (("w1", w1), ("b1", b1), ("w2", w2)):
        graph.create_host_read(name, t)
    engine = poplar.Engine(graph, Repeat(5, prog))
    engine.load(device)
    rng = np.random.default_rng(4)
    v = {
        "x": rng.standard_normal((batch, n)),
        "w1": rng.standard_normal((n, hidden)) * 0.5,
        "b1": rng.standard_normal(hidden),
        "w2": rng.standard_normal((hidden, classes)) * 0.5,
    }
    for name, value in v.items():
        engine.write_tensor(name, value.astype(np.float32))
    target = rng.integers(0, classes, batch)
    engine.write_tensor("labels", target.astype(np.int32))
    engine.run(0)
    for _ in range(5):
        h = np.maximum(v["x"] @ v["w1"] + v["b1"], 0)
        e = np.exp(h @ v["w2"])
        d = e / e.sum(1, keepdims=True) - np.eye(classes)[target]
        back = (d @ v["w2"].T) * (h > 0)
        v["w2"] = v["w2"] - rate / batch * h.T @ d
        v["w1"] = v["w1"] - rate / batch * v["x"].T @ back
        v["b1"] = v["b1"] - rate / batch * back.sum(0)
    for name in ("w1", "b1", "w2"):
        got = engine.read_tensor(name).reshape(v[name].shape)
        np.testing.assert_allclose(got, v[name], rtol=1e-3, atol=1e-4)


def test_lstm_cell_by_hand() -> None:
    """One cell in a function that is called for every step; gates are slices of one product."""
    n, hidden, steps = 5, 8, 4
    device, graph = make_graph()
    xs = graph.add_variable(FLOAT, [steps, n], "xs", mapping="linear")
    x = graph.add_variable(FLOAT, [1, n], "x", mapping=0)
    state = graph.add_variable(FLOAT, [2, 1, hidden], "state", mapping="linear")
    h, c = state[0], state[1]
    w = graph.add_variable(FLOAT, [n + hidden, 4 * hidden], "w", mapping="linear")
    b = graph.add_variable(FLOAT, [4 * hidden], "b", mapping="linear")
    cell = Sequence()
    gates = poplin.mat_mul(graph, poplar.concat(x, h, 1), w, cell, FLOAT, "gates")
    popops.add_in_place(graph, gates, b, cell, "bias")
    i, f, o, g = (gates.slice(k * hidden, (k + 1) * hidden, 1) for k in range(4))
    new = popops.map(
        graph,
        pe.Sigmoid(pe._1) * pe._2 + pe.Sigmoid(pe._3) * pe.Tanh(pe._4),
        [f, c, i, g],
        cell,
        "cell",
    )
    cell.add(Copy(new, c))
    cell.add(Copy(popops.map(graph, pe.Sigmoid(pe._1) * pe.Tanh(pe._2), [o, new], cell, "out"), h))
    function = graph.add_function(cell)
    prog = Sequence()
    popops.zero(graph, state, prog, "start")

    def step(t: poplar.Tensor) -> Sequence:
        body = Sequence()
        body.add(Copy(popops.dynamic_slice(graph, xs, t, [0], [1], body, "x[t]"), x))
        body.add(Call(function))
        return body

    prog.add(popops.counted_loop(graph, 0, steps, 1, step, "time"))
    for name, t in (("xs", xs), ("w", w), ("b", b)):
        graph.create_host_write(name, t)
    graph.create_host_read("state", state)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    rng = np.random.default_rng(6)
    values = {
        "xs": rng.standard_normal((steps, n)),
        "w": rng.standard_normal((n + hidden, 4 * hidden)) * 0.4,
        "b": rng.standard_normal(4 * hidden),
    }
    for name, value in values.items():
        engine.write_tensor(name, value.astype(np.float32))
    engine.run()
    hv, cv = np.zeros((2, hidden))
    for row in values["xs"]:
        z = np.concatenate([row, hv]) @ values["w"] + values["b"]
        iv, fv, ov, gv = z.reshape(4, hidden)
        cv = sigmoid(fv) * cv + sigmoid(iv) * np.tanh(gv)
        hv = sigmoid(ov) * np.tanh(cv)
    got = engine.read_tensor("state").reshape(2, hidden)
    np.testing.assert_allclose(got, [hv, cv], rtol=1e-4, atol=1e-5)


def test_particle_filter() -> None:
    """Move, weigh, resample: a cumulative sum, a comparison and rows by index."""
    n = 128
    device, graph = make_graph()
    particles = graph.add_variable(FLOAT, [n, 1], "particles", mapping="linear")
    seed = graph.add_variable(UNSIGNED_INT, [2], "seed", mapping=0)
    seen = graph.add_variable(FLOAT, [], "observation", mapping=0)
    prog = Sequence()
    noise = poprand.normal(graph, seed, 0, particles, FLOAT, 0.0, 0.5, prog, "noise")
    popops.add_in_place(graph, particles, noise, prog, "move")
    weight = popops.map(
        graph, pe.Exp(-pe.Square(pe._1 - pe._2)), [particles.flatten(), seen], prog, "weigh"
    )
    total = popops.reduce(graph, weight, FLOAT, [0], Operation.ADD, prog, "total")
    sums = popops.cumulative(graph, weight, 0, "sum", prog, name="cumulative")
    share = popops.div(graph, sums, total, prog, "share")
    comb = graph.add_constant(FLOAT, [n, 1], (np.arange(n) + 0.5) / n, "comb", "linear")
    below = popops.lt(graph, share.expand([0]), comb, prog, "below")
    counts = popops.cast(graph, below, INT, prog, "as ints")
    chosen = popops.reduce(graph, counts, INT, [1], Operation.ADD, prog, "chosen")
    index = popops.clamp(graph, chosen, 0, n - 1, prog, "within")
    moved = graph.clone(particles, "moved")
    prog.add(Copy(particles, moved))
    drawn = popops.multi_slice(graph, particles, index, prog, "resample")
    prog.add(Copy(drawn, particles))
    for name, t in (("particles", particles), ("seed", seed), ("seen", seen)):
        graph.create_host_write(name, t)
    for name, t in (("particles", particles), ("moved", moved), ("index", index)):
        graph.create_host_read(name, t)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    start = np.random.default_rng(2).standard_normal((n, 1)).astype(np.float32)
    engine.write_tensor("particles", start)
    engine.write_tensor("seed", np.array([5, 9], np.uint32))
    engine.write_tensor("seen", np.float32(1.0))
    engine.run()
    moved_values = engine.read_tensor("moved").astype(np.float64)
    w = np.exp(-((moved_values - 1.0) ** 2))
    want = np.searchsorted(np.cumsum(w) / w.sum(), (np.arange(n) + 0.5) / n)
    got = engine.read_tensor("index")
    assert (np.abs(got - np.minimum(want, n - 1)) <= 1).all()
    np.testing.assert_array_equal(engine.read_tensor("particles"), moved_values[got].astype("f4"))
    assert abs(engine.read_tensor("particles").mean() - 1) < abs(moved_values.mean() - 1)
