"""Algorithms with own vertices, in the forms C++ programs use."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplar, popops, poputil
from poplar_py.poplar import BOOL, FLOAT, INT, UNSIGNED_CHAR, UNSIGNED_INT, UNSIGNED_SHORT
from poplar_py.poplar.program import (
    Copy,
    Execute,
    PrintTensor,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    WriteUndef,
)

TILES = 8
HEAD = "from poplar_py.codelets.language import *\n"


def make_graph(source: str, tiles: int = TILES) -> tuple[poplar.Device, poplar.Graph]:
    device = poplar.IPUModel(tiles_per_ipu=tiles).create_device()
    graph = poplar.Graph(device)
    graph.add_codelets(HEAD + source)
    return device, graph


SPMV = """
@vertex
class SpMV(Vertex):
    values: Input[Vector[f32, VectorLayout.ONE_PTR]]
    columns: Input[Vector[u16, VectorLayout.ONE_PTR]]
    row_ptr: Input[Vector[u32]]
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    scale: f32

    def compute(self) -> bool:
        base = self.row_ptr[0]
        for r in range(len(self.y)):
            acc = 0.0
            for k in range(self.row_ptr[r] - base, self.row_ptr[r + 1] - base):
                acc += self.values[k] * self.x[self.columns[k]]
            self.y[r] = self.scale * acc
        return True
"""


def csr(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    dense = np.where(rng.random((n, n)) < 0.15, rng.random((n, n)), 0).astype(np.float32)
    dense[0] = 0.0
    rows, columns = np.nonzero(dense)
    pointers = np.zeros(n + 1, np.uint32)
    np.cumsum(np.bincount(rows, minlength=n), out=pointers[1:])
    return dense, dense[rows, columns], columns.astype(np.uint16), pointers


def test_power_iteration_on_a_sparse_matrix() -> None:
    """CSR by rows, unbalanced pieces, edges sliced by host data; y becomes x, sixteen times."""
    n = 60
    dense, values, columns, pointers = csr(n, np.random.default_rng(3))
    device, graph = make_graph(SPMV)
    v_t = graph.add_variable(FLOAT, [len(values)], "values")
    c_t = graph.add_variable(UNSIGNED_SHORT, [len(columns)], "columns")
    p_t = graph.add_constant(UNSIGNED_INT, [n + 1], pointers, "row_ptr")
    x = graph.add_variable(FLOAT, [n], "x")
    y = graph.add_variable(FLOAT, [n], "y")
    poputil.map_tensor_linearly(graph, x)
    graph.set_tile_mapping(p_t, 0)
    cs = graph.add_compute_set("spmv")
    share = -(-n // TILES)
    for tile in range(TILES):
        b, e = min(tile * share, n), min((tile + 1) * share, n)
        vb, ve = int(pointers[b]), int(pointers[e])
        for t, lo, hi in ((v_t, vb, ve), (c_t, vb, ve), (y, b, e)):
            graph.set_tile_mapping(t.slice(lo, hi), tile)
        v = graph.add_vertex(
            cs,
            "SpMV",
            {
                "values": v_t.slice(vb, ve),
                "columns": c_t.slice(vb, ve),
                "row_ptr": p_t.slice(b, e + 1),
                "x": x,
                "y": y.slice(b, e),
            },
        )
        graph.set_initial_value(v["scale"], 0.25)
        graph.set_tile_mapping(v, tile)
    graph.create_host_write("values", v_t)
    graph.create_host_write("columns", c_t)
    graph.create_host_write("x", x)
    graph.create_host_read("x", x)
    program = Repeat(16, Sequence([Execute(cs), Copy(y, x)]))
    engine = poplar.Engine(graph, program)
    engine.load(device)
    engine.write_tensor("values", values)
    engine.write_tensor("columns", columns)
    engine.write_tensor("x", np.ones(n, np.float32))
    engine.run(0)
    want = np.ones(n)
    for _ in range(16):
        want = 0.25 * (dense.astype(np.float64) @ want)
    np.testing.assert_allclose(engine.read_tensor("x"), want, rtol=1e-4)


RANK = """
@vertex
class Pull(Vertex):
    sources: Input[Vector[u32]]
    first: Input[Vector[u32]]
    shares: Input[Vector[f32]]
    rank: InOut[Vector[f32]]
    change: Output[f32]
    damping: f32
    nodes: u32

    def compute(self) -> bool:
        total = 0.0
        for i in range(len(self.rank)):
            acc = 0.0
            for e in range(self.first[i], self.first[i + 1]):
                acc += self.shares[self.sources[e]]
            new = (1.0 - self.damping) / f32(self.nodes) + self.damping * acc
            total += abs(new - self.rank[i])
            self.rank[i] = new
        self.change = total
        return total < 1e-6 / 8.0

