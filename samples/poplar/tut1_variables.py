"""Tutorial 1: variables and constants, copies between them, and reading them from the host."""

from __future__ import annotations

import numpy as np
from common import arguments, finish, new_graph, run

from poplar_py import poplar
from poplar_py.poplar.program import Copy, PrintTensor, Sequence


def main() -> None:
    graph = new_graph(arguments(__doc__))
    v1 = graph.add_variable(poplar.FLOAT, [4], "v1")
    for i in range(4):
        graph.set_tile_mapping(v1[i], i)
    v2 = graph.add_variable(poplar.FLOAT, [4, 4], "v2", mapping="linear")
    c1 = graph.add_constant(poplar.FLOAT, [4], [1.0, 1.5, 2.0, 2.5], "c1")
    graph.set_tile_mapping(c1, 0)

    prog = Sequence(Copy(c1, v1), PrintTensor("v1", v1))
    for row in range(4):
        prog.add(Copy(v1, v2[row]))
    prog.add(Copy(v2.slice(0, 1, 1).flatten(), v1))  # a column: four elements far apart
    graph.create_host_read("v1-read", v1)
    graph.create_host_read("v2-read", v2)

    engine = run(graph, prog)
    rows = engine.read_tensor("v2-read").reshape(4, 4)
    column = engine.read_tensor("v1-read")
    good = np.array_equal(rows, np.tile([1.0, 1.5, 2.0, 2.5], (4, 1))) and (column == 1.0).all()
    finish(good, f"v2 has four equal rows, v1 its first column {column}")


if __name__ == "__main__":
    main()
