"""Codelets of the grid samples: every vertex owns a block of cells and reads a halo around it."""

from poplar_py.codelets.language import (
    Generic,
    Input,
    Output,
    TypeVar,
    Vector,
    Vertex,
    array,
    cast,
    f16,
    f32,
    i32,
    select,
    unroll,
    vertex,
)

T = TypeVar("T", f16, f32)


@vertex
class Heat(Vertex):
    """One explicit step of the heat equation on `planes` planes of `rows` rows.

    x: (planes + 2 HALO) x (rows + 2) rows with a halo cell at both ends; out: the inner rows.
    HALO planes above and below: 0 in two dimensions, 1 in three.
    """

    x: Vector[Input[Vector[f32]]]
    out: Vector[Output[Vector[f32]]]
    alpha: f32
    rows: i32
    halo: i32

    def compute(self) -> None:
        pitch = self.rows + 2
        for i in range(len(self.out)):
            at = (i // self.rows + self.halo) * pitch + i % self.rows + 1
            for j in range(len(self.out[i])):
                mid = self.x[at][j + 1]
                total = self.x[at - 1][j + 1] + self.x[at + 1][j + 1]
                total += self.x[at][j] + self.x[at][j + 2] - f32(4) * mid
                if self.halo > 0:
                    total += self.x[at - pitch][j + 1] + self.x[at + pitch][j + 1] - f32(2) * mid
                self.out[i][j] = mid + self.alpha * total


@vertex
class Life(Vertex):
    """The next generation: near holds the eight neighbours of each cell, a list a direction."""

    near: Vector[Input[Vector[i32]]]
    cells: Input[Vector[i32]]
    out: Output[Vector[i32]]

    def compute(self) -> None:
        for i in range(len(self.out)):
            count = 0
            for d in range(len(self.near)):
                count += self.near[d][i]
            self.out[i] = select(count == 3 or (count == 2 and self.cells[i] == 1), 1, 0)


@vertex
class Blur(Vertex, Generic[T]):
    """A 3 x 3 binomial filter on rows with a halo; sums in f32, stored in T."""

    x: Vector[Input[Vector[T]]]
    out: Vector[Output[Vector[T]]]

    def compute(self) -> None:
        for i in range(len(self.out)):
            for j in range(len(self.out[i])):
                total = f32(0)
                for dy in unroll(3):
                    weight = f32(2 if dy == 1 else 1)
                    row = f32(self.x[i + dy][j]) + f32(self.x[i + dy][j + 2])
                    total += weight * (row + f32(2) * f32(self.x[i + dy][j + 1]))
                self.out[i][j] = cast(total * f32(0.0625), T)


@vertex
class LatticeBoltzmann(Vertex):
    """Stream and collide (D2Q9, BGK): f holds, for each direction, the cells that flow here."""

    f: Vector[Input[Vector[f32]]]
    out: Vector[Output[Vector[f32]]]
    omega: f32

    def compute(self) -> None:
        for i in range(len(self.out[0])):
            g = array(f32, 9)
            rho = f32(0)
            for d in unroll(9):
                g[d] = self.f[d][i]
                rho += g[d]
            ux = (g[1] + g[5] + g[8] - g[3] - g[6] - g[7]) / rho
            uy = (g[2] + g[5] + g[6] - g[4] - g[7] - g[8]) / rho
            square = f32(1.5) * (ux * ux + uy * uy)
            for d in unroll(9):
                east, west = d == 1 or d == 5 or d == 8, d == 3 or d == 6 or d == 7
                north, south = d == 2 or d == 5 or d == 6, d == 4 or d == 7 or d == 8
                cx = 1 if east else -1 if west else 0
                cy = 1 if north else -1 if south else 0
                share = 4.0 / 9.0 if d == 0 else 1.0 / 9.0 if d < 5 else 1.0 / 36.0
                along = f32(3) * (f32(cx) * ux + f32(cy) * uy)
                rest = f32(1) + along + f32(0.5) * along * along - square
                self.out[d][i] = g[d] + self.omega * (f32(share) * rho * rest - g[d])
