"""Programs on grids, in the forms C++ programs use: strips with halos, images, blocks of tiles."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplar, popops
from poplar_py.poplar import FLOAT, INT, UNSIGNED_CHAR
from poplar_py.poplar.program import Copy, Execute, PrintTensor, Repeat, RepeatWhileTrue, Sequence

TILES = 8

JACOBI = """
from poplar_py.codelets.language import *

@vertex
@constraint("elem(*above) != elem(*out)")
class JacobiStrip(Vertex):
    above: Input[Vector[f32]]
    strip: Input[Vector[f32]]
    below: Input[Vector[f32]]
    out: Output[Vector[f32]]
    delta: Output[f32]
    width: u32

    def at(self, y: i32, x: i32) -> f32:
        rows = len(self.strip) // i32(self.width)
        if y < 0:
            return self.above[x]
        if y == rows:
            return self.below[x]
        return self.strip[y * i32(self.width) + x]

    def compute(self) -> bool:
        width = i32(self.width)
        largest = 0.0
        for y in range(len(self.strip) // width):
            self.out[y * width] = self.strip[y * width]
            for x in range(1, width - 1):
                mean = 0.25 * (
                    self.at(y - 1, x) + self.at(y + 1, x) + self.at(y, x - 1) + self.at(y, x + 1)
                )
                largest = max(largest, abs(mean - self.strip[y * width + x]))
                self.out[y * width + x] = mean
            self.out[y * width + width - 1] = self.strip[y * width + width - 1]
        self.delta = largest
        return True
"""


def jacobi_reference(grid: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
    grid, steps = grid.astype(np.float32), 0
    while True:
        new = grid.copy()
        around = (grid[:-2, 1:-1] + grid[2:, 1:-1]) + grid[1:-1, :-2] + grid[1:-1, 2:]
        new[1:-1, 1:-1] = np.float32(0.25) * around
        steps += 1
        if np.abs(new - grid).max() <= tolerance:
            return new, steps
        grid = new


def test_jacobi_until_it_settles(capfd: pytest.CaptureFixture[str]) -> None:
    device = poplar.IPUModel(ipu_version="ipu2", tiles_per_ipu=TILES).create_device()
    graph = poplar.Graph(device.get_target())
    graph.add_codelets(JACOBI)
    rows, width, tolerance = 4, 24, 1e-3
    strips = [graph.add_variable(FLOAT, [rows, width], f"strip{t}") for t in range(TILES)]
    nexts = [graph.clone(s, f"next{t}") for t, s in enumerate(strips)]
    halos = graph.add_variable(FLOAT, [TILES, 2, width], "halos")
    deltas = graph.add_variable(FLOAT, [TILES], "deltas")
    for t in range(TILES):
        for part in (strips[t], nexts[t], halos[t], deltas[t]):
            graph.set_tile_mapping(part, t)
    graph.set_initial_value(halos[0][0], np.full(width, 1.0, np.float32))
    graph.set_initial_value(halos[TILES - 1][1], np.full(width, 0.0, np.float32))
    steps = graph.add_variable(INT, [], "steps", mapping=0)
    one = graph.add_constant(INT, [], 1, "one", mapping=0)
    limit = graph.add_constant(FLOAT, [], tolerance, "tolerance", mapping=0)

    exchange = Sequence(name="halo exchange")
    for t in range(TILES - 1):
        exchange.add(Copy(strips[t][rows - 1], halos[t + 1][0]))
        exchange.add(Copy(strips[t + 1][0], halos[t][1]))
    cs = graph.add_compute_set("jacobi")
    for t in range(TILES):
        v = graph.add_vertex(cs, "JacobiStrip")
        graph.connect(v["above"], halos[t][0])
        graph.connect(v["strip"], strips[t].flatten())
        graph.connect(v["below"], halos[t][1])
        graph.connect(v["out"], nexts[t].flatten())
        graph.connect(v["delta"], deltas[t])
        graph.set_initial_value(v["width"], width)
        graph.set_perf_estimate(v, 100)
        graph.set_tile_mapping(v, t)
    step = Sequence([exchange, Execute(cs)])
    whole, new = poplar.concat(strips), poplar.concat(nexts)
    step.add(Copy(new, whole))
    popops.add_in_place(graph, steps, one, step, "count")
    cond = Sequence()
    largest = popops.reduce(graph, deltas, [0], "max", cond, "largest")
    again = popops.gt(graph, largest, limit, cond, "again")
    program = Sequence([step, RepeatWhileTrue(cond, again, step), PrintTensor("steps", steps)])
    graph.create_host_write("grid", whole)
    graph.create_host_read("grid", whole)
    graph.create_host_read("steps", steps)
    engine = poplar.Engine(graph, program, {"debug.instrument": "true"})
    engine.load(device)
    rng = np.random.default_rng(1)
    start = rng.random((TILES * rows, width), np.float32)
    engine.write_tensor("grid", start)
    engine.run(0)
    padded = np.concatenate([np.ones((1, width)), start, np.zeros((1, width))])
    want, count = jacobi_reference(padded, tolerance)
    assert int(engine.read_tensor("steps")[0]) == count
    got = engine.read_tensor("grid").reshape(start.shape)
    np.testing.assert_allclose(got, want[1:-1], atol=1e-6)
    assert f"steps: {count}" in capfd.readouterr().err


MANDELBROT = """
from poplar_py.codelets.language import *

MAX_ITERATIONS = 60

def escape(cr: f32, ci: f32) -> u8:
    zr, zi = 0.0, 0.0
    n = 0
    while n < MAX_ITERATIONS and zr * zr + zi * zi < 4.0:
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        n += 1
    return u8(n)

@vertex
class Mandelbrot(MultiVertex):
    image: Output[Vector[u8, ONE_PTR]]
    width: u32
    rows: u32
    first_row: u32
    height: u32

    def compute(self, worker_id: u32) -> bool:
        for y in range(worker_id, self.rows, MultiVertex.num_workers()):
            ci = f32(y + self.first_row) * (2.0 / f32(self.height)) - 1.0
            for x in range(self.width):
                cr = f32(x) * (3.0 / f32(self.width)) - 2.0
                self.image[y * self.width + x] = escape(cr, ci)
        return True
"""


def mandelbrot_reference(height: int, width: int) -> np.ndarray:
    one = np.float32(1)
    ci = np.arange(height, dtype=np.float32)[:, None] * (np.float32(2) / np.float32(height)) - one
    cr = np.arange(width, dtype=np.float32) * (np.float32(3) / np.float32(width)) - 2 * one
    zr, zi = np.zeros((2, height, width), np.float32)
    count = np.zeros((height, width), np.uint8)
    for _ in range(60):
        alive = zr * zr + zi * zi < 4
        count += alive
        zr, zi = (
            np.where(alive, zr * zr - zi * zi + cr, zr),
            np.where(alive, 2 * zr * zi + ci, zi),
        )
    return count


def test_mandelbrot_rows_of_bytes() -> None:
    height, width = 36, 40
    manager = poplar.DeviceManager.create_device_manager()
    device = next(d for d in manager.get_devices("IPU", 1) if d.attach())
    graph = poplar.Graph(device.create_virtual_device(TILES))
    graph.add_codelets(MANDELBROT)
    target = graph.get_target()
    image = graph.add_variable(UNSIGNED_CHAR, [height, width], "image")
    cs = graph.add_compute_set("mandelbrot")
    per_tile = -(-height // target.get_num_tiles())
    for tile in range(target.get_num_tiles()):
        begin, end = min(tile * per_tile, height), min((tile + 1) * per_tile, height)
        if begin == end:
            continue
        part = image.slice(begin, end)
        graph.set_tile_mapping(part, tile)
        v = graph.add_vertex(cs, "Mandelbrot", {"image": part.flatten()})
        graph.set_initial_value(v["width"], width)
        graph.set_initial_value(v["rows"], end - begin)
        graph.set_initial_value(v["first_row"], begin)
        graph.set_initial_value(v["height"], height)
        graph.set_tile_mapping(v, tile)
    graph.create_host_read("image", image)
    engine = poplar.Engine(graph, Execute(cs))
    engine.load(device)
    engine.run(0)
    got = engine.read_tensor("image").reshape(height, width)
    np.testing.assert_array_equal(got, mandelbrot_reference(height, width))
    assert len(np.unique(got)) > 10


RAYS = """
from poplar_py.codelets.language import *

def distance(p: float4, phase: f32) -> f32:
    qx, qy, qz = p[0] - 0.4 * sin(phase), p[1], p[2] - 3.0
    return sqrt(qx * qx + qy * qy + qz * qz) - 1.0

@vertex
class March(Vertex):
    time: Input[f32]
    pixels: Output[Vector[u8, SPAN, 4]]
    x0: u16
    y0: u16
    width: u16
    side: u16

    def compute(self) -> None:
        for i in range(len(self.pixels)):
            x = f32(i32(self.x0) + i % i32(self.width))
            y = f32(i32(self.y0) + i // i32(self.width))
            half = f32(self.side) * 0.5
            ray = self.direction((x - half) / half, (y - half) / half)
            travelled = 0.0
            hit = False
            for _ in range(32):
                d = distance(ray * splat(travelled, 4), self.time)
                if d < 0.001:
                    hit = True
                    break
                travelled += d
            self.pixels[i] = u8(max(0.0, 255.0 - 60.0 * travelled)) if hit else u8(0)

    def direction(self, x: f32, y: f32) -> float4:
        scale = rsqrt(x * x + y * y + 1.0)
        ray = splat(scale, 4)
        ray = insert(ray, 0, x * scale)
        return insert(ray, 1, y * scale)
"""


def rays_reference(side: int, time: float) -> np.ndarray:
    half = side / 2
    y, x = np.mgrid[:side, :side].astype(np.float64)
    x, y = (x - half) / half, (y - half) / half
    scale = 1 / np.sqrt(x * x + y * y + 1)
    ray = np.stack([x * scale, y * scale, scale])
    travelled, hit = np.zeros((side, side)), np.zeros((side, side), bool)
    for _ in range(32):
        q = ray * travelled - np.array([0.4 * np.sin(time), 0, 3])[:, None, None]
        d = np.sqrt((q * q).sum(0)) - 1
        hit |= d < 0.001
        travelled = np.where(hit, travelled, travelled + d)
    return np.where(hit, np.maximum(0, 255 - 60 * travelled), 0)


def test_ray_marching_streams_frames_out() -> None:
    """Blocks of pixels, one a tile; a clock on the device; every frame goes to the host."""
    side, block, frames = 16, 4, 3
    graph = poplar.Graph(poplar.Target.ipu("gc200", ipus=1, tiles_per_ipu=16))
    graph.add_codelets(RAYS)
    image = graph.add_variable(UNSIGNED_CHAR, [side, side], "image")
    time = graph.add_variable(FLOAT, [], "time", mapping=0)
    tick = graph.add_constant(FLOAT, [], 0.5, "tick", mapping=0)
    graph.set_initial_value(time, 0.0)
    cs = graph.add_compute_set("march")
    tile = 0
    for y in range(0, side, block):
        for x in range(0, side, block):
            pixels = image.slice([y, x], [y + block, x + block])
            graph.set_tile_mapping(pixels, tile)
            v = graph.add_vertex(cs, "March", {"time": time, "pixels": pixels.flatten()})
            for field, value in {"x0": x, "y0": y, "width": block, "side": side}.items():
                graph.set_initial_value(v[field], value)
            graph.set_tile_mapping(v, tile)
            tile += 1
    out = graph.add_device_to_host_fifo("frames", UNSIGNED_CHAR, side * side)
    loop = Sequence([Execute(cs), Copy(image, out)])
    popops.add_in_place(graph, time, tick, loop, "advance the clock")
    engine = poplar.Engine(graph, Repeat(frames, loop))
    film = np.zeros((frames, side, side), np.uint8)
    engine.connect_stream("frames", film)
    engine.run()
    for k in range(frames):
        np.testing.assert_allclose(film[k], rays_reference(side, 0.5 * k), atol=1.5)
    assert film[0].max() > 100
    assert not np.array_equal(film[0], film[2])
