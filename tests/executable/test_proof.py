"""Files that nobody vouches for: built-in codelets without bounds checks where their rows prove
that they stay in the arena, with checks where they do not."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poplar_py as pp
from poplar_py.codegen import program_words as isa
from poplar_py.codegen.emit import emit_kernel
from poplar_py.codelets.codelet import CodeletLibrary
from poplar_py.codelets.reach import Sizes, reach_of
from poplar_py.codelets.rows import row_layout
from poplar_py.diagnostics import FileError, PoplarPyError
from poplar_py.driver.executable import INPUT, OUTPUT
from poplar_py.executable.executable import Executable
from poplar_py.executable.pexe import load_executable, save_executable
from poplar_py.executable.proof import proved_codelets, proved_rows, row_reach
from poplar_py.executable.schedule import shared_jit
from poplar_py.poplar import Graph, Target, compile_graph
from poplar_py.poplar.arrays import ragged
from poplar_py.poplar.program import Execute
from poplar_py.runtime.engine import TileEngine
from poplar_py.runtime.kernels import is_checked
from poplar_py.types import f32

MODELS = {
    "mlp": (
        "model m(x: f32[8, 40]) -> y: f32[8, 10] {\n"
        "    param w: f32[40, 33] = glorot_uniform()\n    param c: f32[33] = zeros\n"
        "    param v: f32[33, 10] = glorot_uniform()\n"
        "    y = softmax(relu(x @ w + c) @ v)\n}\n"
    ),
    "cnn": (
        "model m(x: f32[2, 3, 13, 13]) -> y: f32[2, 5] {\n"
        "    param w1: f32[8, 3, 3, 3] = he_normal()\n    param w2: f32[8, 8, 3, 3] = he_normal()\n"
        "    param w3: f32[8, 5] = glorot_uniform()\n"
        "    b = max_pool(relu(conv(relu(conv(x, w1, pad=1)), w2)), 2, stride=2)\n"
        "    y = softmax(mean(b, axes=[2, 3]) @ w3)\n}\n"
    ),
}


@pytest.fixture(scope="module")
def executables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Executable]:
    folder = tmp_path_factory.mktemp("models")
    out: dict[str, Executable] = {}
    for name, text in MODELS.items():
        (folder / f"{name}.pml").write_text(text)
        out[name] = pp.compile(pp.load(folder / f"{name}.pml"), system="ipu", tiles_per_ipu=12).tile
    return out


def again(exe: Executable, folder: Path) -> Executable:
    save_executable(exe, folder / "m.pexe")
    return load_executable(folder / "m.pexe")


def output(exe: Executable, timeout: float = 20.0, **how: Any) -> bytes:
    with TileEngine(exe, threads=1, **how) as engine:
        (name,) = [h for h in exe.streams if h.startswith(INPUT)] or [INPUT + "x"]
        number = exe.streams[name].region if name in exe.streams else exe.host_writes[name]
        x = np.random.default_rng(0).standard_normal(exe.regions[number].numel)
        engine.write(name, x.astype(np.float32))
        engine.run(0, timeout=timeout)
        return engine.read(OUTPUT + "y").tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_all_of_a_model_is_proved(
    name: str, executables: dict[str, Executable], tmp_path: Path
) -> None:
    exe = executables[name]
    loaded = again(exe, tmp_path)
    assert loaded.proved == frozenset(range(len(exe.codelets)))
    assert not any(c.builtin for c in loaded.codelets)
    assert not any(is_checked(loaded, k, None) for k in loaded.proved)
    assert output(loaded) == output(exe) == output(loaded, checked=True)


# ---------------------------------------------------------------------------- the account is right
def kernel(exe: Executable, number: int) -> Any:
    symbol, text = emit_kernel(exe.codelets[number], checked=True, wide=exe.wide)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    return kind(shared_jit().load({symbol: text})[symbol])


def last_place(exe: Executable, number: int, words: Any, ptr: Any) -> int:
    """Move every run without a size to the last address it may have; returns how many moved."""
    codelet, row = exe.codelets[number], ptr[:-1]
    layout = row_layout(codelet.fields, exe.wide)
    reach = row_reach(codelet, layout, words, row)
    assert reach is not None
    moved = 0
    for slot in layout.slots:
        sized = slot.kind == "span" or (slot.kind == "list" and slot.entry_words == 2)
        if slot.kind == "value" or sized:
            continue
        at, owner = row + slot.word, np.arange(len(row))
        if slot.kind == "list":
            owner, rank = ragged(words[row + slot.word + 1].astype(np.int64))
            at = (row + words[row + slot.word].astype(np.int64))[owner] + rank * slot.entry_words
        words[at] = exe.arena_bytes - reach.high[slot.field.name][owner] * slot.field.dtype.size
        moved += len(at)
    found = proved_rows(exe, codelet, words, ptr)
    assert found is not None
    assert found.all()
    return moved


@pytest.mark.parametrize("name", MODELS)
def test_checked_code_agrees(name: str, executables: dict[str, Executable]) -> None:
    """Every run without a size at the last address for which the proof holds: code that checks each
    access against the end of memory finds nothing."""
    exe = executables[name]
    moved = 0
    arena = np.zeros(exe.arena_bytes + 64, np.uint8)
    base = arena.ctypes.data + (-arena.ctypes.data % 64)
    for t in [t for t in exe.tables if t.kernel.startswith("vertex:")]:
        number, words = int(t.kernel[7:]), t.words.copy()
        moved += last_place(exe, number, words, t.ptr)
        ctx = np.zeros(isa.CTX_WORDS, np.int64)
        ctx[isa.MEMORY_BYTES] = exe.arena_bytes
        kernel(exe, number)(base, words.ctypes.data, t.rows, ctx.ctypes.data)
        assert ctx[isa.ERROR] == 0, exe.codelets[number].name
    assert moved > 10


# ---------------------------------------------------------------------------- edited files
def first_use(exe: Executable, start: str) -> tuple[int, Any]:
    """(codelet, table) of the first table of a codelet by the start of its name."""
    for t in exe.tables:
        if t.kernel.startswith("vertex:"):
            number = int(t.kernel[7:])
            if exe.codelets[number].name.startswith(start):
                return number, t
    raise AssertionError(start)


@pytest.mark.parametrize(
    ("name", "start", "field", "value"),
    [
        ("mlp", "expr::Map", "rows", 1 << 30),
        ("mlp", "expr::Map", "cols", 100_000),
        ("cnn", "popops::Reduce", "n", 100_000_000),
        ("cnn", "popops::Reduce", "n", (1 << 31) - 1),
        ("mlp", "popnn::Softmax", "n", -1),
        ("cnn", "poplin::ConvBlock", "lines", (1 << 31) - 1),
    ],
)
def test_edited_state_is_checked(
    name: str,
    start: str,
    field: str,
    value: int,
    executables: dict[str, Executable],
    tmp_path: Path,
) -> None:
    exe = again(executables[name], tmp_path)
    number, table = first_use(exe, start)
    slot = row_layout(exe.codelets[number].fields, exe.wide).slot(field)
    table.words = table.words.copy()
    table.words[table.ptr[:-1] + slot.word] = np.uint32(value & 0xFFFFFFFF)
    found = proved_rows(exe, exe.codelets[number], table.words, table.ptr)
    assert found is not None
    assert not found.any()


def test_hints_stay_in_their_table(executables: dict[str, Executable], tmp_path: Path) -> None:
    """How many rows on a hint looks is a word of the row; what is read there is the table's."""
    for value, fits in ((1, True), (3, True), (1 << 31, False), (0xFFFFFFFF, False)):
        exe = again(executables["cnn"], tmp_path)
        number, table = first_use(exe, "poplin::ConvBlock")
        slot = row_layout(exe.codelets[number].fields, exe.wide).slot("ahead")
        table.words = table.words.copy()
        table.words[table.ptr[:-1] + slot.word] = value
        exe.codelets[number].builtin = True
        if fits:
            assert number in again(exe, tmp_path).proved
            continue
        with pytest.raises(FileError, match="points back"):
            again(exe, tmp_path)


