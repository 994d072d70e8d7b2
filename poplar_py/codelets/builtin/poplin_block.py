"""Register-block kernels: 16 output channels a vector, PX pixels x NB vectors of sums in registers.

A vertex makes one or more *items* with the same weights, each of PX pixels. A *row* of x is a run of
pixels, each of CB channels PITCH elements apart; the first EL pixels and the last ER pixels a block
needs may come as runs of their own, so that a halo is read from the neighbouring pieces (or from a
shared run of zeros) in place. Rows follow one another item by item, input block by input block, kernel
row by kernel row, and w holds [row][c][nb][kx][16] in the same order: one stream, read once an item.

Sums are f32, each product fused (one rounding), in the order row, channel, kernel column. What comes
after them (EP) stands in poplin_epilogue.py.
"""

NAMESPACE = "poplin"

T = TypeVar("T", f16, f32)
KW = IntParam("KW")
S = IntParam("S")
DX = IntParam("DX")
PX = IntParam("PX")
NB = IntParam("NB")
CB = IntParam("CB")
PITCH = IntParam("PITCH")
EL = IntParam("EL")
ER = IntParam("ER")
EP = IntParam("EP")
PARTIAL = BoolParam("PARTIAL")


def widen(wide, at, v):
    """Sixteen lanes into a scalar array."""
    store16(wide, at, v)


def window_lanes(left, body, right, q, WIN, EL, ER):
    """The 16 lanes of pixel q of a window that comes in up to three runs."""
    if q < EL:
        return load16(left, q * 16)
    if q >= WIN - ER:
        return load16(right, (q - WIN + ER) * 16)
    return load16(body, (q - EL) * 16)


