"""Codelets of the tutorial steps."""

from poplar_py.codelets.language import (
    Input,
    Output,
    Vector,
    Vertex,
    f32,
    fma,
    vertex,
)


@vertex
class SumVertex(Vertex):
    """out = sum of the elements of `x`."""

    x: Input[Vector[f32]]
    out: Output[f32]

    def compute(self) -> None:
        total = f32(0)
        for i in range(len(self.x)):
            total += self.x[i]
        self.out = total


@vertex
class DotProduct(Vertex):
    """out = a . b, vectors of equal length."""

    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    out: Output[f32]

    def compute(self) -> None:
        total = f32(0)
        for i in range(len(self.a)):
            total = fma(self.a[i], self.b[i], total)
        self.out = total


@vertex
class Reduce(Vertex):
    """out = sum of partial sums."""

    partials: Input[Vector[f32]]
    out: Output[f32]

    def compute(self) -> None:
        total = f32(0)
        for i in range(len(self.partials)):
            total += self.partials[i]
        self.out = total
