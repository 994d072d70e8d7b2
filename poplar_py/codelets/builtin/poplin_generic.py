"""Matrix product and convolution for every element type and shape: the paths that are always right.

The sum of one output is taken in the order of the reduced index, in `ACC`, with one rounding for the
product and one for the sum; it starts from the bias where there is one.
"""

NAMESPACE = "poplin"

A = TypeVar("A", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
B = TypeVar("B", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
ACC = TypeVar("ACC", f32, f64, i32, i64, u32, u64)
OUT = TypeVar("OUT", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)


@vertex
class MatMul(Vertex, Generic[A, B, ACC, OUT]):
    """out[rows, cols] = a[rows, k] b[k, cols] (+ bias[cols]); rows of out are `pitch` apart."""

    out: Output[Vector[OUT, ONE_PTR]]
    a: Input[Vector[A, ONE_PTR]]
    b: Input[Vector[B, ONE_PTR]]
    bias: Vector[Input[Vector[OUT, ONE_PTR]]]
    rows: i32
    cols: i32
    k: i32
    pitch: i32

    def compute(self) -> None:
        for r in range(self.rows):
            for c0 in range(0, self.cols, 16):
                n = min(self.cols - c0, 16)
                acc = splat(ACC(0), 16)
                if len(self.bias) > 0:
                    acc = cast(load_raw(self.bias[0], c0, 16, n), ACC)
                for q in range(self.k):
                    x = splat(cast(self.a[r * self.k + q], ACC), 16)
                    acc = acc + x * cast(load_raw(self.b, q * self.cols + c0, 16, n), ACC)
                store_raw(self.out, r * self.pitch + c0, cast(acc, OUT), n)


@vertex
class Conv(Vertex, Generic[A, B, ACC, OUT]):
    """One output row of `len(out)` channels.

    x holds one edge per kernel row, each [chans, pitch]; w is [len(out), len(x), chans, kw]; every
    edge of out is a row of `width` pixels.
    """

    out: Vector[Output[Vector[OUT, ONE_PTR]]]
    x: Vector[Input[Vector[A, ONE_PTR]]]
    w: Input[Vector[B, ONE_PTR]]
    bias: Vector[Input[Vector[OUT, ONE_PTR]]]
    width: i32
    chans: i32
    pitch: i32
    kw: i32
    stride: i32
    dilation: i32

    def compute(self) -> None:
        acc = array(ACC, 16)
        for o in range(len(self.out)):
            start = ACC(0)
            if len(self.bias) > 0:
                start = cast(self.bias[0][o], ACC)
            for p0 in range(0, self.width, 16):
                n = min(self.width - p0, 16)
                for j in range(16):
                    acc[j] = start
                at = o * len(self.x) * self.chans * self.kw
                for r in range(len(self.x)):
                    row = self.x[r]
                    for c in range(self.chans):
                        for kx in range(self.kw):
                            wv = cast(self.w[at], ACC)
                            at = at + 1
                            base = c * self.pitch + p0 * self.stride + kx * self.dilation
                            for j in range(n):
                                acc[j] = acc[j] + wv * cast(row[base + j * self.stride], ACC)
                for j in range(n):
                    self.out[o][p0 + j] = cast(acc[j], OUT)
