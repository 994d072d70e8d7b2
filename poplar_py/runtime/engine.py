"""TileEngine: runs an executable on simulated tile memories."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poplar_py.arguments import number, whole
from poplar_py.codegen import program_words as isa
from poplar_py.codegen.program_words import Pool as W
from poplar_py.codegen.program_words import StreamWord
from poplar_py.diagnostics import InputError, OptionError
from poplar_py.executable.executable import Executable, Initial, Stream
from poplar_py.executable.schedule import shared_jit
from poplar_py.runtime.arena import Arena
from poplar_py.runtime.cycles import CycleReport, count_cycles
from poplar_py.runtime.errors import raise_for
from poplar_py.runtime.host import HostServices
from poplar_py.runtime.kernels import load_kernels, mergeable, raw_copy
from poplar_py.runtime.loaded import load_code
from poplar_py.runtime.pool import ThreadPool, aligned, free_cores
from poplar_py.runtime.serial import worth_sharing
from poplar_py.runtime.shadow import Shadow
from poplar_py.runtime.stream_calls import is_callback, is_ndarray
from poplar_py.runtime.watchdog import watchdog

MAX_THREADS = 256
_LENT = 3  # mode of a stream whose region is in the user's array
_RAW = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


def _fitting_threads(executable: Executable, replicas: int) -> int:
    cores = free_cores()
    return cores if cores <= replicas or worth_sharing(executable) else replicas


class TileEngine:
    """An executable with memory and threads.

    threads: host threads (default: the free cores; one a replica for programs too small to share).
    replicas: copies of the device that run the same program. faithful_exchange: every remote edge
    goes through its planned buffer and dead bytes are poisoned. check_uninitialised: as faithful
    exchange, and reads of elements that nothing wrote are an error (slow). checked: bounds checks
    in all codelets (True), none (False), or user codelets only. cpu: "native" or an LLVM CPU name.
    merge_vertices: rows of neighbouring vertices whose data follow one another become one for the
    host.
    """

    def __init__(
        self,
        executable: Executable,
        *,
        threads: int | None = None,
        replicas: int = 1,
        faithful_exchange: bool = False,
        check_uninitialised: bool = False,
        checked: bool | None = None,
        cpu: str = "native",
        merge_vertices: bool = True,
    ) -> None:
        if threads is not None and not 1 <= whole(threads, "threads") <= MAX_THREADS:
            raise OptionError(f"{threads} threads", remedy=f"give a number from 1 to {MAX_THREADS}")
        if not 1 <= replicas <= 1 << 16:
            raise OptionError(f"{replicas} replicas", remedy="give a number from 1 to 65536")
        self.executable = executable
        self.replicas = replicas
        self.faithful = faithful_exchange or check_uninitialised
        self.threads = _fitting_threads(executable, replicas) if threads is None else threads
        self._jit = shared_jit(cpu)
        self._host = HostServices(self)
        self._pool = ThreadPool(self._jit, replicas, self.threads, self._host.call)
        kernels = load_kernels(executable, self._jit, checked=checked)
        self._loaded = load_code(
            executable,
            kernels,
            self._pool.team_size,
            faithful=self.faithful,
            ask=check_uninitialised,
            merge=mergeable(executable, checked=checked) if merge_vertices else None,
        )
        filled = int(executable.memory.data.sum())
        self._arena = Arena(executable.arena_bytes, replicas, filled)
        self._reason = ""
        self._running = threading.Lock()
        self._runner = 0
        self._regions = [self._region(i) for i in range(len(executable.regions))]
        self._set_up_pool()
        if check_uninitialised:
            self._host.shadow = Shadow(executable, self._loaded.plain, replicas)
        self.load()

    # ------------------------------------------------------------------ set-up
    def _region(self, number: int) -> NDArray[Any]:
        """A region of all replicas as an array [replicas, elements]."""
        r = self.executable.regions[number]
        start = self._arena.bytes[r.offset :]
        strides = (self._arena.stride, r.dtype.size)
        dtype = r.dtype.numpy
        if r.numel == 0:
            return np.zeros((self.replicas, 0), dtype)
        return np.ndarray((self.replicas, r.numel), dtype, start.data, 0, strides)

    def _set_up_pool(self) -> None:
        exe, pool = self.executable, self._pool
        steps = max(1, len(exe.steps))
        self._counts = aligned(self.replicas * steps).reshape(self.replicas, steps)
        stack = isa.STATE_HEAD + -(-max(1, exe.counters) * 8 // 64) * 64
        state = stack + -(-(exe.depth + 1) * 8 // 64) * 64
        self._state = aligned(self.replicas * pool.team_size * state // 8)
        streams = max(1, len(exe.stream_ids))
        self._streams = aligned(self.replicas * streams * isa.STREAM_WORDS)
        self._streams = self._streams.reshape(self.replicas, streams, isa.STREAM_WORDS)
        for i, handle in enumerate(exe.stream_ids):
            region = exe.regions[exe.streams[handle].region]
            self._streams[:, i, StreamWord.REGION] = region.offset
            self._streams[:, i, StreamWord.CHUNK] = region.nbytes
        pool.set(W.CODE, int(self._loaded.code.ctypes.data))
        pool.set(W.BASE, self._arena.base)
        pool.set(W.REPLICA_STRIDE, self._arena.stride)
        pool.set(W.COUNTS, int(self._counts.ctypes.data))
        pool.set(W.STEPS, steps)
        pool.set(W.STATE, int(self._state.ctypes.data))
        pool.set(W.STATE_BYTES, state)
        pool.set(W.STACK, stack)
        pool.set(W.STREAMS, int(self._streams.ctypes.data))
        pool.set(W.MEETS, int((self._loaded.code[:, 0] == isa.Op.ACROSS).any()))
        pool.set(W.STREAM_BLOCK, streams * isa.STREAM_WORDS * 8)

    def load(self) -> None:
        """Set tile memory to its first contents (constants, initial values)."""
        exe = self.executable
        if self.faithful:
            for r in range(self.replicas):
                self._arena.view(0, exe.memory.end, r)[:] = 0xFF
        kernel = _RAW(raw_copy(self._jit))
        for initial in exe.initial:
            rows = self._initial_rows(initial)
            kernel(None, int(rows.ctypes.data), len(rows), None)
        for r in range(self.replicas):
            for at in exe.replica_words.tolist():
                self._arena.view(at, 4, r).view(np.uint32)[:] = r

    def _initial_rows(self, initial: Initial) -> NDArray[np.int64]:
        """Rows (source, target, bytes) in absolute addresses, for all replicas."""
        source = np.cumsum(initial.nbytes) - initial.nbytes + int(initial.data.ctypes.data)
        bases = self._arena.base + np.arange(self.replicas)[:, None] * self._arena.stride
        rows = np.empty((self.replicas, len(source), 3), np.int64)
        rows[:, :, 0] = source
        rows[:, :, 1] = initial.at + bases
        rows[:, :, 2] = initial.nbytes
        return rows.reshape(-1, 3)

    @property
    def host_rows(self) -> int:
        """Rows of vertex tables that the host threads walk: vertices, less what was merged."""
        tables = self.executable.tables
        rows = self._loaded.rows.items()
        return sum(n for k, n in rows if tables[k].kernel.startswith("vertex:"))

    # ------------------------------------------------------------------ running
    def run(self, program: int | str = 0, *, timeout: float | None = None) -> None:
        """Run a program by number or name; ``timeout`` in seconds.

        Raises TileException, Stopped, RunTimeout, InvalidProgram (an ErrorProgram or abort), or
        what a host callback raised.
        """
        name = self.executable.programs[program] if isinstance(program, int) else program
        self._run_entry(name, timeout)

    def _run_entry(self, name: str, timeout: float | None = None) -> None:
        entry = self._loaded.entries.get(name)
        if entry is None:
            known = ", ".join(self.executable.programs)
            raise InputError(f"there is no program {name!r}", remedy=f"programs: {known}")
        if self._runner == threading.get_ident():
            raise InputError("a callback of a run cannot start another run of the same engine")
        with self._running:
            self._runner = threading.get_ident()
            try:
                self._launch(entry, timeout)
            finally:
                self._runner = 0

    def _launch(self, entry: int, timeout: float | None) -> None:
        """Run from an instruction on, watched; raise what went wrong."""
        if timeout is not None and not number(timeout, "the timeout") >= 0:
            raise OptionError(f"a timeout of {timeout} s", remedy="give seconds, at least 0")
        pool = self._pool
        pool.ctx[: isa.CTX_WORDS] = 0
        pool.ctx[isa.MEMORY_BYTES] = self.executable.arena_bytes
        self._reason = ""
        pool.block[W.ENTRY] = entry
        dog = watchdog()
        watch = dog.begin(self, timeout)
        try:
            pool.launch()
        finally:
            dog.end(watch)
        if pool.ctx[isa.STOP]:
            self._host.streams.drop()
            raise_for(self)

    def stop(self, reason: str = "stop") -> None:
        """End the current run (from another thread or a callback); within 100 ms."""
        self._reason = self._reason or reason
        self._pool.ctx[isa.STOP] = 1

    def close(self) -> None:
        """End the threads and give memory back; the engine cannot run afterwards."""
        self._host.streams.close()
        self._pool.close()

    def __enter__(self) -> TileEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ data
    def region(self, number: int) -> NDArray[Any]:
        """The live memory of a host region, [replicas, elements]; valid until `close`."""
        return self._regions[number]

    def write(self, name: str, array: ArrayLike) -> None:
        """Set a host write handle's tensor, or what the next copies from a stream read.

        The array has the elements of one replica (given to all) or of all of them.
        """
        exe = self.executable
        if name in exe.host_writes:
            self._store(exe.host_writes[name], name, array)
            self._run_entry(f"host_in:{name}")
            return
        stream = exe.streams.get(name)
        if stream is None or stream.to_host:
            known = [*exe.host_writes, *(h for h, s in exe.streams.items() if not s.to_host)]
            raise InputError(
                f"nothing to write is called {name!r}", remedy=f"known: {', '.join(known)}"
            )
        self._store(stream.region, name, array)

    def _store(self, number: int, name: str, array: ArrayLike) -> None:
        view = self._regions[number]
        data = np.asarray(array)
        if data.dtype != view.dtype:
            raise InputError(
                f"{name!r} holds {view.dtype.name}, the array {data.dtype.name}",
                remedy=f"pass array.astype({view.dtype.name!r})",
            )
        if data.size == view.shape[1]:
            view[:] = data.reshape(1, -1)
        elif data.size == view.size:
            view[:] = data.reshape(view.shape)
        else:
            raise InputError(f"{name!r} has {view.shape[1]} elements, the array {data.size}")

    def read(self, name: str) -> NDArray[Any]:
        """A copy of a host read handle's tensor, or of what was last copied to a stream:
        [elements], or [replicas, elements]."""
        exe = self.executable
        if name in exe.host_reads:
            number = exe.host_reads[name]
            self._run_entry(f"host_out:{name}")
        else:
            stream = exe.streams.get(name)
            if stream is None or not stream.to_host:
                known = [*exe.host_reads, *(h for h, s in exe.streams.items() if s.to_host)]
                remedy = f"known: {', '.join(known)}"
                raise InputError(f"nothing to read is called {name!r}", remedy=remedy)
            number = stream.region
        view = self._regions[number]
        return view[0].copy() if self.replicas == 1 else view.copy()

    def remote_buffer(self, name: str) -> NDArray[Any]:
        """The live contents of a remote buffer, [replicas, elements of all rows]."""
        number = self.executable.remote_buffers.get(name)
        if number is None:
            known = ", ".join(self.executable.remote_buffers)
            raise InputError(f"there is no remote buffer {name!r}", remedy=f"known: {known}")
        return self._regions[number]

    def connect_stream(self, name: str, source: Any, replica: int | None = None) -> None:
        """Let a stream's copies use an array as a ring buffer, or call a function or object.

        An array is read (or written) one copy after the other and starts again at its end; with
        several replicas its first axis is the replica. A function gets the buffer of one copy (an
        array to fill, or to read), and the replica's number if it takes two arguments. An object
        has the methods of `poplar.StreamCallback`; it prefetches if it serves one replica. None:
        the contents stay those of `write`. ``replica``: only that one's copies.
        """
        stream = self.executable.streams.get(name)
        if stream is None:
            known = ", ".join(self.executable.streams)
            raise InputError(f"there is no stream {name!r}", remedy=f"streams: {known}")
        if replica is not None and not 0 <= replica < self.replicas:
            raise InputError(f"replica {replica}, the engine has {self.replicas}")
        is_array = is_ndarray(source)
        if not is_array and source is not None and not is_callback(source):
            what = type(source).__name__
            raise InputError(f"stream {name!r}: {what} is no array and no callback")
        which = range(self.replicas) if replica is None else range(replica, replica + 1)
        words = self._streams[which.start : which.stop, self.executable.stream_ids.index(name)]
        for r in which:
            self._host.streams.connect(name, r, None if is_array else source, len(which) == 1)
        words[:, StreamWord.MODE] = 0 if is_array or source is None else 2
        if source is not None and is_array:
            self._ring(name, stream, source, words)
            self._host.arrays[name, which.start] = source  # natively used: keep it alive

    def lend(self, name: str, array: NDArray[Any] | None) -> bool:
        """Let runs read a stream to the device from a contiguous array of its size and type where
        it lies, until None is lent; it must stay as it is for so long. False, and nothing done, for
        another array, with several replicas, and where the stream is connected to something."""
        stream = self.executable.streams[name]
        words = self._streams[0, self.executable.stream_ids.index(name)]
        view = self._regions[stream.region]
        if array is None:
            if words[StreamWord.MODE] == _LENT:
                words[StreamWord.MODE] = 0
            return True
        fits = array.dtype == view.dtype and array.size == view.shape[1]
        if not fits or self.replicas > 1 or stream.to_host or not array.flags.c_contiguous:
            return False
        if words[StreamWord.MODE] not in (0, _LENT):
            return False
        words[StreamWord.POINTER] = array.ctypes.data
        words[StreamWord.MODE] = _LENT
        return True

    def _ring(
        self, name: str, stream: Stream, array: NDArray[Any], words: NDArray[np.int64]
    ) -> None:
        view = self._regions[stream.region]
        chunk, dtype = view.shape[1], view.dtype
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise InputError(f"stream {name!r} needs a contiguous array of {dtype.name}")
        if stream.to_host and not array.flags.writeable:
            raise InputError(f"the array for stream {name!r} is read-only")
        replicas = len(words)
        shared = replicas == 1 or stream.broadcast
        per = array.size if shared else array.size // replicas
        if per < chunk or per % chunk or (not shared and array.size % replicas):
            raise InputError(
                f"stream {name!r} moves {chunk} elements a copy, the array has {array.size}",
                remedy="give a multiple, for every replica",
            )
        step = 0 if shared else per * dtype.itemsize
        words[:, StreamWord.POINTER] = array.ctypes.data + np.arange(replicas) * step
        words[:, StreamWord.CURSOR] = 0
        words[:, StreamWord.TOTAL] = per * dtype.itemsize
        words[:, StreamWord.MODE] = 1

    @property
    def prefetch(self) -> bool:
        """Whether stream callbacks are asked ahead of time."""
        return self._host.streams.prefetch

    @prefetch.setter
    def prefetch(self, on: bool) -> None:
        self._host.streams.prefetch = on

    def connect_host_function(self, name: str, function: Callable[..., Any]) -> None:
        """The Python function of a host function: gets input arrays, then output arrays to fill."""
        self._host.functions[name] = function

    # ------------------------------------------------------------------ reports
    def cycles(self, replica: int = 0) -> CycleReport:
        """Cycles of all runs so far, by phase, IPU and step."""
        return count_cycles(self.executable, self._counts[replica])

    def reset_cycles(self) -> None:
        """Start counting anew."""
        self._counts[:] = 0

    def run_uncounted(self, program: int | str = 0, *, timeout: float | None = None) -> CycleReport:
        """`run`, and leave it out of `cycles`; returns the cycles of this run (replica 0)."""
        before = self._counts.copy()
        try:
            self.run(program, timeout=timeout)
            return count_cycles(self.executable, self._counts[0] - before[0])
        finally:
            self._counts[:] = before

    def measure(self, program: int | str = 0, repeats: int = 10) -> NDArray[np.float64]:
        """Host seconds every step of a program takes (replica 0, thread 0, waiting included), as
        the mean of some runs: float64[steps]."""
        ticks = aligned(max(1, len(self.executable.steps)))
        total = 0.0
        self._pool.set(W.PROFILE, int(ticks.ctypes.data))
        try:
            for _ in range(repeats):
                begin = time.perf_counter()
                self.run(program)
                total += time.perf_counter() - begin
        finally:
            self._pool.set(W.PROFILE, 0)
        share = ticks[: len(self.executable.steps)] / max(1, int(ticks.sum()))
        return share * (total / max(1, repeats))

    @property
    def pool(self) -> ThreadPool:
        """The threads (for the runtime's other parts)."""
        return self._pool

    @property
    def stop_reason(self) -> str:
        """Why the last run was stopped: stop, signal, timeout, or nothing."""
        return self._reason

    def find_row(self, address: int) -> tuple[int, int] | None:
        """(table, row) of a table address an error names."""
        return self._loaded.find_row(address)

    def take_host_error(self) -> BaseException | None:
        """What a callback raised in the last run."""
        return self._host.take_error()
