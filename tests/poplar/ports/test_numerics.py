"""Numerical programs in the forms C++ programs use: bodies, clusters, transforms, particles."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplar, popops, poprand, poputil
from poplar_py.poplar import FLOAT, HALF, INT, UNSIGNED_INT
from poplar_py.poplar.program import Call, Copy, Execute, If, Repeat, Sequence, Switch

TILES = 8
HEAD = "from poplar_py.codelets.language import *\n"


NBODY = """
EPSILON = 1e-3

@vertex
class Force(Vertex):
    mine: Input[Vector[f32, VectorLayout.SPAN, 8]]
    everyone: Input[Vector[f32]]
    mass: Input[Vector[f32]]
    force: Output[Vector[f32]]

    def compute(self) -> bool:
        for i in range(0, len(self.mine), 3):
            ax, ay, az = 0.0, 0.0, 0.0
            for j in range(len(self.mass)):
                dx = self.everyone[3 * j] - self.mine[i]
                dy = self.everyone[3 * j + 1] - self.mine[i + 1]
                dz = self.everyone[3 * j + 2] - self.mine[i + 2]
                r2 = dx * dx + dy * dy + dz * dz + EPSILON
                inverse = rsqrt(r2)
                s = self.mass[j] * inverse * inverse * inverse
                ax += s * dx
                ay += s * dy
                az += s * dz
            self.force[i], self.force[i + 1], self.force[i + 2] = ax, ay, az
        return True

@vertex
class Step(MultiVertex):
    position: InOut[Vector[f32]]
    velocity: InOut[Vector[f32]]
    force: Input[Vector[f32]]
    dt: f32

    def compute(self, worker_id: u32) -> bool:
        for i in range(worker_id, len(self.position), num_workers()):
            self.velocity[i] += self.force[i] * self.dt
            self.position[i] += self.velocity[i] * self.dt
        return True
"""


def test_n_body_all_gather() -> None:
    n, steps, dt = 24, 10, 0.01
    device = poplar.IPUModel(tiles_per_ipu=TILES).create_device()
    graph = poplar.Graph(device)
    graph.add_codelets(HEAD + NBODY)
    position, velocity, force = (
        graph.add_variable(FLOAT, [n, 3], name) for name in ("position", "velocity", "force")
    )
    mass = graph.add_variable(FLOAT, [n], "mass", mapping="linear")
    forces, advance = graph.add_compute_set("forces"), graph.add_compute_set("advance")
    per = n // TILES
    for tile in range(TILES):
        rows = [t.slice(tile * per, (tile + 1) * per) for t in (position, velocity, force)]
        for part in rows:
            graph.set_tile_mapping(part, tile)
        v = graph.add_vertex(forces, "Force", {"everyone": position.flatten(), "mass": mass})
        graph.connect(v["mine"], rows[0].flatten())
        graph.connect(v["force"], rows[2].flatten())
        graph.set_tile_mapping(v, tile)
        w = graph.add_vertex(advance, "Step")
        for name, part in zip(("position", "velocity", "force"), rows, strict=True):
            graph.connect(w[name], part.flatten())
        graph.set_initial_value(w["dt"], dt)
        graph.set_tile_mapping(w, tile)
    for name, t in (("position", position), ("velocity", velocity), ("mass", mass)):
        graph.create_host_write(name, t)
        graph.create_host_read(name, t)
    engine = poplar.Engine(graph, Repeat(steps, Sequence([Execute(forces), Execute(advance)])))
    engine.load(device)
    rng = np.random.default_rng(5)
    x, v = rng.random((2, n, 3)).astype(np.float32)
    m = rng.random(n).astype(np.float32)
    for name, value in (("position", x), ("velocity", v), ("mass", m)):
        engine.write_tensor(name, value)
    engine.run(0)
    x, v, m = (a.astype(np.float64) for a in (x, v, m))
    for _ in range(steps):
        d = x[None] - x[:, None]
        r2 = (d * d).sum(-1) + 1e-3
        v += dt * (m[None, :, None] * d / r2[..., None] ** 1.5).sum(1)
        x += dt * v
    np.testing.assert_allclose(engine.read_tensor("position").reshape(n, 3), x, atol=2e-4)


KMEANS = """
K = IntParam("K")
D = IntParam("D")

