"""A Gaussian blur of an image, in half and in float."""

from __future__ import annotations

import numpy as np
from blocks import blocks, row_list
from common import finish, new_graph, parser

from poplar_py import poplar
from poplar_py.poplar.program import Execute


def blur(graph: poplar.Graph, dtype: poplar.DType, size: int, name: str) -> Execute:
    """Adds an image with a border of one pixel, and its blurred version."""
    image = graph.add_variable(dtype, [size + 2, size + 2], name, mapping="linear")
    out = graph.add_variable(dtype, [size, size], f"{name}/blurred")
    compute_set = graph.add_compute_set(f"{name}/blur")
    for tile, top, bottom, left, right in blocks(size, size, graph.target.num_tiles):
        edges = {
            "x": row_list(image, top, bottom + 2, left, right + 2),
            "out": row_list(out, top, bottom, left, right),
        }
        vertex = graph.add_vertex(compute_set, f"Blur<{name}>", edges)
        graph.set_tile_mapping(vertex, tile)
        graph.set_tile_mapping(out.slice([top, left], [bottom, right]), tile)
    graph.create_host_write(name, image)
    graph.create_host_read(name, out)
    return Execute(compute_set)


def reference(image: np.ndarray) -> np.ndarray:
    """The separable filter in float64."""
    rows = image[:-2] + 2 * image[1:-1] + image[2:]
    return (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=64)
    args = options.parse_args()
    graph = new_graph(args, "grids.py")
    kinds = {"float": (poplar.FLOAT, np.float32, 1e-6), "half": (poplar.HALF, np.float16, 5e-4)}
    programs = [blur(graph, dtype, args.size, name) for name, (dtype, _, _) in kinds.items()]
    engine = poplar.Engine(graph, programs)
    image = np.random.default_rng(4).random((args.size + 2, args.size + 2))
    errors: dict[str, float] = {}
    for number, (name, (_, numpy_type, _)) in enumerate(kinds.items()):
        held = image.astype(numpy_type)
        engine.write_tensor(name, held)
        engine.run(number)
        got = engine.read_tensor(name).reshape(args.size, args.size).astype(np.float64)
        errors[name] = float(np.abs(got - reference(held.astype(np.float64))).max())
    good = all(errors[name] < limit for name, (_, _, limit) in kinds.items())
    finish(good, ", ".join(f"{name}: largest error {e:.1e}" for name, e in errors.items()))


if __name__ == "__main__":
    main()
