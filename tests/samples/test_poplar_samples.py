"""Every sample of `samples/poplar` gives its result, and so does its graph's text.

A sample runs in this process with an engine that does everything twice: with the sample's graph,
and with the graph parsed from its text. The text must come out of the parsed graph byte for byte,
and every array that leaves the two engines must have the same bits.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py import poplar
from poplar_py.driver import poplar_engine
from poplar_py.poplar.program import Program
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.runtime.stream_calls import is_ndarray

SMALL: dict[str, list[str]] = {
    "breadth_first_search": ["--nodes", "200", "--tiles-per-ipu", "16"],
    "conjugate_gradient": ["--size", "10", "--tiles-per-ipu", "16"],
    "game_of_life": ["--size", "12", "--tiles-per-ipu", "9"],
    "gaussian_blur": ["--size", "24", "--tiles-per-ipu", "16"],
    "heat_2d": ["--size", "24", "--steps", "10", "--tiles-per-ipu", "16"],
    "heat_3d": ["--size", "8", "--steps", "6", "--tiles-per-ipu", "8"],
    "lattice_boltzmann": ["--size", "16", "--steps", "10", "--tiles-per-ipu", "16"],
    "monte_carlo_pi": ["--points", "500", "--tiles-per-ipu", "64"],
    "sample_sort": ["--keys", "512", "--sorters", "8", "--tiles-per-ipu", "16"],
    "saved_executables": ["--tiles-per-ipu", "8"],
    "streams": ["--tiles-per-ipu", "8"],
    "tut1_variables": ["--tiles-per-ipu", "8"],
    "tut2_library_ops": ["--tiles-per-ipu", "8"],
    "tut3_own_vertices": ["--tiles-per-ipu", "8"],
    "tut4_profiling": ["--size", "24", "--tiles-per-ipu", "16"],
    "tut5_matrix_vector": ["--rows", "60", "--cols", "40", "--tiles-per-ipu", "16"],
    "tut6_matrix_vector_planned": ["--rows", "60", "--cols", "40", "--tiles-per-ipu", "16"],
}
HELPERS = {"blocks", "common"}


@pytest.fixture
def folder(repo_root: Path) -> Iterator[Path]:
    """The samples' folder, on the path as when a sample is run as a script."""
    found = repo_root / "samples/poplar"
    sys.path.insert(0, str(found))
    yield found
    sys.path.remove(str(found))
    for helper in HELPERS:
        sys.modules.pop(helper, None)


def from_text(graph: poplar.Graph, programs: Any) -> poplar_engine.Executable:
    """Compiles a graph's text; the text has to survive parsing and printing."""
    todo = [programs] if isinstance(programs, Program) else list(programs)
    text = print_tile_module(graph, todo, inline_resources=True)
    parsed = parse_tile_module(text, "sample.pir")
    again = print_tile_module(parsed.graph, parsed.programs, parsed.names, inline_resources=True)
    assert again == text
    return poplar_engine.compile_graph(parsed.graph, parsed.programs)


class Twins:
    """What the samples of one test compiled and read."""

    def __init__(self) -> None:
        self.saved: poplar_engine.Executable | None = None
        self.compared = 0

    def same(self, one: np.ndarray, other: np.ndarray) -> None:
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
        self.compared += 1

    def compile_graph(self, graph: poplar.Graph, programs: Any) -> poplar_engine.Executable:
        self.saved = from_text(graph, programs)
        return poplar_engine.compile_graph(graph, programs)