@vertex
class ConvBlock(Vertex, Generic[T, KW, S, DX, PX, NB, CB, PITCH, EL, ER, EP, PARTIAL]):
    """out[nb][p][16] = epilogue(sum over rows, c, kx of w[row][c][nb][kx] x[row][p S + kx DX][c]).

    NB runs of out (and of res) an item. While it sums, it asks for part of the weights that the vertex
    `ahead` rows on will stream: `lines` cache lines a row, from line `line`; `touch` rows ahead it asks
    for its own pixels. Those are hints to the host and nothing else. Kernels of more than COLS columns
    run in a loop over groups of them (their windows come as one run), so that their code stays short.
    """

    out: Vector[Output[Vector[f32 if PARTIAL else T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Input[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    lo: f32
    hi: f32
    ahead: i32
    line: i32
    lines: i32
    touch: i32

    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)
    U = 2 if CB % 2 == 0 else 1
    COLS = 8 if KW > 11 else KW

    def compute(self) -> None:
        items = len(self.out) // NB
        rows = len(self.x) // self.STEP // items
        for item in range(items):
            acc = array(f32x16, NB * PX)
            self.sum_rows(acc, item * rows, rows)
            if not PARTIAL:
                add_biases(acc, self.bias, NB, PX)
                add_and_activate(acc, self.res, item * NB, NB, PX, EP, self.lo, self.hi)
            store_blocks(acc, self.out, item * NB, NB, PX)

    def sum_rows(self, acc, first, rows):
        """The sums of an item whose rows begin at row `first`."""
        wide = array(f32, ((self.WIN + 15) // 16 * 16 if PITCH == 1 else self.WIN * 16) if T is f16 else 1)
        at = 0
        for k in range(rows):
            r = first + k
            left = self.x[r * self.STEP]
            body = self.x[r * self.STEP + self.HAS_L]
            right = self.x[r * self.STEP + self.STEP - 1]
            self.ask(r, first + rows - 1)
            if T is f16:
                self.widen_row(wide, left, body, right)
            for c0 in range(0, CB, self.U):
                for u in unroll(self.U):
                    self.sum_channel(acc, wide, left, body, right, c0 + u, at + u * NB * KW * 16)
                at = at + self.U * NB * KW * 16

    def sum_channel(self, acc, wide, left, body, right, c, at):
        """Products of channel c with all kernel columns; `at`: its weights."""
        if KW == self.COLS:
            self.sum_columns(acc, wide, left, body, right, c, 0, at, KW)
        else:
            for k0 in range(0, KW - KW % self.COLS, self.COLS):
                self.sum_columns(acc, wide, left, body, right, c, k0, at, self.COLS)
            if KW % self.COLS > 0:
                k0 = KW - KW % self.COLS
                self.sum_columns(acc, wide, left, body, right, c, k0, at, KW % self.COLS)

    def ask(self, r, last):
        """Hints: pixels some rows ahead of row `r`, and part of the next weights."""
        if PITCH == 16 and self.touch > 0:
            later = min(r + self.touch, last)
            ahead = self.x[later * self.STEP + self.HAS_L]
            for p in unroll(PX if KW == 1 else self.WIN - EL - ER):
                prefetch(ahead, p * 16 * (S if KW == 1 else 1))
        for j in range(self.lines):
            at_line = self.line + r * self.lines + j
            prefetch(self.w, at_line * (64 // size_of(T)), self.ahead)

    def widen_row(self, wide, left, body, right):
        """A row's window in f32."""
        if PITCH == 1:
            for q in unroll(0, self.WIN, 16):
                widen(wide, q, load16(body, q, min(16, self.WIN - q)))
        elif KW == self.COLS:
            for q in unroll(self.WIN):
                widen(wide, q * 16, window_lanes(left, body, right, q, self.WIN, EL, ER))
        else:
            for q in range(self.WIN):
                widen(wide, q * 16, load16(body, q * 16))

    def sum_columns(self, acc, wide, left, body, right, c, k0, at, COLS):
        """Products of channel c with kernel columns k0 to k0 + COLS - 1; `at`: its weights."""
        wv = array(f32x16, NB * COLS)
        for nb in unroll(NB):
            for j in unroll(COLS):
                wv[nb * COLS + j] = load16(self.w, at + (nb * KW + k0 + j) * 16)
        for q in unroll((PX - 1) * S + (COLS - 1) * DX + 1):
            if T is f16:
                xv = splat16(wide[(k0 * DX + q) * PITCH + c])
            elif q < EL:
                xv = splat16(left[q * 16 + c])
            elif q >= self.WIN - ER:
                xv = splat16(right[(q - self.WIN + ER) * 16 + c])
            else:
                xv = splat16(body[(k0 * DX + q - EL) * PITCH + c])
            for kx in unroll(max(0, -(((PX - 1) * S - q) // DX)), min(COLS, q // DX + 1)):
                if (q - kx * DX) % S == 0:
                    for nb in unroll(NB):
                        acc[nb * PX + (q - kx * DX) // S] = fma(
                            wv[nb * COLS + kx], xv, acc[nb * PX + (q - kx * DX) // S]
                        )


@vertex
class MatMulBlock(Vertex, Generic[T, PX, NB, PITCH, EP, PARTIAL]):
    """As ConvBlock with KW = 1, but w has one edge [16, 16] for every input block and nb.

    For operands that are computed: x has one edge [PX rows] an item and input block, rows PITCH apart;
    only `tail` of the last block's 16 lanes count.
    """

    out: Vector[Output[Vector[f32 if PARTIAL else T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Vector[Input[Vector[T, ONE_PTR]]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    tail: i32
    lo: f32
    hi: f32

    def compute(self) -> None:
        items = len(self.out) // NB
        blocks = len(self.x) // items
        for item in range(items):
            acc = array(f32x16, NB * PX)
            self.sum_blocks(acc, item * blocks, blocks)
            if not PARTIAL:
                add_biases(acc, self.bias, NB, PX)
                add_and_activate(acc, self.res, item * NB, NB, PX, EP, self.lo, self.hi)
            store_blocks(acc, self.out, item * NB, NB, PX)

    def sum_blocks(self, acc, first, blocks):
        """The sums of an item whose input blocks begin at edge `first` of x."""
        wide = array(f32, PX * 16 if T is f16 else 1)
        for r in range(blocks):
            body = self.x[first + r]
            if T is f16:
                for p in unroll(PX):
                    widen(wide, p * 16, load16(body, p * PITCH))
            lanes = 16
            if r == blocks - 1:
                lanes = self.tail
            for c in range(lanes):
                wv = array(f32x16, NB)
                for nb in unroll(NB):
                    wv[nb] = load16(self.w[r * NB + nb], c * 16)
                for p in unroll(PX):
                    if T is f16:
                        xv = splat16(wide[p * 16 + c])
                    else:
                        xv = splat16(body[p * PITCH + c])
                    for nb in unroll(NB):
                        acc[nb * PX + p] = fma(wv[nb], xv, acc[nb * PX + p])


@vertex
class DepthwiseBlock(Vertex, Generic[T, KW, S, DX, PX, EL, ER, EP]):
    """out[item][p][16] = epilogue(sum over rows, kx of w[row][kx][16] x[item][row][p S + kx DX][16])."""

    out: Vector[Output[Vector[T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Input[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    lo: f32
    hi: f32

    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)

    def compute(self) -> None:
        rows = len(self.x) // self.STEP // len(self.out)
        for item in range(len(self.out)):
            acc = array(f32x16, PX)
            for k in range(rows):
                r = item * rows + k
                self.sum_row(acc, r * self.STEP, k * KW * 16)
            add_biases(acc, self.bias, 1, PX)
            add_and_activate(acc, self.res, item, 1, PX, EP, self.lo, self.hi)
            store_blocks(acc, self.out, item, 1, PX)

    def sum_row(self, acc, first, at):
        """The products of one row, whose runs begin at run `first` and whose weights lie at `at`."""
        left = self.x[first]
        body = self.x[first + self.HAS_L]
        right = self.x[first + self.STEP - 1]
        if KW > 11:  # one column at a time: the window is one run
            for kx in range(KW):
                wv = load16(self.w, at + kx * 16)
                for p in unroll(PX):
                    acc[p] = fma(wv, load16(body, (p * S + kx * DX) * 16), acc[p])
        else:
            self.sum_window(acc, left, body, right, at)

    def sum_window(self, acc, left, body, right, at):
        """The products of one row, every pixel loaded once."""
        wv = array(f32x16, KW)
        for kx in unroll(KW):
            wv[kx] = load16(self.w, at + kx * 16)
        for q in unroll(self.WIN):
            xv = window_lanes(left, body, right, q, self.WIN, EL, ER)
            for kx in unroll(max(0, -(((PX - 1) * S - q) // DX)), min(KW, q // DX + 1)):
                if (q - kx * DX) % S == 0:
                    acc[(q - kx * DX) // S] = fma(wv[kx], xv, acc[(q - kx * DX) // S])


@vertex
class LaneConv(Vertex, Generic[T, KW, S, DX, PX, NB, EL, ER, EP]):
    """Lanes are 16 images: out[nb][p] = epilogue(sum over rows, kx of w[row][kx][nb] x[row][p S + kx DX]).

    Weights and biases are scalars, one bias for each of NB outputs; NB runs of out an item.
    """

    out: Vector[Output[Vector[T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Input[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    lo: f32
    hi: f32

    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)

    def compute(self) -> None:
        items = len(self.out) // NB
        rows = len(self.x) // self.STEP // items
        for item in range(items):
            acc = array(f32x16, NB * PX)
            for k in range(rows):
                self.sum_row(acc, (item * rows + k) * self.STEP, k * NB * KW)
            if len(self.bias) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + splat16(f32(self.bias[0][nb]))
            add_and_activate(acc, self.res, item * NB, NB, PX, EP, self.lo, self.hi)
            store_blocks(acc, self.out, item * NB, NB, PX)

    def sum_row(self, acc, first, at):
        """The products of one row, whose runs begin at run `first` and whose weights lie at `at`."""
        left = self.x[first]
        body = self.x[first + self.HAS_L]
        right = self.x[first + self.STEP - 1]
        if KW > 11:  # one column at a time: the window is one run
            for kx in range(KW):
                for nb in unroll(NB):
                    wv = splat16(f32(self.w[at + kx * NB + nb]))
                    for p in unroll(PX):
                        acc[nb * PX + p] = fma(
                            wv, load16(body, (p * S + kx * DX) * 16), acc[nb * PX + p]
                        )
        else:
            self.sum_window(acc, left, body, right, at)

    def sum_window(self, acc, left, body, right, at):
        """The products of one row, every pixel loaded once."""
        wv = array(f32x16, NB * KW)
        for j in unroll(NB * KW):
            wv[j] = splat16(f32(self.w[at + j]))
        for q in unroll(self.WIN):
            xv = window_lanes(left, body, right, q, self.WIN, EL, ER)
            for kx in unroll(max(0, -(((PX - 1) * S - q) // DX)), min(KW, q // DX + 1)):
                if (q - kx * DX) % S == 0:
                    for nb in unroll(NB):
                        acc[nb * PX + (q - kx * DX) // S] = fma(
                            wv[kx * NB + nb], xv, acc[nb * PX + (q - kx * DX) // S]
                        )


@vertex
class ReduceBlock(Vertex, Generic[T, EP]):
    """out = epilogue(part[0] + part[1] + ...), sums in that order; 16 channels a vector."""

    out: Output[Vector[T]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    part: Vector[Input[Vector[f32, ONE_PTR]]]
    lo: f32
    hi: f32

    ACT = EP % 16
    POST = EP // 16

    def compute(self) -> None:
        for i in range(0, len(self.out), 16):
            v = load16(self.part[0], i)
            for k in range(1, len(self.part)):
                v = v + load16(self.part[k], i)
            if len(self.bias) > 0:
                v = v + load16(self.bias[0], 0)
            if self.POST == 0 and len(self.res) > 0:
                v = v + load16(self.res[0], i)
            v = activate(v, self.ACT, self.lo, self.hi)
            if self.POST == 1 and len(self.res) > 0:
                v = v + load16(self.res[0], i)
            store16(self.out, i, v)
