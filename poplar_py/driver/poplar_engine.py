"""Poplar's Engine over tile graphs: compile, load on a device, connect streams, run programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NoReturn, TextIO, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poplar_py.arguments import whole
from poplar_py.diagnostics import InputError, OptionError
from poplar_py.driver.poplar_compile import Progress, compile_graph
from poplar_py.executable.executable import Executable
from poplar_py.executable.pexe import load_executable
from poplar_py.poplar.constants import as_array
from poplar_py.poplar.device import Device
from poplar_py.poplar.errors import StreamConnectionError
from poplar_py.poplar.faults import fail
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.options import (
    OptionFlags,
    engine_options,
    flag,
    number,
    runtime_options,
)
from poplar_py.poplar.program import Program
from poplar_py.poplar.where import caller, source_text
from poplar_py.profile.auto_report import AutoReport
from poplar_py.profile.poplar_summary import profile_summary
from poplar_py.runtime.cycles import CycleReport
from poplar_py.runtime.engine import TileEngine
from poplar_py.runtime.stream_calls import is_callback, is_ndarray

__all__ = ["Engine", "compile_graph"]


class Engine:
    """Runs the programs of a graph.

    ``Engine(graph, programs)`` compiles; ``Engine(executable)`` takes what `compile_graph` gave, or
    the path of a ``.pexe`` file. Options by name: threads, replicas, faithful_exchange, checked,
    merge_vertices (the host may run neighbouring vertices as one; values stay). ``replicas`` is
    the graph's replication factor unless given. Raises OptionError when the two differ.
    ``options`` are Poplar's option strings, which ``POPLAR_ENGINE_OPTIONS`` overrides; those that
    only tune its compiler change nothing (`poplar_py.poplar.options` says which). ``progress`` and
    ``name`` go to `compile_graph`.
    """

    def __init__(
        self,
        what: Graph | Executable | str | PathLike[str],
        programs: Program | Sequence[Program] = (),
        options: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        name: str = "",
        *,
        threads: int | None = None,
        replicas: int | None = None,
        faithful_exchange: bool = False,
        checked: bool | None = None,
        merge_vertices: bool = True,
    ) -> None:
        self.options = engine_options(options)
        runtime_options()  # what the environment asks for is known now
        if isinstance(what, Graph):
            what = compile_graph(what, programs, options, progress, name)
        elif isinstance(what, (str, PathLike)):
            what = load_executable(what)
        if not isinstance(cast("object", what), Executable):
            remedy = "give a Graph, what compile_graph gave, or the path of a .pexe file"
            _refuse(f"an engine for {what!r}", remedy)
        self.executable = what
        self._threads, self._replicas = threads, self._replica_count(replicas)
        self._faithful, self._checked = faithful_exchange, checked
        self._merge = merge_vertices
        self._report = AutoReport(self.options)
        self._ran = 0
        self._profiling = True
        self._unprofiled = 0
        self._streams: dict[tuple[str, int | None], Any] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._engine: TileEngine | None = None

    def _replica_count(self, given: int | None) -> int:
        """Replicas of this engine: as given, else by the options, else by the graph."""
        factor = int(self.executable.metadata.get("replication_factor", 1))
        given = 1 if given is None else whole(given, "the number of replicas")
        asked = max(given, number(self.options, "target.numberRuntimeReplica"))
        if factor > 1 and asked not in (1, factor):
            raise OptionError(
                f"{asked} replicas of a graph whose replication factor is {factor}",
                remedy=f"leave replicas out, or build Graph(target, replication_factor={asked})",
            )
        return max(asked, factor)

    # ------------------------------------------------------------------ life
    def load(self, device: Device | None = None) -> None:
        """Put the program on a device (simulated IPUs of the executable's target): tile memories
        get their first contents. The device's threads and replicas count where they are given."""
        if device is not None and not isinstance(cast("object", device), Device):
            _refuse(f"a program is loaded on {device!r}", "give a Device")
        threads = self._threads if device is None or device.threads is None else device.threads
        replicas = self._replicas if device is None else max(device.replicas, self._replicas)
        if self._engine is not None:
            self._engine.close()
        engine = TileEngine(
            self.executable,
            threads=threads,
            replicas=replicas,
            faithful_exchange=self._faithful,
            check_uninitialised=flag(self.options, "debug.runtimeVerify"),
            checked=self._checked,
            merge_vertices=self._merge,
        )
        for (name, replica), source in self._streams.items():
            engine.connect_stream(name, source, replica)
        for name, function in self._functions.items():
            engine.connect_host_function(name, function)
        self._engine = engine

    def prepare(self, device: Device | None = None) -> None:
        """As `load` (Poplar prepares, then deploys)."""
        self.load(device)

    def deploy(self) -> None:
        """Load, unless `prepare` did."""
        if self._engine is None:
            self.load()

    @property
    def engine(self) -> TileEngine:
        """The tile engine, loaded when it is first needed."""
        if self._engine is None:
            self.load()
        assert self._engine is not None
        return self._engine

    def close(self) -> None:
        """Give threads and memory back."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # ------------------------------------------------------------------ running
    def run(
        self,
        program: int | str = 0,
        debug_name: str = "",
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Run a program by number or name; see TileEngine.run for the errors. ``options`` are
        Poplar's runtime options, which ``POPLAR_RUNTIME_OPTIONS`` overrides."""
        del debug_name
        flags = runtime_options(options)
        number = self._program_number(program)
        self._check_streams(number)
        engine = self.engine
        ahead = flags["streamCallbacks.maxLookahead"] != "0"
        engine.prefetch = ahead and flag(self.options, "exchange.enablePrefetch")
        if not self._profiling:
            self._unprofiled += engine.run_uncounted(number, timeout=timeout).total
            return
        self._ran += 1
        engine.run(number, timeout=timeout)
        self._report.ran(self.executable, engine.cycles().runs)

    def _program_number(self, program: int | str) -> int:
        names = self.executable.programs
        if isinstance(program, str) and program in names:
            return names.index(program)
        if not isinstance(program, (int, np.integer)) or not 0 <= program < len(names):
            _refuse(f"there is no program {program!r}", f"the executable has {len(names)}")
        return int(program)

    def _check_streams(self, program: int) -> None:
        """Every stream a program uses is connected. Raises StreamConnectionError."""
        used: list[dict[str, str]] = self.executable.metadata.get("program_streams", [])
        for handle, line in (used[program] if program < len(used) else {}).items():
            each = all((handle, r) in self._streams for r in range(self._replicas))
            if (handle, None) in self._streams or each:
                continue
            where = f", copied at {line}," if line else ""
            fail(
                StreamConnectionError,
                f"stream {handle!r}{where} is not connected",
                f"call connect_stream({handle!r}, array) or connect_stream_to_callback before run",
            )

    def load_and_run(self, device: Device | None = None, program: int = 0) -> None:
        """`load`, then `run`."""
        self.load(device)
        self.run(program)

    def stop(self) -> None:
        """End the current run; call it from another thread or a callback."""
        if self._engine is not None:
            self._engine.stop()

    # ------------------------------------------------------------------ data
    def connect_stream(self, handle: str, source: Any, replica: int | None = None) -> None:
        """A stream's data: an array used as a ring buffer, or a function or object called for
        every copy. ``replica``: only for the copies of that one."""
        self._known_stream(handle)
        if replica is not None:
            replica = whole(replica, "a replica")
            if not 0 <= replica < self._replicas:
                _refuse(f"replica {replica} of an engine with {self._replicas}")
        if self._engine is not None:
            self._engine.connect_stream(handle, source, replica)
        if replica is None:
            for key in [k for k in self._streams if k[0] == handle]:
                del self._streams[key]
        self._streams[handle, replica] = source

    def _known_stream(self, handle: str) -> None:
        if handle not in list(self.executable.streams):
            _refuse(f"there is no stream {handle!r}", f"streams: {_names(self.executable.streams)}")

    def connect_stream_to_callback(
        self, handle: str, callback: Any, replica: int | None = None
    ) -> None:
        """Let a callback serve a stream: a `StreamCallback` (or an object with such methods), or
        a function that gets the buffer of every copy (and the replica's number)."""
        if not is_callback(callback):
            remedy = "give a function of the buffer, or an object with fetch(buffer)"
            _refuse(f"{type(callback).__name__} is no stream callback", remedy)
        self.connect_stream(handle, callback, replica)

    def list_streams(self) -> list[str]:
        """Handles of the program's streams."""
        return list(self.executable.streams)

    def connect_host_function(self, handle: str, function: Callable[..., Any]) -> None:
        """The Python function behind a host function: input arrays, then output arrays to fill."""
        known = [c.name for c in self.executable.host_calls if c.kind == "call"]
        if handle not in known:
            _refuse(f"there is no host function {handle!r}", f"called: {_names(known)}")
        if not callable(function):
            _refuse(f"host function {handle!r} is {function!r}", "give a function")
        self._functions[handle] = function
        if self._engine is not None:
            self._engine.connect_host_function(handle, function)

    def write_tensor(self, handle: str, array: ArrayLike) -> None:
        """Set the tensor of `Graph.create_host_write`."""
        if handle not in list(self.executable.host_writes):
            _refuse(f"no host write {handle!r}", f"known: {_names(self.executable.host_writes)}")
        self.engine.write(handle, as_array(array, f"values for {handle!r}"))

    def read_tensor(self, handle: str, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy of the tensor of `Graph.create_host_read`, flat; [replicas, elements] for
        several. ``out``: an array of the type and size that is filled and returned instead."""
        if handle not in list(self.executable.host_reads):
            _refuse(f"no host read {handle!r}", f"known: {_names(self.executable.host_reads)}")
        found = self.engine.read(handle)
        if out is None:
            return found
        _writable(out, f"the array for {handle!r}")
        if out.dtype != found.dtype or out.size != found.size:
            what = f"{out.dtype}[{out.size}]"
            _refuse(f"{handle!r} is {found.dtype}[{found.size}], the array {what}")
        out[...] = found.reshape(out.shape)
        return out

    def copy_to_remote_buffer(
        self, array: ArrayLike, handle: str, row: int = 0, replica: int = 0
    ) -> None:
        """Write one row of a remote buffer (or several, when the array has more elements)."""
        data = as_array(array, f"values for {handle!r}").ravel()
        place = self._remote(handle, row, data.size, replica)
        if data.dtype != place.dtype:
            _refuse(f"{handle!r} holds {place.dtype}, the array {data.dtype}")
        place[:] = data

    def copy_from_remote_buffer(
        self, handle: str, array: NDArray[Any], row: int = 0, replica: int = 0
    ) -> None:
        """Read rows of a remote buffer into an array."""
        _writable(array, f"the array for {handle!r}")
        place = self._remote(handle, row, array.size, replica)
        if array.dtype != place.dtype:
            _refuse(f"{handle!r} holds {place.dtype}, the array {array.dtype}")
        array[...] = place.reshape(array.shape)

    def _remote(self, handle: str, row: int, size: int, replica: int) -> NDArray[Any]:
        if handle not in list(self.executable.remote_buffers):
            known = _names(self.executable.remote_buffers)
            _refuse(f"there is no remote buffer {handle!r}", f"known: {known}")
        row, replica = whole(row, "a row"), whole(replica, "a replica")
        contents = self.engine.remote_buffer(handle)
        if not 0 <= replica < len(contents):
            _refuse(f"there is no replica {replica}")
        number = self.executable.remote_buffers[handle]
        rows = self.executable.remote_rows.get(handle, 1)
        each = self.executable.regions[number].numel // max(1, rows)
        start = row * each
        if row < 0 or start + size > contents.shape[1] or (each and size % each):
            remedy = f"it has {rows} row(s) of {each} elements"
            _refuse(f"row {row} and {size} elements of remote buffer {handle!r}", remedy)
        return contents[replica, start : start + size]

    # ------------------------------------------------------------------ reports
    def cycles(self, replica: int = 0) -> CycleReport:
        """Cycles of all runs so far."""
        return self.engine.cycles(replica)

    def reset_execution_profile(self) -> None:
        """Count cycles anew."""
        self._ran = 0
        self.engine.reset_cycles()

    def enable_execution_profiling(self) -> None:
        """Count the runs that follow, as an engine does from its start."""
        self._profiling = True

    def disable_execution_profiling(self) -> None:
        """Leave the runs that follow out of cycles, reports and the profile summary. Time stamps
        and the cycle counts inside programs go on."""
        self._profiling = False

    def get_time_stamp(self) -> int:
        """Device cycles of all runs so far."""
        return self._unprofiled + (self.engine.cycles().total if self._ran else 0)

    def report_timing(self, start: int, end: int) -> str:
        """Cycles between two time stamps, and the time they take on the target's clock."""
        cycles = whole(end, "a time stamp") - whole(start, "a time stamp")
        return f"{cycles} cycles ({cycles / self.executable.target.clock * 1e6:.1f} microseconds)"

    def get_report(self) -> dict[str, Any]:
        """Programs run so far and their cycles by phase, as plain data."""
        report = self.engine.cycles()
        phases = {n: int(getattr(report, n)) for n in ("compute", "exchange", "sync", "host")}
        return {"programs": self._ran, "cycles": {**phases, "total": report.total}}

    def get_engine_options(self) -> OptionFlags:
        """Poplar's options of this engine, defaults and environment included."""
        return OptionFlags(self.options)

    def print_profile_summary(
        self, stream: TextIO | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Write Poplar's profile summary of all runs so far (stdout by default). Options, as
        strings: showExecutionSteps, showVarStorage. Raises OptionError."""
        if stream is not None and not hasattr(stream, "write"):
            _refuse(f"the summary is written to {stream!r}", "give an open text file")
        runs = self.engine.cycles().runs if self._ran else None
        text = profile_summary(self.executable, runs, options, programs=self._ran)
        print(text, file=stream or sys.stdout, end="")


def _refuse(message: str, remedy: str = "") -> NoReturn:
    """Raise an InputError at the user's line."""
    loc = caller()
    raise InputError(message, loc, remedy, source_text(loc))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _writable(array: object, what: str) -> None:
    if not is_ndarray(array) or not cast("NDArray[Any]", array).flags.writeable:
        _refuse(f"{what} is {type(array).__name__}", "give a writable NumPy array")
