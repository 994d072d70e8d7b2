"""Neighbouring vertices put together: which codelets allow it, that rows get fewer, and that all
else stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py import popnn, popops
from poplar_py.cli.main import run_cli
from poplar_py.codelets import get
from poplar_py.codelets.codelet import CodeletLibrary
from poplar_py.codelets.concat import Concat, concat_of, derive, numbers
from poplar_py.codelets.rows import RowLayout, row_layout
from poplar_py.executable.build import build_executable
from poplar_py.executable.merge import merge_rows
from poplar_py.executable.tables import FieldWords, GroupWords, fill_rows
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import Sequence
from poplar_py.poputil import map_tensor_linearly
from poplar_py.runtime.engine import TileEngine
from poplar_py.target.target import Target
from poplar_py.types import f32

KNOWN: dict[str, dict[str, int] | None] = {
    "popops::Fill<float>": {"out": 1},
    "popops::ReduceRows<float,float,float,0>": {"out": 1, "x": 6},
    "popops::ReduceCols<float,float,float,0>": {"out": 5, "x": 30},
    "expr::Map<add($0,$1)|f32|f32:full|f32:scalar>": {"out": 1, "in0": 1},
    "expr::Map<add($0,$1)|f32|f32:full|f32:row>": {"out": 5, "in0": 5},
    "expr::Map<add($0,$1)|f32|f32:full|f32:col>": {"out": 5, "in0": 5, "in1": 1},
    "popnn::SoftmaxBlocks<float,float,false>": {"out": 16, "x": 16},
    "popnn::LayerNorm<float,float,true,true>": {"out": 6, "x": 6},
    "popnn::MaxPoolBody<float,16,2,2,0,0>": {"out": 16, "x": 32},
    "popnn::MaxPoolBody<float,16,2,2,1,0>": None,  # its first pixel is another
    "poplin::ReduceBlock<float,1>": {"out": 1, "part": 1, "res": 1},
    "poplin::ConvBlock<float,1,1,1,8,2,16,16,0,0,0,true>": None,  # the sums are one block
    "popops::Gather<float>": None,  # may end the run with the vertex's name
    "poplin::TransposeBlock<float>": None,  # a round has a run of its own
}
STATE = {"n": np.array([6]), "cols": np.array([5]), "pitch": np.array([5]), "rows": np.array([3])}


@pytest.mark.parametrize("name", KNOWN)
def test_what_moves(name: str) -> None:
    found = concat_of(get(name))
    expected = KNOWN[name]
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert {k: int(numbers(e, STATE, {}).max()) for k, e in found.strides.items()} == expected


BODIES = {
    "plain": "for i in range(len(self.y)):\n  self.y[i] = self.x[i] * 2.0",
    "counted": "for i in range(self.s):\n  self.y[i] = self.x[i]",
    "carried": "t = 0.0\nfor i in range(len(self.y)):\n  t = t + self.x[i]\n  self.y[i] = t",
    "compared": "for i in range(len(self.y)):\n  if i > 0:\n    self.y[i] = self.x[i]",
    "square": "for i in range(len(self.y)):\n  self.y[i] = self.x[i * i]",
    "value": "for i in range(len(self.y)):\n  self.y[i] = self.x[i] + f32(i)",
    "backwards": "n = len(self.y)\nfor i in range(n):\n  self.y[i] = self.x[n - 1 - i]",
    "kept": "for i in range(len(self.y)):\n  self.k = self.k + 1\n  self.y[i] = self.x[i]",
    "two": "for i in range(self.s):\n  self.y[i] = 0.0\nfor j in range(self.s):\n  self.y[j] = 1.0",
    "length": "for i in range(len(self.y)):\n  self.y[i] = self.x[i] / f32(len(self.y))",
    "state": "for i in range(self.s):\n  self.y[i] = self.x[i] + f32(self.s)",
}
POSSIBLE = ("plain", "counted")


@pytest.mark.parametrize("what", BODIES)
def test_what_depends_on_where_a_vertex_begins(what: str) -> None:
    body = "".join(f"        {line}\n" for line in BODIES[what].split("\n"))
    library = CodeletLibrary()
    library.add_source(
        "@vertex\nclass V(Vertex):\n    x: Input[Vector[f32]]\n    y: InOut[Vector[f32]]\n"
        f"    s: i32\n    k: i32\n\n    def compute(self) -> None:\n{body}"
    )
    assert (derive(library.get("V").ir) is not None) == (what in POSSIBLE)


# ---------------------------------------------------------------------------- tables
def random_rows(name: str, wide: bool) -> tuple[GroupWords, RowLayout, Concat]:
    """Rows of a codelet; most go on where the one before ends."""
    rng = np.random.default_rng(len(name))
    codelet, n = get(name), 40
    how = concat_of(codelet)
    assert how is not None
    layout = row_layout(codelet.fields, wide)
    rounds = rng.integers(1, 4, n) * how.step
    state = {f.name: np.full(n, 3, f.dtype.numpy) for f in codelet.fields if f.literal}
    for key in state.keys() & {"n", "cols"}:
        state[key] = np.repeat(rng.choice([2, 5], 4), n // 4).astype(state[key].dtype)
    if "rows" in state:
        state["rows"] = rounds.astype(state["rows"].dtype)
    known = {k: v.astype(np.int64) for k, v in state.items()}
    if how.flat:
        rounds = rounds * known["cols"]
    gap = rng.random(n) < 0.2
    edges: dict[str, FieldWords] = {}
    for slot in layout.slots:
        if slot.kind == "value":
            continue
        field = slot.field
        at, count = np.repeat(rng.choice([512, 1024], n // 8), 8), np.full(n, 16)
        if field.name in how.strides:
            count = rounds * numbers(how.strides[field.name], known, {})
            at = (np.cumsum(count + gap) - count) * field.dtype.size + 4096
        if slot.kind == "list":
            at = (at[:, None] + 65536 * np.arange(3)).reshape(-1)
            edges[field.name] = FieldWords(at, np.repeat(count, 3), np.arange(n + 1) * 3)
        else:
            edges[field.name] = FieldWords(at, count)
    return fill_rows(layout, n, edges, state), layout, how  # type: ignore[arg-type]


def rounds_of(words: Any, length: Any, layout: RowLayout, how: Concat) -> list[tuple[Any, ...]]:
    """What every round of every row works on, in order."""
    out: list[tuple[Any, ...]] = []
    counted = {"rows", "cols"} if how.flat else {how.adds}
    for row in (np.cumsum(length) - length).tolist():
        state: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        runs: list[tuple[str, int, int]] = []
        for slot in layout.slots:
            name, at, size = slot.field.name, row + slot.word, slot.field.dtype.size
            if slot.kind == "value":
                state[name] = np.asarray(int(words[at]))
                continue
            sizes[name] = np.asarray(int(words[at + 1])) if slot.kind != "addr" else None
            where = [at]
            if slot.kind == "list":
                where = [row + int(words[at]) + k * slot.entry_words for k in range(sizes[name])]
            runs += [(name, size, int(words[w])) for w in where]
        kept = tuple((k, int(v)) for k, v in state.items() if k not in counted)
        for r in range(0, int(numbers(how.upper, state, sizes)), how.step):
            move = {k: int(numbers(e, state, sizes)) * r for k, e in how.strides.items()}
            out.append((kept, tuple((k, at + move.get(k, 0) * size) for k, size, at in runs)))
    return out


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", [k for k, v in KNOWN.items() if v is not None])
def test_rounds_stay(name: str, wide: bool) -> None:
    rows, layout, how = random_rows(name, wide)
    length = np.diff(rows.ptr)
    merged, first = merge_rows(rows.words, length, layout, how)
    assert 1 < len(first) < len(length)
    assert rounds_of(merged, length[first], layout, how) == rounds_of(
        rows.words, length, layout, how
    )


def test_indices_stay_32_bits_wide() -> None:
    layout = row_layout(get("popops::Fill<float>").fields, wide=True)
    how = concat_of(get("popops::Fill<float>"))
    assert how is not None
    size = np.full(4, 1 << 30)
    edges = {"out": FieldWords(np.arange(4) * 4 << 30, size)}
    rows = fill_rows(layout, 4, edges, {"value": np.ones(4, np.float32)})
    _, first = merge_rows(rows.words, np.diff(rows.ptr), layout, how)
    assert first.tolist() == [0, 1, 2, 3]


# ---------------------------------------------------------------------------- programs
def program() -> tuple[Graph, Sequence]:
    graph, prog = Graph(Target.ipu("gc200", 1, 4)), Sequence()
    x = graph.add_variable(f32, (64, 96), name="x")
    row = graph.add_variable(f32, (96,), name="row")
    for t in (x, row):
        map_tensor_linearly(graph, t)
    y = popops.map(graph, "add(mul($0,$1),c(1.0))", [x, row], prog, "scaled")
    s = popnn.softmax(graph, popops.map(graph, "exp($0)", [y], prog, "exp"), 1, prog)
    graph.create_host_write("x", x)
    graph.create_host_write("row", row)
    graph.create_host_read("s", s)
    return graph, prog


def test_fewer_rows_and_the_same_bits() -> None:
    graph, prog = program()
    exe = build_executable(graph, [prog])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(64 * 96), "row": rng.standard_normal(96)}
    found: dict[tuple[int, bool, bool], bytes] = {}
    rows: dict[tuple[int, bool, bool], int] = {}
    for threads, faithful, merge in ((1, False, True), (1, False, False), (2, True, True)):
        how = {"threads": threads, "faithful_exchange": faithful, "merge_vertices": merge}
        with TileEngine(exe, **how) as engine:  # type: ignore[arg-type]
            for name, values in feeds.items():
                engine.write(name, values.astype(np.float32))
            engine.run(0)
            found[threads, faithful, merge] = engine.read("s").tobytes()
            rows[threads, faithful, merge] = engine.host_rows
            assert engine.cycles().runs.tolist() == [1] * len(exe.steps)
    assert len(set(found.values())) == 1
    assert rows[1, False, False] == exe.vertices
    assert rows[1, False, True] * 2 < exe.vertices
    assert rows[2, True, True] * 2 < exe.vertices


def test_checked_code_keeps_its_rows() -> None:
    graph, prog = program()
    exe = build_executable(graph, [prog])
    with TileEngine(exe, checked=True) as engine:
        assert engine.host_rows == exe.vertices


def test_the_command_line_runs_vertices_by_themselves(tmp_path: Path) -> None:
    text = "model m(x: f32[64, 96]) -> y: f32[64, 96] { y = exp(x) * x }\n"
    (tmp_path / "m.pml").write_text(text)
    found: list[np.ndarray] = []
    for more in ([], ["--no-merge-vertices"]):
        out = tmp_path / f"{len(found)}.npz"
        common = ["--random-inputs", "3", "--system", "ipu", "--tiles-per-ipu", "4"]
        assert run_cli(["run", str(tmp_path / "m.pml"), *common, *more, "--output", str(out)]) == 0
        with np.load(out) as arrays:
            found.append(arrays["y"])
    assert found[0].tobytes() == found[1].tobytes()