def test_hints_name_runs_of_their_list() -> None:
    """A run that its list does not have is found before a hint looks for it."""
    library = CodeletLibrary()
    library.add_source(
        "@vertex\nclass V(Vertex):\n    x: Vector[Input[Vector[f32, ONE_PTR]]]\n    j: i32\n"
        "    y: Output[Vector[f32]]\n\n    def compute(self) -> None:\n"
        "        prefetch(self.x[self.j], 0)\n        self.y[0] = 1.0\n"
    )
    ir = library.get("V").ir
    counts = {"x": np.array([3, 3]), "y": np.array([1, 1])}
    found = reach_of(ir, Sizes(2, {"j": np.array([2, 3])}, counts, {}))
    assert found is not None
    assert found.known.tolist() == [True, False]


WORDS = np.array([0, 1, 7, 1 << 12, 20_000, (1 << 31) - 1, 1 << 31, 0xFFFFFFFF], np.uint32)


def test_random_edits_never_leave_the_arena(
    executables: dict[str, Executable], tmp_path: Path
) -> None:
    """Random words of tables: a file is refused, or runs to an end or an error."""
    rng = np.random.default_rng(1)
    refused = ran = checked = 0
    for k in range(8):
        exe = again(executables["cnn" if k % 2 else "mlp"], tmp_path)
        for t in exe.tables:
            if t.kernel.startswith("vertex:") and rng.random() < 0.5:
                t.words = t.words.copy()
                slots = row_layout(exe.codelets[int(t.kernel[7:])].fields, exe.wide).slots
                state = [s.word for s in slots if s.kind == "value"] or [0]
                at = t.ptr[rng.integers(0, t.rows, 2)] + rng.choice(state, 2)
                at[0] = rng.integers(0, len(t.words)) if k % 4 == 0 else at[0]
                t.words[at] = rng.choice(WORDS, 2)
        for c in exe.codelets:
            c.builtin = True  # what the file says of them
        try:
            loaded = again(exe, tmp_path)
        except FileError:
            refused += 1
            continue
        checked += len(loaded.proved) < len(loaded.codelets)
        with contextlib.suppress(PoplarPyError):
            output(loaded, timeout=0.2)
        ran += 1
    assert refused
    assert ran
    assert checked > 0


