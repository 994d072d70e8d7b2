"""Tutorial 4: where the cycles and bytes of two matrix products go."""

from __future__ import annotations

import io

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar, poplin
from poplar_py.poplar.program import Sequence


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=40)
    options.add_argument("--report", help="folder for reports, written while compiling and running")
    args = options.parse_args()
    size = args.size
    graph = new_graph(args)
    names = ("m1", "m2", "m3")
    tensors = [graph.add_variable(poplar.FLOAT, [size, size], n, mapping="linear") for n in names]
    for name, tensor in zip(names, tensors, strict=True):
        graph.create_host_write(name, tensor)
    prog = Sequence()
    first = poplin.mat_mul(graph, tensors[0], tensors[1], prog, "first")
    second = poplin.mat_mul(graph, first, tensors[2], prog, "second")
    graph.create_host_read("out", second)

    wanted = {"autoReport.all": "true", "autoReport.directory": args.report} if args.report else {}
    engine = poplar.Engine(graph, prog, wanted)
    rng = np.random.default_rng(4)
    m1, m2, m3 = (rng.standard_normal((size, size), np.float32) for _ in names)
    for name, value in zip(names, (m1, m2, m3), strict=True):
        engine.write_tensor(name, value)
    engine.run()
    got = engine.read_tensor("out").reshape(size, size)

    summary = io.StringIO()
    engine.print_profile_summary(summary, {"showExecutionSteps": "true", "showVarStorage": "true"})
    print(summary.getvalue())
    right = np.allclose(got, m1.astype(np.float64) @ m2 @ m3, rtol=1e-4, atol=1e-3)
    counted = f"{engine.cycles().total:,}" in summary.getvalue()
    finish(right and counted, f"two products of {size} x {size}, and their profile")


if __name__ == "__main__":
    main()