@vertex
class Assign(Vertex, Generic[K, D]):
    points: Vector[Input[Vector[f32, ONE_PTR]]]
    centres: Input[Vector[f32, ONE_PTR]]
    label: Output[Vector[i32]]
    sums: Output[Vector[f32]]
    counts: Output[Vector[f32]]

    def distance(self, p: i32, k: i32) -> f32:
        total = 0.0
        for d in unroll(D):
            delta = self.points[p][d] - self.centres[k * D + d]
            total += delta * delta
        return total

    def compute(self) -> bool:
        for i in range(K * D):
            self.sums[i] = 0.0
        for i in range(K):
            self.counts[i] = 0.0
        for p in range(len(self.points)):
            best, nearest = limit_max(f32), 0
            for k in range(K):
                d = self.distance(p, k)
                if d < best:
                    best, nearest = d, k
            self.label[p] = nearest
            self.counts[nearest] += 1.0
            for d in unroll(D):
                self.sums[nearest * D + d] += self.points[p][d]
        return True
"""


def test_k_means() -> None:
    n, k, d, rounds = 48, 3, 2, 5
    rng = np.random.default_rng(9)
    points = (rng.standard_normal((n, d)) + rng.integers(0, 3, (n, 1)) * 6).astype(np.float32)
    device = poplar.IPUModel(tiles_per_ipu=TILES).create_device()
    graph = poplar.Graph(device)
    graph.add_codelets(HEAD + KMEANS)
    data = graph.add_variable(FLOAT, [n, d], "points")
    poputil.map_tensor_linearly(graph, data, n // TILES * d, d)
    centres = graph.add_variable(FLOAT, [k, d], "centres", mapping=0)
    labels = graph.add_variable(INT, [n], "labels")
    poputil.map_tensor_linearly(graph, labels, n // TILES, 1)
    sums = graph.add_variable(FLOAT, [TILES, k, d], "sums")
    counts = graph.add_variable(FLOAT, [TILES, k], "counts")
    cs = graph.add_compute_set("assign")
    for tile in range(TILES):
        part = slice(tile * n // TILES, (tile + 1) * n // TILES)
        for t in (sums[tile], counts[tile]):
            graph.set_tile_mapping(t, tile)
        v = graph.add_vertex(cs, f"Assign<{k},{d}>", {"points": list(data[part])})
        graph.connect(v["centres"], centres.flatten())
        graph.connect(v["label"], labels[part])
        graph.connect(v["sums"], sums[tile].flatten())
        graph.connect(v["counts"], counts[tile])
        graph.set_tile_mapping(v, tile)
    body = Sequence([Execute(cs)])
    total = popops.reduce(graph, sums, [0], "add", body, "sum over tiles")
    count = popops.reduce(graph, counts, [0], "add", body, "count over tiles")
    mean = popops.div(graph, total, count.expand([1]).broadcast(d, 1), body, "mean")
    body.add(Copy(mean, centres))
    graph.create_host_write("points", data)
    graph.create_host_write("centres", centres)
    graph.create_host_read("centres", centres)
    graph.create_host_read("labels", labels)
    engine = poplar.Engine(graph, Repeat(rounds, body))
    engine.load(device)
    engine.write_tensor("points", points)
    engine.write_tensor("centres", points[:k])
    engine.run()
    want = points[:k].astype(np.float64)
    for _ in range(rounds):
        label = ((points[:, None] - want) ** 2).sum(-1).argmin(1)
        want = np.array([points[label == j].mean(0) for j in range(k)])
    np.testing.assert_array_equal(engine.read_tensor("labels"), label)
    np.testing.assert_allclose(engine.read_tensor("centres").reshape(k, d), want, rtol=1e-5)


FFT = """
@vertex
class Butterfly(Vertex):
    even: InOut[Vector[f32, SPAN, 8]]
    odd: InOut[Vector[f32, SPAN, 8]]
    twiddle: Input[Vector[f32, SPAN, 8]]

    def compute(self) -> bool:
        for i in range(0, len(self.even), 2):
            e, o = load(self.even, i, 2), load(self.odd, i, 2)
            w = load(self.twiddle, i, 2)
            t = float2(w[0] * o[0] - w[1] * o[1], w[0] * o[1] + w[1] * o[0])
            store(self.even, i, e + t)
            store(self.odd, i, e - t)
        return True
