"""When every message of an exchange goes: list scheduling, natively.

Rounds: messages wait in order of priority; a message goes as soon as its sender and all its
receivers are free. In every round those of ports with most left to do come first, so that no port
is left with its work when the others are done. This ends within a few percent of the bound, the
busiest port, on the exchanges of convolution networks, and 12 % above it where a large matrix is
rearranged over all tiles. The scheduler is itself a codelet, compiled as any other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.jit import Jit
from poplar_py.codelets.codelet import Codelet, CodeletLibrary
from poplar_py.codelets.rows import row_layout
from poplar_py.executable.tables import FieldWords, fill_rows
from poplar_py.passes.exchange_messages import Messages
from poplar_py.poplar.arrays import I8, Ints

MAX_MESSAGES = 1 << 17
"""Exchanges of more messages are charged their bound."""
_ROUNDS = 64
URGENT = 15
"""Sixteenths of the most that a port has left from which its messages go before others."""
NEAR = 64
"""A schedule this part of the bound above it is not improved."""
_SOURCE = """
@vertex
class ExchangeRounds(Vertex):
    source: Input[Vector[i32]]
    cycles: Input[Vector[i32]]
    ptr: Input[Vector[i32]]
    receiver: Input[Vector[i32]]
    waiting: InOut[Vector[i32]]
    send: InOut[Vector[i32]]
    receive: InOut[Vector[i32]]
    to_send: InOut[Vector[i32]]
    to_receive: InOut[Vector[i32]]
    start: Output[Vector[i32]]
    quantum: i32
    share: i32

    def compute(self) -> bool:
        n = len(self.waiting)
        now = 0
        least = 0
        while n > 0:
            left = 0
            soon = 2147483647
            for urgent in range(2):
                count = n if urgent == 0 else left
                left = 0
                for k in range(count):
                    m = self.waiting[k]
                    s = self.source[m]
                    t = self.send[s]
                    load = self.to_send[s]
                    for j in range(self.ptr[m], self.ptr[m + 1]):
                        t = max(t, self.receive[self.receiver[j]])
                        load = max(load, self.to_receive[self.receiver[j]])
                    if t <= now and (urgent == 1 or load >= least):
                        self.start[m] = t
                        end = t + self.cycles[m]
                        self.send[s] = end
                        self.to_send[s] = self.to_send[s] - self.cycles[m]
                        for j in range(self.ptr[m], self.ptr[m + 1]):
                            r = self.receiver[j]
                            self.receive[r] = end
                            self.to_receive[r] = self.to_receive[r] - self.cycles[m]
                    else:
                        self.waiting[left] = m
                        left = left + 1
                        if urgent == 1:
                            soon = min(soon, t)
            n = left
            now = max(soon, now + self.quantum)
            most = 0
            for k in range(n):
                m = self.waiting[k]
                most = max(most, self.to_send[self.source[m]])
                for j in range(self.ptr[m], self.ptr[m + 1]):
                    most = max(most, self.to_receive[self.receiver[j]])
            least = most // 16 * self.share
        return True
"""


@dataclass
class Schedule:
    """``start`` int64[messages]; ``makespan`` and ``bound`` (the busiest port) in cycles."""

    start: Ints
    makespan: int
    bound: int


_jits: dict[str, Jit] = {}
_making = threading.Lock()


def shared_jit(cpu: str = "native") -> Jit:
    """One compiler per CPU name for the process: a second one made by another thread would take
    its code with it when it goes, though somebody runs it."""
    with _making:
        if cpu not in _jits:
            _jits[cpu] = Jit(cpu)
        return _jits[cpu]


@cache
def _codelet() -> Codelet:
    library = CodeletLibrary()
    library.add_source(_SOURCE, "exchange scheduler")
    return library.get("ExchangeRounds")


@cache
def _kernel() -> Callable[[int | None, int, int, int], int]:
    symbol, text = emit_kernel(_codelet(), checked=False, wide=True)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    return kind(shared_jit().load({symbol: text})[symbol])


def schedule(m: Messages, cycles: Ints, num_tiles: int) -> Schedule:
    """The best of three list schedules, longest messages first: those of the ports that have most
    left before all others, or without regard to ports, or by the load of ports."""
    if len(m) == 0:
        return Schedule(np.zeros(0, I8), 0, 0)
    per = np.diff(m.ptr)
    sent = np.bincount(m.source, cycles, num_tiles)
    received = np.bincount(m.receiver, np.repeat(cycles, per), num_tiles)
    bound = int(max(sent.max(), received.max()))
    port = np.maximum(sent[m.source], np.maximum.reduceat(received[m.receiver], m.ptr[:-1]))
    best: Schedule | None = None
    first = np.argsort(-cycles, kind="stable")
    quantum = max(1, bound // _ROUNDS)
    for order, urgent in ((first, URGENT), (first, 0), (np.lexsort((-cycles, -port)), 0)):
        start = _run(m, cycles, order, (sent, received), quantum, urgent)
        makespan = int((start + cycles).max())
        if best is None or makespan < best.makespan:
            best = Schedule(start, makespan, bound)
        if makespan <= bound + bound // NEAR:
            break
    assert best is not None
    return best


def _run(
    m: Messages, cycles: Ints, order: Ints, load: tuple[Ints, Ints], quantum: int, urgent: int
) -> Ints:
    num_tiles = len(load[0])
    arrays = {
        "source": np.ascontiguousarray(m.source, np.int32),
        "cycles": cycles.astype(np.int32),
        "ptr": np.ascontiguousarray(m.ptr, np.int32),
        "receiver": np.ascontiguousarray(m.receiver, np.int32),
        "waiting": order.astype(np.int32),
        "send": np.zeros(num_tiles, np.int32),
        "receive": np.zeros(num_tiles, np.int32),
        "to_send": load[0].astype(np.int32),
        "to_receive": load[1].astype(np.int32),
        "start": np.zeros(len(m), np.int32),
    }
    words = {
        name: FieldWords(np.array([a.ctypes.data], I8), np.array([len(a)], I8))
        for name, a in arrays.items()
    }
    layout = row_layout(_codelet().fields, wide=True)
    row = fill_rows(
        layout,
        1,
        words,
        {"quantum": np.array([quantum], np.int32), "share": np.array([urgent], np.int32)},
    )
    ctx = np.zeros(16, I8)
    _kernel()(None, row.words.ctypes.data, 1, ctx.ctypes.data)
    return arrays["start"].astype(I8)
