"""Several programs in one executable, saved to a file and run from it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from common import arguments, finish, new_graph

from poplar_py import poplar, popops
from poplar_py.poplar.program import Sequence

SIZE = 100


def main() -> None:
    graph = new_graph(arguments(__doc__))
    x = graph.add_variable(poplar.FLOAT, [SIZE], "x", mapping="linear")
    double, shift = Sequence(), Sequence()
    popops.map_in_place(graph, "mul($0,c(2))", [x], double, "double")
    popops.map_in_place(graph, "add($0,c(1))", [x], shift, "shift")
    graph.create_host_write("x", x)
    graph.create_host_read("x", x)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "programs.pexe"
        poplar.compile_graph(graph, [double, shift]).save(path)
        size = path.stat().st_size
        engine = poplar.Engine(str(path))
        engine.write_tensor("x", np.arange(SIZE, dtype=np.float32))
        for program in (0, 1, 0):  # state stays on the tiles between the programs
            engine.run(program)
        got = engine.read_tensor("x")
    good = np.array_equal(got, (np.arange(SIZE) * 2 + 1) * 2)
    finish(good, f"2 (2 x + 1) from a file of {size} bytes")


if __name__ == "__main__":
    main()