def test_nested_loops_are_not_walked_for_ever() -> None:
    body = (
        "".join("    " * (2 + k) + f"for i{k} in range(2):\n" for k in range(30))
        + "    " * 32
        + "self.y[0] = 1.0\n"
    )
    library = CodeletLibrary()
    library.add_source(
        "@vertex\nclass V(Vertex):\n    y: InOut[Vector[f32]]\n\n"
        f"    def compute(self) -> None:\n{body}"
    )
    sizes = Sizes(1, {}, {"y": np.array([4])}, {})
    assert reach_of(library.get("V").ir, sizes) is None


def test_numbers_that_wrap_beyond_the_intervals_are_not_proved() -> None:
    """k * k * k is 0 in 64 bits, and less than 10: the write is reached."""
    source = (
        "@vertex\nclass Wraps(Vertex):\n    y: Output[Vector[f32]]\n    n: i32\n\n"
        "    def compute(self) -> None:\n        k = i64(self.n)\n"
        "        if k * k * k < i64(10):\n            self.y[100000] = 1.0\n"
    )
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=2))
    graph.add_codelets(source, file="wraps.py")
    y = graph.add_variable(f32, (4,), "y", mapping=0)
    cs = graph.add_compute_set("cs")
    vertex = graph.add_vertex(cs, "Wraps", {"y": y})
    graph.set_initial_value(vertex["n"], 1 << 30)
    graph.set_tile_mapping(vertex, 0)
    exe = compile_graph(graph, Execute(cs))
    assert proved_codelets(exe, set(range(len(exe.codelets)))) == frozenset()
