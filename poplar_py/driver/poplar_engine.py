"""Poplar's Engine over tile graphs: compile, load on a device, connect streams, run programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poplar_py.diagnostics import InputError, OptionError
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.executable.executable import Executable
from poplar_py.executable.pexe import load_executable
from poplar_py.poplar.device import Device
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.options import (
    OptionFlags,
    engine_options,
    flag,
    number,
    runtime_options,
)
from poplar_py.poplar.program import Program
from poplar_py.poplar.verify import check_all_mapped, check_programs
from poplar_py.profile.auto_report import AutoReport
from poplar_py.profile.poplar_summary import profile_summary
from poplar_py.runtime.cycles import CycleReport
from poplar_py.runtime.engine import TileEngine
from poplar_py.runtime.stream_calls import is_callback

__all__ = ["Engine", "compile_graph"]


def compile_graph(
    graph: Graph,
    programs: Program | Sequence[Program],
    options: Mapping[str, Any] | None = None,
    *,
    allow_out_of_memory: bool = False,
) -> Executable:
    """Compile a graph with its programs (numbered in order). ``options``: Poplar's engine
    options. Raises InvalidTileMapping where something used has no tile, OutOfTileMemory and the
    other errors of the tile passes, OptionError."""
    flags = engine_options(options)
    listed = isinstance(programs, (list, tuple))
    todo = list(cast("Sequence[Program]", programs)) if listed else [cast("Program", programs)]
    check_programs(graph, todo)
    allow = allow_out_of_memory or flag(flags, "debug.allowOutOfMemory")
    check_all_mapped(graph, todo)
    executable = build_executable(graph, todo, BuildOptions(allow_out_of_memory=allow))
    executable.metadata["replication_factor"] = graph.replication_factor
    AutoReport(flags).compiled(executable, graph, todo)
    return executable


class Engine:
    """Runs the programs of a graph.

    ``Engine(graph, programs)`` compiles; ``Engine(executable)`` takes what `compile_graph` gave, or
    the path of a ``.pexe`` file. Options by name: threads, replicas, faithful_exchange, checked,
    merge_vertices (the host may run neighbouring vertices as one; values stay). ``replicas`` is
    the graph's replication factor unless given. Raises OptionError when the two differ.
    ``options`` are Poplar's option strings, which ``POPLAR_ENGINE_OPTIONS`` overrides; those that
    only tune its compiler change nothing (`poplar_py.poplar.options` says which).
    """

    def __init__(
        self,
        what: Graph | Executable | str,
        programs: Program | Sequence[Program] = (),
        options: Mapping[str, Any] | None = None,
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
            what = compile_graph(what, programs, options)
        elif isinstance(what, str):
            what = load_executable(what)
        self.executable = what
        self._threads, self._replicas = threads, self._replica_count(replicas)
        self._faithful, self._checked = faithful_exchange, checked
        self._merge = merge_vertices
        self._report = AutoReport(self.options)
        self._ran = 0
        self._streams: dict[tuple[str, int | None], Any] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._engine: TileEngine | None = None

    def _replica_count(self, given: int | None) -> int:
        """Replicas of this engine: as given, else by the options, else by the graph."""
        factor = int(self.executable.metadata.get("replication_factor", 1))
        asked = max(given or 1, number(self.options, "target.numberRuntimeReplica"))
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
        if isinstance(program, int) and not 0 <= program < len(self.executable.programs):
            raise InputError(
                f"there is no program {program}",
                remedy=f"the executable has {len(self.executable.programs)}",
            )
        engine = self.engine
        ahead = flags["streamCallbacks.maxLookahead"] != "0"
        engine.prefetch = ahead and flag(self.options, "exchange.enablePrefetch")
        self._ran += 1
        engine.run(program, timeout=timeout)
        self._report.ran(self.executable, engine.cycles().runs)

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
        if replica is None:
            for key in [k for k in self._streams if k[0] == handle]:
                del self._streams[key]
        self._streams[handle, replica] = source
        if self._engine is not None:
            self._engine.connect_stream(handle, source, replica)
        elif handle not in self.executable.streams:
            known = ", ".join(self.executable.streams)
            raise InputError(f"there is no stream {handle!r}", remedy=f"streams: {known}")

    def connect_stream_to_callback(
        self, handle: str, callback: Any, replica: int | None = None
    ) -> None:
        """Let a callback serve a stream: a `StreamCallback` (or an object with such methods), or
        a function that gets the buffer of every copy (and the replica's number)."""
        if not is_callback(callback):
            raise InputError(
                f"{type(callback).__name__} is no stream callback",
                remedy="give a function of the buffer, or an object with fetch(buffer)",
            )
        self.connect_stream(handle, callback, replica)

    def list_streams(self) -> list[str]:
        """Handles of the program's streams."""
        return list(self.executable.streams)

    def connect_host_function(self, handle: str, function: Callable[..., Any]) -> None:
        """The Python function behind a host function: input arrays, then output arrays to fill."""
        self._functions[handle] = function
        if self._engine is not None:
            self._engine.connect_host_function(handle, function)

    def write_tensor(self, handle: str, array: ArrayLike) -> None:
        """Set the tensor of `Graph.create_host_write`."""
        if handle not in self.executable.host_writes:
            known = ", ".join(self.executable.host_writes)
            raise InputError(f"no host write {handle!r}", remedy=f"known: {known}")
        self.engine.write(handle, array)

    def read_tensor(self, handle: str) -> NDArray[Any]:
        """A copy of the tensor of `Graph.create_host_read`, flat; [replicas, elements] for
        several."""
        if handle not in self.executable.host_reads:
            known = ", ".join(self.executable.host_reads)
            raise InputError(f"no host read {handle!r}", remedy=f"known: {known}")
        return self.engine.read(handle)

    def copy_to_remote_buffer(
        self, array: ArrayLike, handle: str, row: int = 0, replica: int = 0
    ) -> None:
        """Write one row of a remote buffer (or several, when the array has more elements)."""
        data = np.asarray(array).ravel()
        self._remote(handle, row, data.size, replica)[:] = data

    def copy_from_remote_buffer(
        self, handle: str, array: NDArray[Any], row: int = 0, replica: int = 0
    ) -> None:
        """Read rows of a remote buffer into an array."""
        array.reshape(-1)[:] = self._remote(handle, row, array.size, replica)

    def _remote(self, handle: str, row: int, size: int, replica: int) -> NDArray[Any]:
        whole = self.engine.remote_buffer(handle)
        if not 0 <= replica < len(whole):
            raise InputError(f"there is no replica {replica}")
        number = self.executable.remote_buffers[handle]
        rows = self.executable.remote_rows.get(handle, 1)
        each = self.executable.regions[number].numel // max(1, rows)
        start = row * each
        if row < 0 or start + size > whole.shape[1] or (each and size % each):
            raise InputError(
                f"row {row} and {size} elements of remote buffer {handle!r}",
                remedy=f"it has {rows} row(s) of {each} elements",
            )
        return whole[replica, start : start + size]

    # ------------------------------------------------------------------ reports
    def cycles(self, replica: int = 0) -> CycleReport:
        """Cycles of all runs so far."""
        return self.engine.cycles(replica)

    def reset_execution_profile(self) -> None:
        """Count cycles anew."""
        self._ran = 0
        self.engine.reset_cycles()

    def get_time_stamp(self) -> int:
        """Device cycles of all runs so far."""
        return self.engine.cycles().total if self._ran else 0

    def report_timing(self, start: int, end: int) -> str:
        """Cycles between two time stamps, and the time they take on the target's clock."""
        seconds = (end - start) / self.executable.target.clock
        return f"{end - start} cycles ({seconds * 1e6:.1f} microseconds)"

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
        runs = self.engine.cycles().runs if self._ran else None
        text = profile_summary(self.executable, runs, options, programs=self._ran)
        print(text, file=stream or sys.stdout, end="")