@vertex
class Share(Vertex):
    rank: Input[Vector[f32]]
    degree: Input[Vector[u32]]
    share: Output[Vector[f32]]

    def compute(self) -> bool:
        for i in range(len(self.rank)):
            self.share[i] = self.rank[i] / f32(max(self.degree[i], 1))
        return True
"""


def test_page_rank_stops_by_the_return_values() -> None:
    """The AND of the vertices' return values ends the loop: Execute with a predicate."""
    n, per = 64, 8
    rng = np.random.default_rng(8)
    links = rng.random((n, n)) < 0.1  # links[i, j]: j links to i
    links[np.arange(n), (np.arange(n) + 1) % n] = True
    device, graph = make_graph(RANK)
    rank = graph.add_variable(FLOAT, [n], "rank")
    share = graph.add_variable(FLOAT, [n], "share")
    degree = graph.add_constant(UNSIGNED_INT, [n], links.sum(0), "degree")
    changes = graph.add_variable(FLOAT, [TILES], "changes")
    done = graph.add_variable(BOOL, [], "done", mapping=0)
    pull, give = graph.add_compute_set("pull"), graph.add_compute_set("give")
    for t in (rank, share, degree):
        poputil.map_tensor_linearly(graph, t, per, per)
    graph.set_initial_value(rank, np.full(n, 1 / n, np.float32))
    for tile in range(TILES):
        rows = slice(tile * per, (tile + 1) * per)
        sources = np.concatenate([np.flatnonzero(r) for r in links[rows]])
        first = np.concatenate([[0], np.cumsum(links[rows].sum(1))])
        v = graph.add_vertex(pull, "Pull", {"shares": share, "rank": rank[rows]})
        for name, data in (("sources", sources), ("first", first)):
            table = graph.add_constant(UNSIGNED_INT, [len(data)], data, f"{name}{tile}")
            graph.set_tile_mapping(table, tile)
            graph.connect(v[name], table)
        graph.set_tile_mapping(changes[tile], tile)
        graph.connect(v["change"], changes[tile])
        graph.set_initial_value(v["damping"], 0.85)
        graph.set_initial_value(v["nodes"], n)
        graph.set_tile_mapping(v, tile)
        w = graph.add_vertex(give, "Share")
        graph.connect(w["rank"], rank[rows])
        graph.connect(w["degree"], degree[rows])
        graph.connect(w["share"], share[rows])
        graph.set_tile_mapping(w, tile)
    step = Sequence([Execute(give), Execute(pull, done)])
    cond = Sequence()
    running = popops.logical_not(graph, done, cond)
    graph.create_host_read("rank", rank)
    engine = poplar.Engine(graph, Sequence([step, RepeatWhileTrue(cond, running, step)]))
    engine.load_and_run(device)
    want = np.full(n, 1 / n)
    for _ in range(200):
        want = 0.15 / n + 0.85 * (links @ (want / links.sum(0)))
    np.testing.assert_allclose(engine.read_tensor("rank"), want, atol=1e-6)


