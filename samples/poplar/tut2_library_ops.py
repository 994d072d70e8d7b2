"""Tutorial 2: operations of the libraries, and data streamed between host and device."""

from __future__ import annotations

import numpy as np
from common import arguments, finish, new_graph

from poplar_py import poplar, popops
from poplar_py.poplar.program import Copy, Repeat, Sequence
from poplar_py.poputil import map_tensor_linearly

ROWS, COLS, TIMES = 5, 30, 3


def main() -> None:
    graph = new_graph(arguments(__doc__))
    m1 = graph.add_variable(poplar.FLOAT, [ROWS, COLS], "m1")
    m2 = graph.add_variable(poplar.FLOAT, [ROWS, COLS], "m2")
    map_tensor_linearly(graph, m1)
    map_tensor_linearly(graph, m2)

    into = graph.add_host_to_device_fifo("in", poplar.FLOAT, ROWS * COLS)
    out = graph.add_device_to_host_fifo("out", poplar.FLOAT, ROWS)
    prog = Sequence(Copy(into, m1), Copy(into, m2))
    total = popops.add(graph, m1, m2, prog, "total")
    sums = popops.reduce(graph, total, [1], "sum", prog, "sums")
    prog.add(Copy(sums, out))

    rng = np.random.default_rng(1)
    data = rng.integers(0, 9, (2 * TIMES, ROWS, COLS)).astype(np.float32)
    results = np.zeros((TIMES, ROWS), np.float32)
    engine = poplar.Engine(graph, Repeat(TIMES, prog))
    engine.connect_stream("in", data)  # ring buffers: every copy takes the next part
    engine.connect_stream("out", results)
    engine.run(0)
    expected = (data[0::2] + data[1::2]).sum(axis=2)
    finish(np.array_equal(results, expected), f"row sums of {TIMES} pairs of matrices")


if __name__ == "__main__":
    main()
