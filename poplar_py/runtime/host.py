"""What native code asks of Python: stream callbacks, host functions, printing, cycle counts."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import STOP
from poplar_py.diagnostics import InputError
from poplar_py.executable.executable import HostCall
from poplar_py.runtime.shadow import ASK_CALL, Shadow
from poplar_py.runtime.stream_calls import StreamCalls

if TYPE_CHECKING:
    from poplar_py.runtime.engine import TileEngine

HOST, STREAM_IN, STREAM_OUT, MEETING = 0, 1, 2, 3


class HostServices:
    """The one callback of an engine. An exception in it stops the run and is raised by `run`."""

    def __init__(self, engine: TileEngine) -> None:
        self._engine = weakref.ref(engine)
        self.functions: dict[str, Callable[..., Any]] = {}
        self.streams = StreamCalls()
        self.arrays: dict[tuple[str, int], NDArray[Any]] = {}
        self.output = sys.stderr
        self.shadow: Shadow | None = None
        self._error: BaseException | None = None
        self._begin: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()

    @property
    def engine(self) -> TileEngine:
        """The engine, which is alive while it runs (held weakly: it holds this)."""
        engine = self._engine()
        assert engine is not None
        return engine

    def call(self, kind: int, number: int, replica: int) -> int:
        """Called by native code; nonzero stops the run."""
        try:
            if kind >= ASK_CALL:
                assert self.shadow is not None
                self.shadow.ask(kind, number, replica)
            elif kind == MEETING:
                self._across(self.engine.executable.host_calls[number])
            elif kind == HOST:
                self._host(self.engine.executable.host_calls[number], replica)
            else:
                self._stream(number, replica)
        except BaseException as error:  # must not cross native frames; run() raises it again
            with self._lock:
                self._error = self._error or error
            return 1
        return 0

    def take_error(self) -> BaseException | None:
        """The exception of the last run, once."""
        with self._lock:
            error, self._error = self._error, None
        return error

    def _stream(self, number: int, replica: int) -> None:
        exe = self.engine.executable
        handle = exe.stream_ids[number]
        stream = exe.streams[handle]
        region = self.engine.region(stream.region)[replica]
        feed = self.streams.feeds[handle, replica]
        if stream.to_host:
            feed.take(region)
        else:
            feed.give(region, self._stopped)

    def _stopped(self) -> bool:
        return bool(self.engine.pool.ctx[STOP])

    def _host(self, call: HostCall, replica: int) -> None:
        if call.kind == "call":
            self._function(call, replica)
        elif call.kind == "print":
            self._print(call, replica)
        else:
            self._cycles(call, replica)

    def _across(self, call: HostCall) -> None:
        """Copy between replicas: source replica r to replica map[r]; all of them wait meanwhile."""
        source, target = self.engine.region(call.inputs[0]), self.engine.region(call.outputs[0])
        for r, to in call.detail.items():
            if r >= self.engine.replicas or to >= self.engine.replicas:
                raise InputError(
                    f"a copy from replica {r} to {to}, the engine has {self.engine.replicas}"
                )
            target[to] = source[r]

    def _function(self, call: HostCall, replica: int) -> None:
        found = self.functions.get(call.name)
        if found is None:
            raise InputError(
                f"host function {call.name!r} is not connected", remedy="connect_host_function"
            )
        region = self.engine.region
        ins = [region(i)[replica] for i in call.inputs]
        outs = [region(i)[replica] for i in call.outputs]
        found(*ins, *outs)

    def _print(self, call: HostCall, replica: int) -> None:
        shape, fmt = call.detail
        value = self.engine.region(call.inputs[0])[replica].reshape(shape)
        options: dict[str, Any] = {"separator": ", "}
        if fmt is not None:
            options = {
                "threshold": fmt.threshold,
                "edgeitems": fmt.edge_items,
                "max_line_width": fmt.max_line_width,
                "precision": fmt.precision,
                "separator": fmt.separator,
            }
        text = np.array2string(value, **options)
        title = f"{call.name}: " if call.name else ""
        lead = f"[replica {replica}] " if self.engine.replicas > 1 else ""
        print(f"{lead}{title}{text}", file=self.output, flush=True)

    def _cycles(self, call: HostCall, replica: int) -> None:
        """Cycles so far are static costs times counts; the difference is what the body took."""
        now = self.engine.cycles(replica).total
        key = (replica, call.name)
        if call.kind == "cycles_begin":
            self._begin[key] = now
            return
        value = now - self._begin.get(key, 0)
        self.engine.region(call.outputs[0])[replica][:] = value & 0xFFFFFFFF, value >> 32
