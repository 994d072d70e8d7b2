"""The native program driver: an interpreter of step code that runs on N host threads (SPMD).

One exported function, ``pp_driver(pool, mode)``:

    mode 0      launch: run the program described by ``pool``; the caller is thread 0
    mode t > 0  become worker thread ``t``; returns after mode -1
    mode -1     make all workers return
    mode -2     time ``pool[0]`` pauses is left to the caller: executes that many pauses

Step code is a flat int64 array, `WORDS` words an instruction; `Op` lists them.  Every thread of a
team (the threads that share one replica) walks the code by itself; barriers are explicit.  A
barrier spins a bounded time, then sleeps on a futex, and gives up as soon as the stop flag is set,
so a stopped program leaves every thread, whatever it waited for.
"""

from __future__ import annotations

import platform

from poplar_py.codegen.program_barrier import BARRIER, HEAD, MEET
from poplar_py.codegen.program_host import HOST
from poplar_py.codegen.program_steps import INTERPRETER
from poplar_py.codegen.program_text import expand
from poplar_py.codegen.program_threads import DRIVER, RUN, WORKER
from poplar_py.codegen.program_words import FUTEX_SLICE_NS, TEAM_BYTES

_SPECIAL = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()", 202),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)", 98),
}


def driver_text(machine: str | None = None) -> str:
    """LLVM module of ``pp_driver`` for ``machine`` (default: this one)."""
    machine = machine or platform.machine()
    if machine not in _SPECIAL:
        raise ValueError(f"no driver for machine {machine!r}; known: {', '.join(_SPECIAL)}")
    declare, pause, futex = _SPECIAL[machine]
    text = expand("\n".join([HEAD, BARRIER, MEET, RUN, HOST, INTERPRETER, WORKER, DRIVER]))
    return (
        text.replace("$DECLARE_PAUSE", declare)
        .replace("$PAUSE", pause)
        .replace("$FUTEX", str(futex))
        .replace("$SLICE", str(FUTEX_SLICE_NS))
        .replace("$TEAM_BYTES", str(TEAM_BYTES))
        .replace("$CLOCK", "call i64 @llvm.readcyclecounter()")
    )