ALIGN = """
NAMESPACE = "bio"
MATCH = 3
MISMATCH = -2
GAP = 2

@vertex
class Diagonal(MultiVertex):
    a: Input[Vector[u8]]
    b: Input[Vector[u8]]
    before: Input[Vector[i32]]
    last: Input[Vector[i32]]
    score: Output[Vector[i32]]
    best: InOut[Vector[i32]]
    k: Input[u32]

    def compute(self, workerId: u32) -> bool:
        n, m = len(self.a), len(self.b)
        k = i32(self.k)
        low = max(0, k - (m - 1))
        high = min(n - 1, k)
        for i in range(low + i32(workerId), high + 1, 6):
            j = k - i
            s = MATCH if self.a[i] == self.b[j] else MISMATCH
            diagonal = self.before[i] + s
            left = self.last[i + 1] - GAP
            up = self.last[i] - GAP
            value = max(0, max(diagonal, max(left, up)))
            self.score[i + 1] = value
            if value > self.best[workerId]:
                self.best[workerId] = value
        return True

@vertex
class Advance(Vertex):
    k: InOut[u32]
    more: Output[bool]
    last: u32

    def compute(self) -> None:
        self.k += 1
        self.more = self.k <= self.last
"""


def smith_waterman(a: bytes, b: bytes) -> int:
    h = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            diagonal = h[i - 1, j - 1] + (3 if x == y else -2)
            h[i, j] = max(0, diagonal, h[i - 1, j] - 2, h[i, j - 1] - 2)
    return int(h.max())


def test_smith_waterman_by_diagonals() -> None:
    a, b = b"GGTTGACTAGCATTAGA", b"TGTTACGGATTTTACA"
    n, m = len(a), len(b)
    device, graph = make_graph(ALIGN, 2)
    names = ["before", "last", "score"]
    rows = {name: graph.add_variable(INT, [n + 1], name, mapping=1) for name in names}
    best = graph.add_variable(INT, [6], "best", mapping=1)
    k = graph.add_variable(UNSIGNED_INT, [], "k", mapping=1)
    more = graph.add_variable(BOOL, [], "more", mapping=1)
    diagonal, advance = graph.add_compute_set("diagonal"), graph.add_compute_set("advance")
    v = graph.add_vertex(diagonal, "bio::Diagonal", {**rows, "best": best, "k": k})
    for field, text in (("a", a), ("b", b)):
        letters = graph.add_constant(UNSIGNED_CHAR, [len(text)], list(text), field, mapping=1)
        graph.connect(v[field], letters)
    graph.set_tile_mapping(v, 1)
    w = graph.add_vertex(advance, "bio::Advance", {"k": k, "more": more})
    graph.set_initial_value(w["last"], n + m - 2)
    graph.set_tile_mapping(w, 1)
    for t in (*rows.values(), best, k):
        graph.set_initial_value(t, 0)
    graph.set_initial_value(more, True)
    body = Sequence([Execute(diagonal), Copy(rows["last"], rows["before"])])
    body.add(Copy(rows["score"], rows["last"]))
    body.add(Execute(advance))
    prog = Sequence(RepeatWhileTrue(Sequence(), more, body))
    result = popops.reduce(graph, best, [0], "max", prog, "best of the workers")
    graph.create_host_read("best", result)
    engine = poplar.Engine(graph, prog)
    engine.load_and_run(device)
    assert int(engine.read_tensor("best")[0]) == smith_waterman(a, b)


FLOYD = """
@vertex
class Relax(Vertex):
    pivot_row: Input[Vector[i32, ONE_PTR]]
    pivot_column: Input[Vector[i32]]
    block: Vector[InOut[Vector[i32]]]

    def compute(self) -> bool:
        for r in range(len(self.block)):
            through = self.pivot_column[r]
            row = self.block[r]
            for c in range(len(row)):
                row[c] = min(row[c], through + self.pivot_row[c])
        return True
"""


