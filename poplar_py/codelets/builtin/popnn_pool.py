"""Pooling of one piece of an output row.

x holds the input rows the window covers (all outer spatial axes; rows in the padding left out), each
`width` pixels of L lanes; pixel o of the output looks at pixels off + o * stride + k * dilation.
"""

NAMESPACE = "popnn"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
F = TypeVar("F", f16, f32, f64, bf16)
ACC = TypeVar("ACC", f32, f64)
L = IntParam("L")
K = IntParam("K")


def pixel(row, p, L):
    """The L lanes at p, one lane as a scalar."""
    if L == 1:
        return row[p]
    return load_raw(row, p, L)


def lanes(value, L):
    """A number in every lane."""
    if L == 1:
        return value
    return splat(value, L)


def put(out, o, v, L):
    """Store the L lanes of pixel o."""
    if L == 1:
        out[o] = v
    else:
        store_raw(out, o * L, v, L)


@vertex
class MaxPool(Vertex, Generic[T, L, K]):
    """out[o, l] = the largest of the window; K = kernel, or 0 for any."""

    out: Output[Vector[T]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    width: i32
    kernel: i32
    stride: i32
    dilation: i32
    off: i32

    def compute(self) -> None:
        pixels = len(self.out) // L
        first = min(max((self.stride - 1 - self.off) // self.stride, 0), pixels)
        reach = self.width - 1 - (self.kernel - 1) * self.dilation - self.off
        last = max(min(reach // self.stride + 1, pixels), first)
        for o in range(first, last):
            at = (self.off + o * self.stride) * L
            acc = lanes(lowest(T), L)
            for r in range(len(self.x)):
                row = self.x[r]
                if K > 0:
                    for k in unroll(K):
                        acc = max(acc, pixel(row, at + k * self.dilation * L, L))
                else:
                    for k in range(self.kernel):
                        acc = max(acc, pixel(row, at + k * self.dilation * L, L))
            put(self.out, o, acc, L)
        for j in range(first + pixels - last):
            o1 = j if j < first else j - first + last
            edge = lanes(lowest(T), L)
            for r in range(len(self.x)):
                row = self.x[r]
                for k in range(self.kernel):
                    p = self.off + o1 * self.stride + k * self.dilation
                    if p >= 0 and p < self.width:
                        edge = max(edge, pixel(row, p * L, L))
            put(self.out, o1, edge, L)


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
    """out[o, l] = sum of the window / (outer * number of its pixels in [first, last)).

    Columns are added up first, as in onnxruntime: means of whole numbers fall on halves, which a
    quantised model rounds.
    """

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
                if p >= 0 and p < self.width:
                    column = lanes(ACC(0), L)
                    for r in range(len(self.x)):
                        column = column + cast(pixel(self.x[r], p * L, L), ACC)
                    acc = acc + column
            scale = cast(count * self.outer, ACC)
            if L == 1:
                self.out[o] = cast(acc / scale, F)
            else:
                store_raw(self.out, o * L, cast(acc / splat(scale, L), F), L)


@vertex
class SumPool(Vertex, Generic[F, ACC, L]):
    """out[o, l] = sum of the window."""

    out: Output[Vector[F]]
    x: Vector[Input[Vector[F, ONE_PTR]]]
    width: i32
    kernel: i32
    stride: i32
    dilation: i32
    off: i32

    def compute(self) -> None:
        for o in range(len(self.out) // L):
            lo = self.off + o * self.stride
            acc = lanes(ACC(0), L)
            for r in range(len(self.x)):
                row = self.x[r]
                for k in range(self.kernel):
                    p = lo + k * self.dilation
                    if p >= 0 and p < self.width:
                        acc = acc + cast(pixel(row, p * L, L), ACC)
            put(self.out, o, cast(acc, F), L)


S = IntParam("S")


def spaced(x, p, n, S):
    """Elements p, p + S, ... of x; only the first n of the memory from p on is touched."""
    if S == 1:
        return load_raw(x, p, 16, n)
    low = load_raw(x, p, 16, min(n, 16))
    high = load_raw(x, p + 16, 16, max(n - 16, 0))
    return shuffle(low, high, (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30))


@vertex
class MaxPoolPlane(Vertex, Generic[T, S]):
    """Output rows of one plane from the input rows they need, 16 pixels at a time.

    Window (r, o) starts at row top + r * stride_rows and pixel off + o * S of x [rows, width].
    """

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    rows: i32
    width: i32
    out_width: i32
    kernel_rows: i32
    kernel: i32
    stride_rows: i32
    dilation_rows: i32
    dilation: i32
    top: i32
    off: i32

    def compute(self) -> None:
        first = min(max((S - 1 - self.off) // S, 0), self.out_width)
        reach = self.width - 1 - (self.kernel - 1) * self.dilation - self.off
        last = max(min(reach // S + 1, self.out_width), first)
        for r in range(len(self.out) // self.out_width):
            row = self.top + r * self.stride_rows
            for o in range(first, last, 16):
                n = min(last - o, 16)
                acc = splat(lowest(T), 16)
                for a in range(self.kernel_rows):
                    q = row + a * self.dilation_rows
                    if q >= 0 and q < self.rows:
                        p = q * self.width + self.off + o * S
                        for b in range(self.kernel):
                            v = spaced(self.x, p + b * self.dilation, (n - 1) * S + 1, S)
                            acc = max(acc, v)
                store_raw(self.out, r * self.out_width + o, acc, n)
            for j in range(first + self.out_width - last):
                o1 = j if j < first else j - first + last
                best = lowest(T)
                for a in range(self.kernel_rows):
                    q1 = row + a * self.dilation_rows
                    if q1 >= 0 and q1 < self.rows:
                        for b in range(self.kernel):
                            p1 = self.off + o1 * S + b * self.dilation
                            if p1 >= 0 and p1 < self.width:
                                best = max(best, self.x[q1 * self.width + p1])
                self.out[r * self.out_width + o1] = best


EL = IntParam("EL")
ER = IntParam("ER")


@vertex
class MaxPoolBody(Vertex, Generic[T, L, K, S, EL, ER]):
    """Output pixels whose windows lie in one piece of each input row, but for EL + ER pixels.

    For every row x holds the pixel left of the piece (when EL is 1), the piece, and the pixel right of
    it (when ER is 1). Window o starts at pixel o * S - EL of the piece.
    """

    out: Output[Vector[T]]
    x: Vector[Input[Vector[T, ONE_PTR]]]

    def compute(self) -> None:
        pixels = len(self.out) // L
        rows = len(self.x) // (1 + EL + ER)
        for o in range(EL, pixels - ER):
            acc = lanes(lowest(T), L)
            for r in range(rows):
                body = self.x[r * (1 + EL + ER) + EL]
                for k in unroll(K):
                    acc = max(acc, pixel(body, (o * S + k - EL) * L, L))
            put(self.out, o, acc, L)
        if EL > 0:
            first = lanes(lowest(T), L)
            for r in range(rows):
                first = max(first, pixel(self.x[r * (1 + EL + ER)], 0, L))
                body = self.x[r * (1 + EL + ER) + EL]
                for k in unroll(K - 1):
                    first = max(first, pixel(body, k * L, L))
            put(self.out, 0, first, L)
        if ER > 0:
            last = lanes(lowest(T), L)
            for r in range(rows):
                last = max(last, pixel(self.x[r * (1 + EL + ER) + EL + 1], 0, L))
                body = self.x[r * (1 + EL + ER) + EL]
                for k in unroll(K - 1):
                    last = max(last, pixel(body, ((pixels - 1) * S + k - EL) * L, L))
            put(self.out, pixels - 1, last, L)
