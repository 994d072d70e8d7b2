"""Pooling of one piece of an output row.

x holds the input rows the window covers (all outer spatial axes; rows in the padding left out), each
`width` pixels of L lanes; pixel o of the output looks at pixels off + o * stride + k * dilation.
"""

NAMESPACE = "popnn"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
F = TypeVar("F", f16, f32, f64, bf16)
ACC = TypeVar("ACC", f32, f64)
L = IntParam("L")


def pixel(row, p, L):
    """The L lanes of a pixel, one lane as a scalar."""
    if L == 1:
        return row[p]
    return load_raw(row, p * L, L)


def lanes(value, L):
    """A number in every lane."""
    if L == 1:
        return value
    return splat(value, L)


@vertex
class MaxPool(Vertex, Generic[T, L]):
    """out[o, l] = the largest of the window."""

    out: Output[Vector[T]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    width: i32
    kernel: i32
    stride: i32
    dilation: i32
    off: i32

    def compute(self) -> None:
        for o in range(len(self.out) // L):
            lo = self.off + o * self.stride
            acc = lanes(lowest(T), L)
            for r in range(len(self.x)):
                row = self.x[r]
                for k in range(self.kernel):
                    p = lo + k * self.dilation
                    if p >= 0 and p < self.width:
                        acc = max(acc, pixel(row, p, L))
            if L == 1:
                self.out[o] = acc
            else:
                store_raw(self.out, o * L, acc, L)


@vertex
class MaxPoolIndex(Vertex, Generic[T]):
    """As MaxPool with one lane, and the position of the first winner in the whole block.

    `rows` are the positions in the block of the first pixel of each row edge.
    """

    out: Output[Vector[T]]
    index: Output[Vector[i32, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    rows: Input[Vector[i32, ONE_PTR]]
    width: i32
    kernel: i32
    stride: i32
    dilation: i32
    off: i32

    def compute(self) -> None:
        for o in range(len(self.out)):
            lo = self.off + o * self.stride
            best = lowest(T)
            where = i32(-1)
            for r in range(len(self.x)):
                row = self.x[r]
                for k in range(self.kernel):
                    p = lo + k * self.dilation
                    if p >= 0 and p < self.width:
                        if where < 0 or row[p] > best:
                            best = row[p]
                            where = self.rows[r] + p
            self.out[o] = best
            self.index[o] = where


@vertex
class AvgPool(Vertex, Generic[F, ACC, L]):
    """out[o, l] = sum of the window / (outer * number of its pixels in [first, last))."""

    out: Output[Vector[F]]
    x: Vector[Input[Vector[F, ONE_PTR]]]
    width: i32
    kernel: i32
    stride: i32
    dilation: i32
    off: i32
    outer: i32
    first: i32
    last: i32

    def compute(self) -> None:
        for o in range(len(self.out) // L):
            lo = self.off + o * self.stride
            acc = lanes(ACC(0), L)
            count = i32(0)
            for k in range(self.kernel):
                p = lo + k * self.dilation
                if p >= self.first and p < self.last:
                    count = count + 1
            for r in range(len(self.x)):
                row = self.x[r]
                for k in range(self.kernel):
                    p = lo + k * self.dilation
                    if p >= 0 and p < self.width:
                        acc = acc + cast(pixel(row, p, L), ACC)
            scale = cast(count * self.outer, ACC)
            if L == 1:
                self.out[o] = cast(acc / scale, F)
            else:
                store_raw(self.out, o * L, cast(acc / splat(scale, L), F), L)