class TwinEngine(poplar_engine.Engine):
    """An engine whose twin runs the text of the same graph with the same data."""

    twins: Twins

    def __init__(self, what: Any, programs: Any = (), *args: Any, **options: Any) -> None:
        super().__init__(what, programs, *args, **options)
        of_text = from_text(what, programs) if isinstance(what, poplar.Graph) else self.twins.saved
        assert of_text is not None
        self.twin = poplar_engine.Engine(of_text)
        self.outputs: list[tuple[np.ndarray, np.ndarray]] = []

    def load(self, device: poplar.Device | None = None) -> None:
        super().load(device)
        self.twin.load(device)

    def run(self, program: Any = 0, *args: Any, **options: Any) -> None:
        super().run(program, *args, **options)
        self.twin.run(program, *args, **options)
        for one, other in self.outputs:
            self.twins.same(one, other)

    def write_tensor(self, handle: str, array: Any) -> None:
        super().write_tensor(handle, array)
        self.twin.write_tensor(handle, array)

    def read_tensor(self, handle: str) -> Any:
        found = super().read_tensor(handle)
        self.twins.same(found, self.twin.read_tensor(handle))
        return found

    def connect_stream(self, handle: str, source: Any, replica: int | None = None) -> None:
        to_host = self.executable.streams[handle].to_host
        other: Any = source
        is_array = is_ndarray(source)
        if not is_array:
            source, other = self.recorded(source, to_host)
        elif to_host:
            other = np.array(source)
            self.outputs.append((source, other))
        super().connect_stream(handle, source, replica)
        self.twin.connect_stream(handle, other, replica)

    def recorded(self, callback: Any, to_host: bool) -> tuple[Any, Callable[[np.ndarray], None]]:
        """The callback with its data noted, and one that gives (or compares) the same again."""
        seen: deque[np.ndarray] = deque()

        def again(buffer: np.ndarray) -> None:
            if to_host:
                self.twins.same(seen.popleft(), buffer.copy())
            else:
                buffer[:] = seen.popleft()

        return Recorder(callback, seen), again


class Recorder(poplar.StreamCallback):
    """Passes a callback's calls on; notes the data of completed transfers."""

    def __init__(self, callback: Any, seen: deque[np.ndarray]) -> None:
        self.callback, self.seen = callback, seen
        self.current = np.zeros(0)

    def fetch(self, buffer: np.ndarray) -> None:
        getattr(self.callback, "fetch", self.callback)(buffer)
        self.current = buffer.copy()

    def prefetch(self, buffer: np.ndarray) -> bool:
        if not hasattr(self.callback, "prefetch") or not self.callback.prefetch(buffer):
            return False
        self.current = buffer.copy()
        return True

    def complete(self) -> None:
        self.seen.append(self.current)
        if hasattr(self.callback, "complete"):
            self.callback.complete()


def run_sample(path: Path, arguments: list[str], patch: pytest.MonkeyPatch) -> Twins:
    twins = Twins()
    engine = type("Twin", (TwinEngine,), {"twins": twins})
    patch.setattr(poplar, "Engine", engine, raising=False)
    patch.setattr(poplar, "compile_graph", twins.compile_graph, raising=False)
    patch.setattr(sys, "argv", [str(path), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    return twins


def test_every_sample_is_here(repo_root: Path) -> None:
    found = {path.stem for path in (repo_root / "samples/poplar").glob("*.py")}
    assert found - HELPERS == set(SMALL)
    readme = (repo_root / "README.md").read_text()
    assert [name for name in sorted(SMALL) if f"{name}.py" not in readme] == []


@pytest.mark.parametrize("name", sorted(SMALL))
def test_sample(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = run_sample(folder / f"{name}.py", SMALL[name], monkeypatch)
    assert twins.compared


def test_planned_product_on_a_whole_ipu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures of the tutorial for 10,000 x 1,000: see the reference of the cost rule there."""
    path = folder / "tut6_matrix_vector_planned.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--rows", "10000", "--cols", "1000", "--steps"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "split 7: 3,996 cycles predicted = 3,696 multiply + 143 fetch" in out
    assert "+ 49 gather + 108 reduce" in out
    assert abs(figure(out, r"DoExchange +multiply +1 +([\d,]+)") / 143 - 1) < 0.1
    assert abs(figure(out, r"DoExchange +reduce +1 +([\d,]+)") / 49 - 1) < 0.1
    assert figure(out, r"OnTileExecute +multiply +1 +([\d,]+)") == 3696
    assert figure(out, r"OnTileExecute +reduce +1 +([\d,]+)") == 108
    busy = figure(out, r"compute cycles \(excluding idle threads\) +([\d,.]+)")
    assert abs(busy / 3717.6 - 1) < 0.02
    exchange = figure(out, r"IPU exchange cycles +([\d,.]+)")  # rearranging the matrix included
    assert abs(exchange / 8697.4 - 1) < 0.1
    for row in ("fragments +multiply", "Sync +multiply", "DoExchange +rearrange matrix"):
        assert re.search(row, out)
    for stream in ("matrix from host", "vector from host", "out to host"):
        assert re.search(f"StreamCopy +{stream}", out)


def figure(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found is not None
    return float(found[1].replace(",", ""))
