"""Step code while it is written: instructions with labels, resolved at the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poplar_py.codegen.program_words import WORDS, Op
from poplar_py.executable.executable import ALL_MODES, MODE_WORD

TARGET_WORD = {Op.JUMP: 1, Op.BRANCH: 3, Op.LOOP: 2, Op.SWITCH: 5, Op.SUB: 1}
"""Word of an instruction that holds a target."""


class Code:
    """A growing instruction list. `label` makes a target, `here` puts it at the next
    instruction."""

    def __init__(self) -> None:
        self.lines: list[list[int]] = []
        self.places: list[int] = []
        self.counters = 0
        self.switches: list[NDArray[np.int64]] = []

    def emit(self, op: Op, *words: int, mode: int = ALL_MODES) -> None:
        """Append an instruction; a target word holds a label."""
        line = [int(op), *words]
        line += [0] * (WORDS - len(line))
        line[MODE_WORD] = mode
        self.lines.append(line)

    def call_copy(self, table: int, mode: int = ALL_MODES, stream: int = -1) -> None:
        """Call a copy kernel; ``stream``: whose region all sources lie in, or -1."""
        self.emit(Op.CALL, table, 0, 0, 2 + stream, mode=mode)

    def label(self) -> int:
        """A new label, not placed yet."""
        self.places.append(-1)
        return len(self.places) - 1

    def here(self, label: int | None = None) -> int:
        """Place a label (or a new one) at the next instruction."""
        if label is None:
            label = self.label()
        self.places[label] = len(self.lines)
        return label

    def counter(self) -> int:
        """A loop counter of its own."""
        self.counters += 1
        return self.counters - 1

    def barrier(self, mode: int = ALL_MODES) -> None:
        """All threads of a replica meet."""
        self.emit(Op.BARRIER, mode=mode)

    def switch(self, offset: int, width: int, cases: list[tuple[int, int]], default: int) -> None:
        """Jump by the value of a device integer; cases are (value, label)."""
        self.switches.append(np.array(cases, np.int64).reshape(-1, 2))
        self.emit(Op.SWITCH, offset, width, len(cases), len(self.switches) - 1, default)

    def finish(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """(code int64[n, 8], switch tables) with instruction numbers for labels."""
        code = np.array(self.lines, np.int64).reshape(-1, WORDS)
        place = np.array(self.places or [0], np.int64)
        for op, word in TARGET_WORD.items():
            pick = code[:, 0] == op
            code[pick, word] = place[code[pick, word]]
        switches = [np.stack([s[:, 0], place[s[:, 1]]], 1) if len(s) else s for s in self.switches]
        return code, switches


def select_mode(
    code: NDArray[np.int64], switches: list[NDArray[np.int64]], entries: dict[str, int], mode: int
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], dict[str, int]]:
    """The instructions of one mode, targets renumbered."""
    keep = (code[:, MODE_WORD] == ALL_MODES) | (code[:, MODE_WORD] == mode)
    new = np.append(np.cumsum(keep) - keep, keep.sum())
    out = code[keep].copy()
    for op, word in TARGET_WORD.items():
        pick = out[:, 0] == op
        out[pick, word] = new[out[pick, word]]
    out[:, MODE_WORD] = 0
    tables = [np.stack([s[:, 0], new[s[:, 1]]], 1) if len(s) else s for s in switches]
    return out, tables, {name: int(new[at]) for name, at in entries.items()}
