"""Poplar's Engine: stream callbacks, options, saved executables, reports."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py import poplar, popops
from poplar_py.diagnostics import FileError, InputError, OptionError, RunTimeout
from poplar_py.poplar.program import Copy, Execute, Repeat, Sequence

SIZE = 16


def new_graph() -> poplar.Graph:
    return poplar.Graph(poplar.Target.ipu("gc200", tiles_per_ipu=4))


def squares(times: int) -> tuple[poplar.Graph, Repeat]:
    """A program that reads blocks from stream `in` and writes their squares to `out`."""
    graph = new_graph()
    x = graph.add_variable(poplar.FLOAT, [SIZE], "x", mapping="linear")
    source = graph.add_host_to_device_fifo("in", poplar.FLOAT, SIZE)
    sink = graph.add_device_to_host_fifo("out", poplar.FLOAT, SIZE)
    body = Sequence(Copy(source, x))
    y = popops.map(graph, "mul($0,$0)", [x], body, "square")
    body.add(Copy(y, sink))
    return graph, Repeat(times, body)


def connect_zeros(engine: poplar.Engine) -> None:
    """Connect both streams of `squares` to memory for one block, used again and again."""
    for stream in ("in", "out"):
        engine.connect_stream(stream, np.zeros(SIZE, np.float32))


class Numbers(poplar.StreamCallback):
    """Gives 1, 2, 3, ...; moves on when a transfer is complete. Notes what was called."""

    def __init__(self, available: bool = True) -> None:
        self.next = 1
        self.available = available
        self.calls: list[str] = []
        self.busy = threading.Lock()

    def _note(self, what: str) -> None:
        assert self.busy.acquire(blocking=False), "two calls at the same time"
        self.calls.append(what)
        self.busy.release()

    def fetch(self, buffer: np.ndarray) -> None:
        self._note("fetch")
        buffer[:] = self.next

    def prefetch(self, buffer: np.ndarray) -> bool:
        self._note("prefetch")
        buffer[:] = self.next
        return self.available

    def complete(self) -> None:
        self._note("complete")
        self.next += 1

    def invalidate_prefetched(self) -> None:
        self._note("invalidate")


def settle(source: Numbers, count: int) -> None:
    """Waits until a callback was called a number of times."""
    deadline = time.monotonic() + 5
    while len(source.calls) < count and time.monotonic() < deadline:
        time.sleep(0.002)


def run_squares(
    source: Any, times: int = 3, options: dict[str, str] | None = None
) -> tuple[list[float], poplar.Engine]:
    graph, program = squares(times)
    got: list[float] = []
    engine = poplar.Engine(graph, program, options, threads=1)
    engine.connect_stream_to_callback("in", source)

    def take(buffer: np.ndarray) -> None:
        assert not buffer.flags.writeable
        got.append(float(buffer[-1]))

    engine.connect_stream_to_callback("out", take)
    engine.run()
    return got, engine


def test_prefetch_comes_between_transfers() -> None:
    source = Numbers()
    got, engine = run_squares(source)
    assert got == [1, 4, 9]
    settle(source, 7)
    ahead = ["prefetch", "complete"]
    assert source.calls == ["fetch", "complete", *ahead, *ahead, "prefetch"]
    engine.run()  # what was prefetched is still good
    assert got == [1, 4, 9, 16, 25, 36]
    settle(source, 13)
    assert source.calls.count("fetch") == 1
    engine.load()  # now it is not
    assert source.calls[-1] == "invalidate"
    engine.run()
    assert got[6:] == [49, 64, 81]
    engine.close()


def test_data_that_is_not_available_is_fetched() -> None:
    source = Numbers(available=False)
    got, engine = run_squares(source)
    assert got == [1, 4, 9]
    settle(source, 9)
    assert source.calls == ["fetch", "complete", "prefetch"] * 3
    engine.close()
    assert "invalidate" not in source.calls


@pytest.mark.parametrize("how", ["engine", "environment", "runtime"])
def test_prefetch_can_be_switched_off(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Numbers()
    options = {"exchange.enablePrefetch": "false"} if how == "engine" else None
    if how == "environment":
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"exchange.enablePrefetch": "false"}')
    if how == "runtime":
        monkeypatch.setenv("POPLAR_RUNTIME_OPTIONS", '{"streamCallbacks.maxLookahead": "0"}')
    got, engine = run_squares(source, options=options)
    assert got == [1, 4, 9]
    assert source.calls == ["fetch", "complete"] * 3
    engine.close()


def test_an_object_with_fetch_only() -> None:
    class Ones:
        def fetch(self, buffer: np.ndarray) -> None:
            buffer[:] = 1

    got, engine = run_squares(Ones())
    assert got == [1, 1, 1]
    engine.close()


def test_errors_in_callbacks_reach_the_caller() -> None:
    class Broken(Numbers):
        def prefetch(self, buffer: np.ndarray) -> bool:
            raise RuntimeError("no more data")

    with pytest.raises(RuntimeError, match="no more data"):
        run_squares(Broken())


def test_a_prefetch_that_takes_too_long_does_not_hold_up_a_timeout() -> None:
    class Slow(Numbers):
        def prefetch(self, buffer: np.ndarray) -> bool:
            time.sleep(1.0)
            return super().prefetch(buffer)

    graph, program = squares(3)
    engine = poplar.Engine(graph, program, threads=1)
    engine.connect_stream_to_callback("in", Slow())
    engine.connect_stream("out", np.zeros(3 * SIZE, np.float32))
    begin = time.monotonic()
    with pytest.raises(RunTimeout):
        engine.run(timeout=0.2)
    assert time.monotonic() - begin < 0.8


def test_callbacks_of_replicas() -> None:
    graph, program = squares(2)
    engine = poplar.Engine(graph, program, replicas=2, threads=1)
    sources = [Numbers(), Numbers()]
    sources[1].next = 10
    got: dict[int, list[float]] = {0: [], 1: []}

    def take(buffer: np.ndarray, replica: int) -> None:
        got[replica].append(float(buffer[0]))

    for replica, source in enumerate(sources):
        engine.connect_stream_to_callback("in", source, replica)
    engine.connect_stream_to_callback("out", take)
    engine.run()
    assert got == {0: [1, 4], 1: [100, 121]}
    with pytest.raises(InputError, match="replica 2"):
        engine.connect_stream_to_callback("in", Numbers(), 2)
    engine.close()


def test_what_is_no_callback() -> None:
    graph, program = squares(1)
    engine = poplar.Engine(graph, program)
    with pytest.raises(InputError, match="no stream callback"):
        engine.connect_stream_to_callback("in", 3)
    with pytest.raises(InputError, match="no stream"):
        engine.connect_stream_to_callback("inn", Numbers())
    assert engine.list_streams() == ["in", "out"]


# ---------------------------------------------------------------------------- options
@pytest.mark.parametrize("variable", ["POPLAR_ENGINE_OPTIONS", "POPLAR_RUNTIME_OPTIONS"])
def test_unknown_options_of_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    near = {"ENGINE": "debug.instrument", "RUNTIME": "target.syncMethod"}[variable.split("_")[1]]
    monkeypatch.setenv(variable, json.dumps({near + "s": "true"}))
    graph, program = squares(1)
    with pytest.raises(OptionError, match=re.escape(near)) as error:
        poplar.Engine(graph, program)
    assert error.value.remedy == f"did you mean {near!r}?"


def test_options_are_text_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, program = squares(1)
    with pytest.raises(OptionError, match=r"debug\.instrumant"):
        poplar.Engine(graph, program, {"debug.instrumant": "true"})
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.instrument": "true"}')
    engine = poplar.Engine(graph, program, {"debug.instrument": False})
    assert engine.get_engine_options()["debug.instrument"] == "true"
    with pytest.raises(OptionError, match=r"no\.such"):
        engine.run(0, options={"no.such": "1"})
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "[1]")
    with pytest.raises(OptionError, match="not a JSON object"):
        poplar.Engine(graph, program)


def test_reports_in_files(tmp_path: Path) -> None:
    graph, program = squares(2)
    folder = tmp_path / "report"
    options = {
        "autoReport.all": "true",
        "autoReport.outputSerializedGraph": "true",
        "autoReport.directory": str(folder),
        "autoReport.executionProfileProgramRunCount": "1",
    }
    engine = poplar.Engine(graph, program, options, threads=1)
    found = {path.name for path in folder.iterdir()}
    assert found == {"graph.txt", "variables.txt", "graph.pir"}
    connect_zeros(engine)
    engine.run()
    first = (folder / "execution.txt").read_text()
    engine.run()
    assert (folder / "execution.txt").read_text() == first
    assert "OnTileExecute" in first
    engine.close()


# ---------------------------------------------------------------------------- executables
def test_executables_are_saved_and_loaded(tmp_path: Path) -> None:
    graph, program = squares(2)
    executable = poplar.compile_graph(graph, program)
    executable.save(tmp_path / "a.pexe")
    held = io.BytesIO()
    executable.serialize(held)
    data = np.arange(2 * SIZE, dtype=np.float32)
    for loaded in (
        poplar.Executable.load(tmp_path / "a.pexe"),
        poplar.Executable.deserialize(io.BytesIO(held.getvalue())),
    ):
        engine = poplar.Engine(loaded, threads=1)
        out = np.zeros_like(data)
        engine.connect_stream("in", data)
        engine.connect_stream("out", out)
        engine.run()
        assert np.array_equal(out, data * data)
        assert [vars(s).keys() for s in loaded.steps] == [vars(s).keys() for s in executable.steps]
        for one, other in zip(loaded.steps, executable.steps, strict=True):
            assert (one.tile_compute, one.exchange_data) == (
                other.tile_compute,
                other.exchange_data,
            )
        engine.close()
    with pytest.raises(FileError):
        poplar.Executable.deserialize(io.BytesIO(held.getvalue()[:1000]))


# ---------------------------------------------------------------------------- summary
def summary(engine: poplar.Engine, **options: str) -> str:
    out = io.StringIO()
    engine.print_profile_summary(out, options)
    return out.getvalue()


def amounts(text: str, section: str) -> dict[str, float]:
    """Numbers of a section of the summary by what they are of."""
    lines = text.split(f"{section}:\n")[1].split("\n\n")[0].splitlines()
    found = [re.match(r" +(\S.*?):? {2,}([\d,.]+)", line) for line in lines]
    return {m[1]: float(m[2].replace(",", "")) for m in found if m}


def test_summary_sections_add_up() -> None:
    graph, program = squares(3)
    engine = poplar.Engine(graph, program, threads=1)
    before = summary(engine)
    assert "Execution:" not in before
    with pytest.raises(OptionError):
        summary(engine, showExecutionSteps="true")
    connect_zeros(engine)
    engine.run()
    engine.run()
    text = summary(engine, showExecutionSteps="true", showVarStorage="true")
    assert amounts(text, "Target")["Total tiles"] == 4
    assert amounts(text, "Graph")["Number of compute sets"] == 1
    run = amounts(text, "Execution")
    assert run["Programs executed"] == 2
    assert run["Total cycles"] == engine.cycles().total
    without = "Tile average compute cycles (excluding idle threads)"
    parts = [v for k, v in run.items() if k.startswith("Tile average") and k != without]
    assert abs(sum(parts) - run["Total cycles"]) < 1
    assert run[without] <= run["Tile average compute cycles (including idle threads)"]
    memory = amounts(text, "Memory usage")
    whole = memory.pop("Total, including gaps")
    shares = [v for k, v in memory.items() if not k.startswith(("Total", "Tile"))]
    assert abs(sum(shares) - whole) < 0.3  # KiB with one digit
    steps = text.split("Execution steps:\n")[1].splitlines()
    kinds = [line.split()[0] for line in steps[1:] if line]
    assert [k for k in kinds if k != "Sync"] == ["StreamCopy", "OnTileExecute", "StreamCopy"]
    assert all(" 6 " in line for line in steps[1:] if line)
    with pytest.raises(OptionError, match="showExecutionStep"):
        summary(engine, showExecutionStep="true")
    engine.reset_execution_profile()
    assert "Execution:" not in summary(engine)
    engine.close()


NOTHING = """
@vertex
class Double(Vertex):
    x: InOut[f32]

    def compute(self) -> None:
        self.x = self.x * f32(2)
"""


def test_idle_threads_are_what_lanes_leave_free() -> None:
    """Seven vertices of ten worker cycles on one of four tiles: two rounds of six workers."""
    graph = new_graph()
    graph.add_codelets(NOTHING)
    x = graph.add_variable(poplar.FLOAT, [7], "x", mapping=0)
    compute_set = graph.add_compute_set("double")
    for i in range(7):
        vertex = graph.add_vertex(compute_set, "Double", {"x": x[i]})
        graph.set_tile_mapping(vertex, 0)
        graph.set_perf_estimate(vertex, 10)
    engine = poplar.Engine(graph, Execute(compute_set), threads=1)
    engine.run()
    run = amounts(summary(engine), "Execution")
    assert run["Tile average compute cycles (including idle threads)"] == 2 * 6 * 10 / 4
    assert run["Tile average compute cycles (excluding idle threads)"] == 7 * 10 / 4
    assert run["Tile average cycles waiting for the slowest tile"] == 120 - 30
    engine.close()
