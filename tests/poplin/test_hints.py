"""What vertices ask for ahead of time: the weights of the group their thread runs next, whole."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import poplin
from poplar_py.codelets.rows import row_layout
from poplar_py.executable.build import build_executable
from poplar_py.executable.executable import Executable, Table
from poplar_py.executable.tables import split_threads
from poplar_py.poplar import Graph, Target, program
from poplar_py.poplin.params import ConvForm
from poplar_py.types import f32


def convolution(channels: int) -> Executable:
    """3 x 3 on 7 x 7 pixels; vertices make two rows of the image, the last of a group makes one."""
    graph = Graph(Target.ipu("gc200", 1, 1472))
    prog = program.Sequence()
    x = graph.add_variable(f32, (1, channels, 7, 7), mapping="linear")
    graph.create_host_write("x", x)
    weights = np.zeros((channels, channels, 3, 3), np.float32)
    form = ConvForm.of(2, pads=(1, 1, 1, 1))
    out = poplin.convolution(graph, x, weights, None, form, prog)
    graph.create_host_read("out", out)
    return build_executable(graph, [prog])


def asked(exe: Executable, t: Table, threads: int) -> tuple[int, int]:
    """(groups of rows with the same weights, those whose weights were asked for line by line)."""
    layout = row_layout(exe.codelets[int(t.kernel[7:])].fields, exe.wide)
    at = {name: layout.slot(name).word for name in ("w", "ahead", "line", "lines", "x", "out")}
    groups = covered = 0
    for part in split_threads(t.order, t.cost, threads, t.together):
        length = np.diff(t.ptr)[part]
        words = np.concatenate([t.words[t.ptr[v] : t.ptr[v + 1]] for v in part])
        row = np.cumsum(length) - length
        base = words[row + at["w"]].astype(np.int64)
        lines: dict[int, set[int]] = {}
        size: dict[int, int] = {}
        for k, r in enumerate(row.tolist()):
            ahead, line, per = (int(words[r + at[n]]) for n in ("ahead", "line", "lines"))
            count, items = int(words[r + at["x"] + 1]), int(words[r + at["out"] + 1]) // 2
            size[int(base[k])] = count // items * 16 * 2 * 3  # lines of 16 weights
            seen = (
                int(words[r + ahead * int(length[k]) + at["w"]]) if 2 * ahead < len(row) - k else 0
            )
            lines.setdefault(seen, set()).update(range(line, line + per * count))
        groups += len(size)
        covered += sum(lines.get(b, set()) >= set(range(n)) for b, n in size.items())
    return groups, covered


@pytest.mark.parametrize("threads", [1, 2])
def test_the_next_weights_are_asked_for(threads: int) -> None:
    exe = convolution(512)
    tables = [
        t
        for t in exe.tables
        if t.kernel.startswith("vertex:")
        and "ConvBlock<float,3,1,1,7,2" in exe.codelets[int(t.kernel[7:])].name
    ]
    assert [t.stands_for >= 0 for t in tables] == [False, True]  # as planned, and adding in place
    for table in tables:
        groups, covered = asked(exe, table, threads)
        assert groups > 16
        assert covered >= groups - 3 * threads
