"""Turning rows into lanes: blocks of 16 x 16 elements, and rows that become channels side by side."""

NAMESPACE = "poplin"

T = TypeVar("T", f16, f32)


@vertex
class TransposeBlock(Vertex, Generic[T]):
    """Blocks of 16 x 16: out[b][j][i] = x[b][i][j]; one edge of x for every block of out."""

    out: Output[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]

    def compute(self) -> None:
        for b in range(len(self.x)):
            row = self.x[b]
            tile = array(f32x16, 16)
            for i in unroll(16):
                tile[i] = load16(row, i * 16)
            transpose16(tile)
            for i in unroll(16):
                store16(self.out, b * 256 + i * 16, tile[i])


@vertex
class LaneBlock(Vertex, Generic[T]):
    """out[low + j][i] = x[i][step j]: up to 16 rows of `width` elements become lanes side by side.

    `low` vectors before and `high` behind are zero, and so are the lanes without a row.
    """

    out: Output[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    width: i32
    low: i32
    high: i32
    step: i32

    def compute(self) -> None:
        zero = splat16(0.0)
        for j in range(self.low):
            store16(self.out, j * 16, zero)
        for j0 in range(0, self.width, 16):
            n = min(self.width - j0, 16)
            tile = array(f32x16, 16)
            for i in unroll(16):
                if i < len(self.x):
                    row = self.x[i]
                    if self.step == 1:
                        tile[i] = load16(row, j0, n)
                    else:
                        at = min(i32x16(iota16()) + splat16(j0), splat16(self.width - 1))
                        tile[i] = gather(row, at * splat16(self.step))
            transpose16(tile)
            for j in unroll(16):
                if j < n:
                    store16(self.out, (self.low + j0 + j) * 16, tile[j])
        for j in range(self.high):
            store16(self.out, (self.low + self.width + j) * 16, zero)
