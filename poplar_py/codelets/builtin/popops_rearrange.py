"""Matrices of one tile turned in place of a copy element by element."""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool)


@vertex
class Transpose(Vertex, Generic[T]):
    """out[m][c][r] = x[m][r][c] for each of the matrices of `rows` x `cols` elements."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    rows: i32
    cols: i32

    def compute(self) -> None:
        size = self.rows * self.cols
        for m in range(len(self.out) // size):
            for c in range(self.cols):
                for r in range(self.rows):
                    at = m * size + r * self.cols + c
                    self.out[m * size + c * self.rows + r] = self.x[at]
