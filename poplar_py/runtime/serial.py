"""Small steps and small programs on one thread, where sharing them would cost more than it saves.

A table whose rows take less than `SMALL_NS` goes to thread 0 whole. A barrier between two stretches
that only thread 0 works in is not needed, and goes, as long as the stretch stays short: who waits
at the next barrier should still be spinning. A program whose steps have next to nothing to share
runs on one thread altogether: a busy core beside it then holds up no barrier.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import Op
from poplar_py.executable.code import TARGET_WORD, select_mode
from poplar_py.executable.executable import DEFAULT_MODE, Executable

SMALL_NS = 1_500.0
LONG_NS = 8_000.0
"""No stretch without a barrier is estimated to take longer."""
_CYCLE_NS = 0.25
"""Host time of a worker cycle, an order of magnitude."""
_SHARE = 1 / 6
"""What a second thread saves of an estimate: half, and the estimates of 23 models are three times
what runs of them took on one thread."""
_BARRIER_NS = 1_000.0
LEAST_GAIN_NS = 20_000.0
"""Programs whose estimated gain is less took as long or longer on two threads than on one."""
_ALONE = frozenset({int(Op.STREAM), int(Op.HOST), int(Op.CONSENSUS), int(Op.REMOTE)})
_NOTHING = frozenset({int(Op.STEP), int(Op.HALT)})
Code = NDArray[np.int64]


def table_ns(exe: Executable) -> NDArray[np.float64]:
    """Estimated host time of every table."""
    out = np.zeros(len(exe.tables))
    for k, t in enumerate(exe.tables):
        scale = _CYCLE_NS if t.kernel.startswith("vertex:") else 0.1
        out[k] = float(t.cost.sum()) * scale + 20
    return out


def worth_sharing(exe: Executable) -> bool:
    """Whether several threads would run a replica's program faster than one."""
    ns = table_ns(exe)
    code, switches, entries = select_mode(exe.code, exe.switches, exe.entries, DEFAULT_MODE)
    code, _, _ = drop(code, switches, entries, needless_barriers(code, switches, entries, ns))
    return gain_ns(code, ns) >= LEAST_GAIN_NS


def gain_ns(code: Code, ns: NDArray[np.float64]) -> float:
    """Estimated host time that a second thread saves: its share of the work, less the barriers."""
    times = _rounds(code)
    calls = code[:, 0] == Op.CALL
    spent = ns[code[calls, 1]]
    shared = float((spent * times[calls])[spent > SMALL_NS].sum())
    barriers = float(times[code[:, 0] == Op.BARRIER].sum())
    return shared * _SHARE - barriers * _BARRIER_NS


def _rounds(code: Code) -> NDArray[np.float64]:
    """How often each instruction runs; loops that data end count as one round."""
    out = np.ones(len(code))
    counts: dict[int, int] = {}
    for i, (op, counter, word) in enumerate(code[:, :3].tolist()):
        if op == Op.SET:
            counts[counter] = max(1, word)
        elif op == Op.LOOP:
            out[word : i + 1] *= counts.get(counter, 1)
    return out


def needless_barriers(
    code: Code, switches: list[Code], entries: dict[str, int], ns: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which instructions are barriers that can go; bool[instructions]."""
    target = np.zeros(len(code) + 1, np.bool_)
    target[list(entries.values())] = True
    for op, word in TARGET_WORD.items():
        target[code[code[:, 0] == op, word]] = True
    for s in switches:
        if len(s):
            target[s[:, 1]] = True
    gone = np.zeros(len(code), np.bool_)
    op = code[:, 0].tolist()
    last, alone, spent = -1, False, 0.0  # the last barrier, the stretch since it (and before it)
    before_alone, before_spent = False, 0.0
    for i, o in enumerate(op):
        if target[i]:  # control comes from elsewhere: nothing is known
            last, alone, before_alone = -1, False, False
        if o == Op.BARRIER:
            if last >= 0 and before_alone and alone and before_spent + spent <= LONG_NS:
                gone[last] = True
                spent += before_spent
            before_alone, before_spent = alone, spent
            last, alone, spent = i, True, 0.0
        elif o == Op.CALL:
            cost = float(ns[code[i, 1]])
            alone = alone and cost <= SMALL_NS
            spent += cost
        elif o in _ALONE:
            spent += 200.0
        elif o not in _NOTHING:
            alone = False
    return gone


def drop(
    code: Code, switches: list[Code], entries: dict[str, int], gone: NDArray[np.bool_]
) -> tuple[Code, list[Code], dict[str, int]]:
    """The code without some instructions, targets renumbered."""
    stay = ~gone
    new = np.zeros(len(stay) + 1, np.int64)
    np.cumsum(stay, out=new[1:])
    out = code[stay].copy()
    for op, word in TARGET_WORD.items():
        pick = out[:, 0] == op
        out[pick, word] = new[out[pick, word]]
    tables = [np.stack([s[:, 0], new[s[:, 1]]], 1) if len(s) else s for s in switches]
    return out, tables, {name: int(new[at]) for name, at in entries.items()}
