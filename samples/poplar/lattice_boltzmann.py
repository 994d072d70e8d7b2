"""A D2Q9 lattice Boltzmann fluid on a torus: streaming by views, mass conserved."""

from __future__ import annotations

import numpy as np
from blocks import blocks, rolled
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Execute, Program, Repeat, Sequence

FLOWS = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1))
"""(dy, dx) of the nine directions."""
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
OMEGA = 1.2


def step(graph: poplar.Graph, a: poplar.Tensor, b: poplar.Tensor) -> Program:
    """b = a after streaming and collision."""
    compute_set = graph.add_compute_set("collide")
    arriving = [rolled(a[d], dy, dx) for d, (dy, dx) in enumerate(FLOWS)]
    for tile, top, bottom, left, right in blocks(a.dim(1), a.dim(2), graph.target.num_tiles):
        corner = ([top, left], [bottom, right])
        edges = {
            "f": [view.slice(*corner).flatten() for view in arriving],
            "out": [b[d].slice(*corner).flatten() for d in range(9)],
        }
        vertex = graph.add_vertex(compute_set, "LatticeBoltzmann", edges)
        graph.set_initial_value(vertex["omega"], OMEGA)
        graph.set_tile_mapping(vertex, tile)
        for d in range(9):
            graph.set_tile_mapping(b[d].slice(*corner), tile)
    return Execute(compute_set)


def reference(f: np.ndarray, steps: int) -> np.ndarray:
    """The same in NumPy, in float64."""
    f = f.astype(np.float64)
    c = np.array(FLOWS, float)
    for _ in range(steps):
        f = np.stack([np.roll(f[d], FLOWS[d], (0, 1)) for d in range(9)])
        rho = f.sum(axis=0)
        u = np.tensordot(c.T, f, 1) / rho
        along = 3 * np.tensordot(c, u, 1)
        even = 1 + along + along**2 / 2 - 1.5 * (u**2).sum(axis=0)
        f += OMEGA * (WEIGHTS[:, None, None] * rho * even - f)
    return f


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=48)
    options.add_argument("--steps", type=int, default=20)
    args = options.parse_args()
    graph = new_graph(args, "grids.py")
    shape = [9, args.size, args.size]
    a = graph.add_variable(poplar.FLOAT, shape, "a")
    b = graph.add_variable(poplar.FLOAT, shape, "b")
    pair = Sequence(step(graph, a, b), step(graph, b, a))
    graph.create_host_write("f", a)
    graph.create_host_read("f", a)

    y = np.linspace(0, 2 * np.pi, args.size, endpoint=False)
    rho = 1 + 0.1 * np.sin(y)[:, None] * np.cos(y)[None, :]
    start = (WEIGHTS[:, None, None] * rho).astype(np.float32)
    engine = poplar.Engine(graph, Repeat(args.steps // 2, pair))
    engine.write_tensor("f", start)
    engine.run()
    got = engine.read_tensor("f").reshape(shape)
    error = float(np.abs(got - reference(start, args.steps // 2 * 2)).max())
    mass = float(abs(got.sum(dtype=np.float64) / start.sum(dtype=np.float64) - 1))
    finish(error < 1e-5 and mass < 1e-6, f"largest error {error:.1e}, mass lost {mass:.1e}")


if __name__ == "__main__":
    main()