"""


def test_fft_by_stages() -> None:
    """Radix 2: a bit reversal by copies of slices, then a compute set a stage, on strided views."""
    n = 32
    stages = n.bit_length() - 1
    device = poplar.IPUModel(tiles_per_ipu=TILES).create_device()
    graph = poplar.Graph(device)
    graph.add_codelets(HEAD + FFT)
    signal = graph.add_variable(FLOAT, [n, 2], "signal", mapping="linear")
    x = graph.add_variable(FLOAT, [n, 2], "x", mapping="linear")
    order = [int(f"{i:0{stages}b}"[::-1], 2) for i in range(n)]
    prog = Sequence([Copy(poplar.concat([signal.slice(i, i + 1) for i in order]), x)])
    for stage in range(stages):
        half = 1 << stage
        cs = graph.add_compute_set(f"stage{stage}")
        angle = -np.pi * np.arange(half) / half
        table = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
        w = graph.add_constant(FLOAT, [half, 2], table, f"twiddle{stage}")
        graph.set_tile_mapping(w, stage)
        groups = x.reshape([n // (2 * half), 2, half, 2])
        for g in range(groups.dim(0)):
            v = graph.add_vertex(cs, "Butterfly")
            graph.connect(v["even"], groups[g][0].flatten())
            graph.connect(v["odd"], groups[g][1].flatten())
            graph.connect(v["twiddle"], w.flatten())
            graph.set_tile_mapping(v, g % TILES)
        prog.add(Execute(cs))
    graph.create_host_write("signal", signal)
    graph.create_host_read("spectrum", x)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    rng = np.random.default_rng(3)
    z = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    engine.write_tensor("signal", np.stack([z.real, z.imag], 1).astype(np.float32))
    engine.run(0)
    got = engine.read_tensor("spectrum").reshape(n, 2)
    np.testing.assert_allclose(got[:, 0] + 1j * got[:, 1], np.fft.fft(z), atol=1e-4)


def test_random_walk() -> None:
    """Normal steps from a seed on the device; the same seed walks the same way."""
    n = 256
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 16))
    walkers = graph.add_variable(FLOAT, [n], "walkers", mapping="linear")
    seed = graph.add_variable(UNSIGNED_INT, [2], "seed", mapping=0)
    graph.create_host_write("seed", seed)
    graph.create_host_read("walkers", walkers)
    prog = Sequence()
    popops.zero(graph, walkers, prog, "start")
    step = Sequence()
    noise = poprand.normal(graph, seed, 0, walkers, FLOAT, 0.0, 1.0, step, "noise")
    popops.add_in_place(graph, walkers, noise, step, "move")
    popops.add_in_place(graph, seed, graph.add_constant(UNSIGNED_INT, [2], [1, 0], "one", 0), step)
    prog.add(Repeat(25, step))
    engine = poplar.Engine(graph, prog)
    results = []
    for _ in range(2):
        engine.write_tensor("seed", np.array([7, 1], np.uint32))
        engine.run()
        results.append(engine.read_tensor("walkers"))
    np.testing.assert_array_equal(results[0], results[1])
    assert abs(results[0].mean()) < 1.5
    assert 3.5 < results[0].std() < 6.5


HALF_MATH = """
@vertex
class Axpy(Vertex):
    a: Input[half]
    x: Input[Vector[half, SPAN, 8]]
    y: InOut[Vector[half, SPAN, 8]]

    def compute(self) -> bool:
        n = len(self.x)
        for i in range(0, n - 3, 4):
            v = load_raw(self.x, i, 4)
            store_raw(self.y, i, fma(splat(self.a[0], 4), v, load_raw(self.y, i, 4)))
        for i in range(n & ~3, n):
            self.y[i] = fma(self.a[0], self.x[i], self.y[i])
        return True
