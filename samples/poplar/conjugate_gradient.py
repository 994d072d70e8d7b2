"""Conjugate gradients for a Poisson problem: the operator as a map over shifted views."""

from __future__ import annotations

import numpy as np
from common import finish, new_graph, parser

from poplar_py import poplar, popops
from poplar_py.poplar.program import Copy, RepeatWhileTrue, Sequence

TOLERANCE = 1e-10


def dot(
    graph: poplar.Graph, a: poplar.Tensor, b: poplar.Tensor, prog: Sequence, name: str
) -> poplar.Tensor:
    """The sum of a * b."""
    product = popops.mul(graph, a, b, prog, f"{name}/product")
    return popops.reduce(graph, product, [0, 1], "sum", prog, name)


def solver(graph: poplar.Graph, n: int) -> Sequence:
    """The program: from residual r = b and x = 0, steps until r is small."""

    def variable(shape: list[int], name: str) -> poplar.Tensor:
        return graph.add_variable(poplar.FLOAT, shape, name, mapping="linear")

    x, r = variable([n, n], "x"), variable([n, n], "r")
    padded = variable([n + 2, n + 2], "p")
    rho, steps = variable([], "rho"), graph.add_variable(poplar.INT, [], "steps", mapping=0)
    p = padded.slice([1, 1], [n + 1, n + 1])

    body = Sequence()
    corners = (([1, 1], [n + 1, n + 1]), ([0, 1], [n, n + 1]), ([2, 1], [n + 2, n + 1]))
    corners += (([1, 0], [n + 1, n]), ([1, 2], [n + 1, n + 2]))
    shifted = [padded.slice(*corner) for corner in corners]
    poisson = "sub(mul($0,c(4)),add(add($1,$2),add($3,$4)))"
    ap = popops.map(graph, poisson, shifted, body, "A p")
    alpha = popops.div(graph, rho, dot(graph, p, ap, body, "p A p"), body, "alpha")
    popops.map_in_place(graph, "add($0,mul($1,$2))", [x, alpha, p], body, "x")
    popops.map_in_place(graph, "sub($0,mul($1,$2))", [r, alpha, ap], body, "r")
    fresh = dot(graph, r, r, body, "r r")
    beta = popops.div(graph, fresh, rho, body, "beta")
    popops.map_in_place(graph, "add($1,mul($2,$0))", [p, r, beta], body, "p")
    body.add(Copy(fresh, rho))
    popops.map_in_place(graph, "add($0,c(1))", [steps], body, "count")

    condition = Sequence()
    large = popops.map(graph, f"gt($0,c({TOLERANCE}))", [rho], condition, "large")
    few = popops.map(graph, f"lt($0,c({4 * n}))", [steps], condition, "few")
    go_on = popops.logical_and(graph, large, few, condition, "go on")
    program = Sequence(Copy(r, p), Copy(dot(graph, r, r, setup := Sequence(), "first"), rho))
    for name, tensor in (("p", padded), ("r", r), ("steps", steps), ("x", x)):
        graph.create_host_write(name, tensor)
        graph.create_host_read(name, tensor)
    return Sequence(setup, program, RepeatWhileTrue(condition, go_on, body))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--size", type=int, default=24)
    args = options.parse_args()
    graph = new_graph(args)
    n = args.size
    whole = solver(graph, n)

    b = np.random.default_rng(7).standard_normal((n, n)).astype(np.float32)
    engine = poplar.Engine(graph, whole)
    zeros = {"p": (n + 2, n + 2), "x": (n, n)}
    for name, shape in zeros.items():
        engine.write_tensor(name, np.zeros(shape, np.float32))
    engine.write_tensor("steps", np.array(0, np.int32))
    engine.write_tensor("r", b)
    engine.run()
    got = np.pad(engine.read_tensor("x").reshape(n, n).astype(np.float64), 1)
    around = got[:-2, 1:-1] + got[2:, 1:-1] + got[1:-1, :-2] + got[1:-1, 2:]
    residual = float(np.abs(4 * got[1:-1, 1:-1] - around - b).max())
    count = int(engine.read_tensor("steps")[0])
    finish(residual < 1e-4, f"{n * n} unknowns, {count} steps, largest residual {residual:.1e}")


if __name__ == "__main__":
    main()
