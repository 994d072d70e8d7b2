"""Dense solvers: small diagonal blocks, each factorised or solved by one vertex.

Every sum is taken in ascending order of its index, with one rounding a product and one a sum.
"""

NAMESPACE = "poplin"

T = TypeVar("T", f32, f64)


@vertex
class CholeskyBlock(Vertex, Generic[T]):
    """a [n, n] symmetric, its lower triangle read, becomes L with a = L L^T; zeros above.

    A matrix that is not positive definite gives NaN.
    """

    a: InOut[Vector[T, ONE_PTR]]
    n: i32

    def compute(self) -> None:
        n = self.n
        for j in range(n):
            total = self.a[j * n + j]
            for k in range(j):
                total = total - self.a[j * n + k] * self.a[j * n + k]
            pivot = sqrt(total)
            self.a[j * n + j] = pivot
            for i in range(j + 1, n):
                rest = self.a[i * n + j]
                for k in range(j):
                    rest = rest - self.a[i * n + k] * self.a[j * n + k]
                self.a[i * n + j] = rest / pivot
                self.a[j * n + i] = T(0)


@vertex
class LUBlock(Vertex, Generic[T]):
    """a [n, n] becomes U on and above the diagonal and L, whose diagonal is 1, below: a = L U."""

    a: InOut[Vector[T, ONE_PTR]]
    n: i32

    def compute(self) -> None:
        n = self.n
        for k in range(n):
            pivot = self.a[k * n + k]
            for i in range(k + 1, n):
                factor = self.a[i * n + k] / pivot
                self.a[i * n + k] = factor
                for j in range(k + 1, n):
                    self.a[i * n + j] = self.a[i * n + j] - factor * self.a[k * n + j]


@vertex
class SolveBlock(Vertex, Generic[T]):
    """l y = x column by column, y over x; l [n, n] lower triangular.

    Element (i, k) of l lies at i l_row + k l_col, element i of column c of x at i x_row + c x_col.
    With `unit` the diagonal of l counts as 1.
    """

    x: InOut[Vector[T, ONE_PTR]]
    l: Input[Vector[T, ONE_PTR]]
    n: i32
    cols: i32
    l_row: i32
    l_col: i32
    x_row: i32
    x_col: i32
    unit: i32

    def compute(self) -> None:
        for i in range(self.n):
            pivot = T(1)
            if self.unit == 0:
                pivot = self.l[i * self.l_row + i * self.l_col]
            for c in range(self.cols):
                total = self.x[i * self.x_row + c * self.x_col]
                for k in range(i):
                    factor = self.l[i * self.l_row + k * self.l_col]
                    total = total - factor * self.x[k * self.x_row + c * self.x_col]
                self.x[i * self.x_row + c * self.x_col] = total / pivot