"""


@pytest.mark.parametrize("n", [8, 11])
def test_half_vectors_with_a_remainder(n: int) -> None:
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    graph.add_codelets(HEAD + HALF_MATH)
    x, y = (graph.add_variable(HALF, [n], name, mapping=2) for name in "xy")
    a = graph.add_constant(HALF, [], 1.5, "a", 2)
    cs = graph.add_compute_set("axpy")
    v = graph.add_vertex(cs, "Axpy", {"a": a, "x": x, "y": y})
    graph.set_tile_mapping(v, 2)
    for name, t in (("x", x), ("y", y)):
        graph.create_host_write(name, t)
    graph.create_host_read("y", y)
    engine = poplar.Engine(graph, Execute(cs))
    rng = np.random.default_rng(n)
    xs, ys = rng.standard_normal((2, n)).astype(np.float16)
    engine.write_tensor("x", xs)
    engine.write_tensor("y", ys)
    engine.run()
    want = (xs.astype(np.float32) * np.float32(1.5) + ys.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(engine.read_tensor("y"), want)


ACCUMULATE = """
@vertex
class Remember(Vertex):
    value: Input[f32]
    history: Output[Vector[f32]]
    mean: Output[f32]
    at: u32
    total: f32

    def compute(self) -> bool:
        self.history[self.at % u32(len(self.history))] = self.value
        self.at += 1
        self.total += self.value
        self.mean = self.total / f32(self.at)
        return True
"""


def test_state_lasts_and_a_switch_chooses() -> None:
    """State fields and Outputs persist over runs; functions called from the cases of a Switch."""
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    graph.add_codelets(HEAD + ACCUMULATE)
    value, mean = (graph.add_variable(FLOAT, [], name, mapping=1) for name in ("value", "mean"))
    history = graph.add_variable(FLOAT, [4], "history", mapping=1)
    mode = graph.add_variable(INT, [], "mode", mapping=0)
    cs = graph.add_compute_set("remember")
    v = graph.add_vertex(cs, "Remember", {"value": value, "history": history, "mean": mean})
    graph.set_initial_value(v["at"], 0)
    graph.set_initial_value(v["total"], 0.0)
    graph.set_tile_mapping(v, 1)
    for name, t in (("value", value), ("mode", mode)):
        graph.create_host_write(name, t)
    for name, t in (("history", history), ("mean", mean), ("value", value)):
        graph.create_host_read(name, t)
    double, negate = Sequence(), Sequence()
    popops.add_in_place(graph, value, value, double, "double")
    popops.neg_in_place(graph, value, negate, "negate")
    functions = [graph.add_function(p) for p in (double, negate)]
    choose = Switch(mode, [(0, Call(functions[0])), (1, Call(functions[1]))])
    choose.add(2, Sequence([Call(functions[0]), Call(functions[1])]))
    engine = poplar.Engine(graph, [Sequence([choose, Execute(cs)])])
    effect = {0: 2.0, 1: -1.0, 2: -2.0, 9: 1.0}
    seen: list[float] = []
    for k, m in enumerate([0, 1, 2, 9, 2, 0]):
        engine.write_tensor("value", np.float32(k + 1))
        engine.write_tensor("mode", np.int32(m))
        engine.run(0)
        seen.append((k + 1) * effect[m])
        assert float(engine.read_tensor("mean")[0]) == pytest.approx(np.mean(seen))
    np.testing.assert_array_equal(engine.read_tensor("history"), [seen[4], seen[5], *seen[2:4]])


def test_if_on_a_comparison() -> None:
    graph = poplar.Graph(poplar.Target.ipu("gc200", 1, 4))
    x = graph.add_variable(FLOAT, [4], "x", mapping="linear")
    limit = graph.add_constant(FLOAT, [], 10.0, "limit", 0)
    prog = Sequence()
    total = popops.reduce(graph, x, [0], "add", prog, "total")
    small = popops.lt(graph, total, limit, prog, "small")
    grow, shrink = Sequence(), Sequence()
    popops.scaled_add_to(graph, x, x, 1.0, grow, "grow")
    popops.scaled_subtract_from(graph, x, x, 0.5, shrink, "shrink")
    prog.add(If(small, grow, shrink))
    graph.create_host_write("x", x)
    graph.create_host_read("x", x)
    engine = poplar.Engine(graph, prog)
    for start, factor in ((1.0, 2.0), (5.0, 0.5)):
        engine.write_tensor("x", np.full(4, start, np.float32))
        engine.run()
        np.testing.assert_array_equal(engine.read_tensor("x"), np.full(4, start * factor))