def test_floyd_warshall_with_a_compute_set_a_pivot() -> None:
    n, per = 16, 2
    rng = np.random.default_rng(2)
    weights = np.where(rng.random((n, n)) < 0.2, rng.integers(1, 9, (n, n)), 1000).astype(np.int32)
    np.fill_diagonal(weights, 0)
    device, graph = make_graph(FLOYD)
    d = graph.add_variable(INT, [n, n], "distances")
    row = graph.add_variable(INT, [n], "pivot row", mapping=0)
    column = graph.add_variable(INT, [n], "pivot column", mapping=0)
    prog = Sequence()
    for tile in range(n // per):
        graph.set_tile_mapping(d.slice(tile * per, (tile + 1) * per), tile)
    for k in range(n):
        prog.add(Copy(d[k], row))
        prog.add(Copy(d.slice([0, k], [n, k + 1]).flatten(), column))
        cs = graph.add_compute_set(f"relax/{k}")
        for tile in range(n // per):
            v = graph.add_vertex(cs, "Relax")
            graph.connect(v["pivot_row"], row)
            graph.connect(v["pivot_column"], column.slice(tile * per, (tile + 1) * per))
            graph.set_field_size(v["block"], per)
            for i in range(per):
                graph.connect(v["block"][i], d[tile * per + i])
            graph.set_tile_mapping(v, tile)
        prog.add(Execute(cs))
    prog.add(WriteUndef(row))
    graph.create_host_write("d", d)
    graph.create_host_read("d", d)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    engine.write_tensor("d", weights)
    engine.run()
    want = weights.copy()
    for k in range(n):
        want = np.minimum(want, want[:, k : k + 1] + want[k])
    np.testing.assert_array_equal(engine.read_tensor("d").reshape(n, n), want)


SCAN = """
T = TypeVar("T", i32, f32)

@vertex
class Scan(Vertex, Generic[T]):
    data: InOut[Vector[T]]
    total: Output[T]

    def compute(self) -> bool:
        acc = cast(0, T)
        for i in range(len(self.data)):
            acc += self.data[i]
            self.data[i] = acc
        self.total = acc
        return True

@vertex
class AddOffset(Vertex, Generic[T]):
    data: InOut[Vector[T]]
    before: Input[Vector[T]]

    def compute(self) -> bool:
        offset = cast(0, T)
        for value in self.before:
            offset += value
        for i in range(len(self.data)):
            self.data[i] += offset
        return True
"""


@pytest.mark.parametrize("dtype", [INT, FLOAT])
def test_prefix_sum_over_tiles(dtype: poplar.DType) -> None:
    """`templateVertex`: the type is part of the vertex's name; tile t reads the totals before."""
    n = 100
    device, graph = make_graph(SCAN)
    data = graph.add_variable(dtype, [n], "data")
    poputil.map_tensor_linearly(graph, data, 1, 1)
    totals = graph.add_variable(dtype, [TILES], "totals")
    scan, shift = graph.add_compute_set("scan"), graph.add_compute_set("shift")
    name = "float" if dtype is FLOAT else "int"
    for tile, intervals in enumerate(graph.get_tile_mapping(data)):
        for interval in intervals:
            part = data.slice(interval)
            graph.set_tile_mapping(totals[tile], tile)
            v = graph.add_vertex(scan, f"Scan<{name}>", {"data": part, "total": totals[tile]})
            graph.set_tile_mapping(v, tile)
            edges = {"data": part, "before": totals.slice(0, tile)}
            w = graph.add_vertex(shift, f"AddOffset<{name}>", edges)
            graph.set_tile_mapping(w, tile)
    graph.create_host_write("data", data)
    graph.create_host_read("data", data)
    engine = poplar.Engine(graph, Sequence([Execute(scan), Execute(shift)]))
    engine.load(device)
    values = np.random.default_rng(4).integers(-50, 50, n).astype(dtype.numpy)
    engine.write_tensor("data", values)
    engine.run()
    np.testing.assert_array_equal(engine.read_tensor("data"), np.cumsum(values))


HISTOGRAM = """
@vertex
class Histogram(MultiVertex):
    data: Input[Vector[u8, SPAN, 8]]
    counts: Vector[Output[Vector[u32, ONE_PTR]]]

    def compute(self, worker: u32) -> bool:
        mine = self.counts[worker]
        for b in range(256):
            mine[b] = 0
        for i in range(worker, len(self.data), 6):
            mine[self.data[i]] += 1
        return True
"""


def test_histogram_by_workers() -> None:
    n = 1000
    device, graph = make_graph(HISTOGRAM)
    text = graph.add_variable(UNSIGNED_CHAR, [n], "text")
    counts = graph.add_variable(UNSIGNED_INT, [TILES, 6, 256], "counts")
    poputil.map_tensor_linearly(graph, text, 8, 8)
    cs = graph.add_compute_set("count")
    mapping = graph.get_tile_mapping(text)
    for tile in range(TILES):
        graph.set_tile_mapping(counts[tile], tile)
        part = poplar.concat([text.slice(i.begin, i.end) for i in mapping[tile]])
        v = graph.add_vertex(cs, "Histogram", {"data": part, "counts": counts[tile]})
        graph.set_tile_mapping(v, tile)
    prog = Sequence([Execute(cs)])
    total = popops.reduce(graph, counts, [0, 1], "add", prog, "total")
    graph.create_host_write("text", text)
    graph.create_host_read("total", total)
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    data = np.random.default_rng(7).integers(0, 256, n).astype(np.uint8)
    engine.write_tensor("text", data)
    engine.run()
    np.testing.assert_array_equal(engine.read_tensor("total"), np.bincount(data, minlength=256))


SEARCH = """
def matches(text: Input[Vector[u8]], pattern: Input[Vector[u8]], at: i32) -> bool:
    for j in range(len(pattern)):
        if text[at + j] != pattern[j]:
            return False
    return True

@vertex
class Find(Vertex):
    text: Input[Vector[u8]]
    pattern: Input[Vector[u8]]
    first: Output[i32]
    offset: u32

    def compute(self) -> bool:
        self.first = -1
        for i in range(len(self.text) - len(self.pattern) + 1):
            if matches(self.text, self.pattern, i):
                self.first = i + i32(self.offset)
                break
        return True
"""


def test_string_search_with_overlapping_pieces(capfd: pytest.CaptureFixture[str]) -> None:
    haystack = b"the tiles of the IPU compute, exchange and sync; the host streams" * 3
    needle = b"exchange and"
    n, m = len(haystack), len(needle)
    device, graph = make_graph(SEARCH)
    text = graph.add_variable(UNSIGNED_CHAR, [n], "text")
    pattern = graph.add_constant(UNSIGNED_CHAR, [m], np.frombuffer(needle, np.uint8), "pattern")
    graph.set_tile_mapping(pattern, TILES - 1)
    poputil.map_tensor_linearly(graph, text, 1, 4)
    found = graph.add_variable(INT, [TILES], "found")
    cs = graph.add_compute_set("find")
    graph.set_initial_value(found, np.full(TILES, -1))
    for tile, parts in enumerate(graph.get_tile_mapping(text)):
        if not parts:
            graph.set_tile_mapping(found[tile], tile)
            continue
        begin, end = parts[0].begin, parts[-1].end
        graph.set_tile_mapping(found[tile], tile)
        v = graph.add_vertex(cs, "Find")
        graph.connect(v["text"], text.slice(begin, min(end + m - 1, n)))
        graph.connect(v["pattern"], pattern)
        graph.connect(v["first"], found[tile])
        graph.set_initial_value(v["offset"], begin)
        graph.set_tile_mapping(v, tile)
    graph.create_host_write("text", text)
    graph.create_host_read("found", found)
    prog = Sequence([Execute(cs), PrintTensor("found", found), PrintTensor(found.slice(0, 2))])
    engine = poplar.Engine(graph, prog)
    engine.load(device)
    engine.write_tensor("text", np.frombuffer(haystack, np.uint8))
    engine.run()
    got = engine.read_tensor("found")
    assert int(got[got >= 0].min()) == haystack.find(needle)
    shown = capfd.readouterr().err
    assert f"found: [{', '.join(f'{v:>3}' for v in got)}]" in shown
