"""Register-block kernels: 16 output channels a vector, PX pixels x NB vectors of sums in registers.

A *row* of x is a run of pixels, each of CB channels PITCH elements apart; the first EL pixels and the
last ER pixels a block needs may come as runs of their own, so that a halo is read from the neighbouring
pieces (or from a shared run of zeros) in place. Rows follow one another input block by input block,
kernel row by kernel row, and w holds [row][c][nb][kx][16] in the same order: one stream.

Sums are f32, each product fused (one rounding), in the order row, channel, kernel column. Bias, then
residual, then activation: EP = ACT + 16 * POST; POST adds the residual after the activation.
ACT: 0 none, 1 relu, 2 gelu (erf), 3 sigmoid, 4 silu, 5 hardswish, 6 clip to [lo, hi], 7 tanh,
8 leaky relu (slope lo), 9 hardsigmoid (lo x + hi, in 0..1), 10 gelu (tanh).
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


def activate(v, ACT, lo, hi):
    """The activation ACT of a vector."""
    if ACT == 1:
        return max(v, splat16(0.0))
    if ACT == 2:
        half = v * splat16(0.5)
        return fma(half, erf(v * splat16(0.7071067811865476)), half)
    if ACT == 3:
        return sigmoid(v)
    if ACT == 4:
        return v * sigmoid(v)
    if ACT == 5:
        gate = fma(v, splat16(0.16666666666666666), splat16(0.5))
        return v * min(max(gate, splat16(0.0)), splat16(1.0))
    if ACT == 6:
        return min(max(v, splat16(lo)), splat16(hi))
    if ACT == 7:
        return tanh(v)
    if ACT == 8:
        return select(v < splat16(0.0), v * splat16(lo), v)
    if ACT == 9:
        return min(max(fma(v, splat16(lo), splat16(hi)), splat16(0.0)), splat16(1.0))
    if ACT == 10:
        cube = v * v * v
        inner = fma(cube, splat16(0.044715), v) * splat16(0.7978845608028654)
        half = v * splat16(0.5)
        return fma(half, tanh(inner), half)
    return v


def activate_all(acc, COUNT, ACT, lo, hi):
    """The activation of every sum; long ones run in a loop, so that their code stands once."""
    if ACT == 0:
        return
    if ACT == 1 or ACT == 6 or ACT == 8:
        for k in unroll(COUNT):
            acc[k] = activate(acc[k], ACT, lo, hi)
        return
    stage = array(f32x16, COUNT)
    for k in unroll(COUNT):
        stage[k] = acc[k]
    for k in range(COUNT):
        stage[k] = activate(stage[k], ACT, lo, hi)
    for k in unroll(COUNT):
        acc[k] = stage[k]


def widen(wide, at, v):
    """Sixteen lanes into a scalar array."""
    store16(wide, at, v)


@vertex
class ConvBlock(Vertex, Generic[T, KW, S, DX, PX, NB, CB, PITCH, EL, ER, EP, PARTIAL]):
    """out[nb][p][16] = epilogue(sum over rows, c, kx of w[row][c][nb][kx] x[row][p S + kx DX][c]).

    While it sums, it asks for part of the weights that the vertex `ahead` rows on will stream: `lines`
    cache lines a row, from line `line`; `touch` rows ahead it asks for its own pixels. Those are hints
    to the host and nothing else.
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

    ACT = EP % 16
    POST = EP // 16
    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)
    U = 2 if CB % 2 == 0 else 1

    def compute(self) -> None:
        acc = array(f32x16, NB * PX)
        wide = array(f32, ((self.WIN + 15) // 16 * 16 if PITCH == 1 else self.WIN * 16) if T is f16 else 1)
        at = 0
        for r in range(len(self.x) // self.STEP):
            left = self.x[r * self.STEP]
            body = self.x[r * self.STEP + self.HAS_L]
            right = self.x[r * self.STEP + self.STEP - 1]
            if KW == 1 and self.touch > 0:
                later = min(r + self.touch, len(self.x) // self.STEP - 1)
                ahead = self.x[later * self.STEP + self.HAS_L]
                for p in unroll(PX):
                    prefetch(ahead, p * S * PITCH)
            for j in range(self.lines):
                at_line = self.line + r * self.lines + j
                prefetch(self.w, at_line * (64 // size_of(T)), self.ahead)
            if T is f16:
                if PITCH == 1:
                    for q in unroll(0, self.WIN, 16):
                        widen(wide, q, load16(body, q, min(16, self.WIN - q)))
                else:
                    for q in unroll(self.WIN):
                        if q < EL:
                            widen(wide, q * 16, load16(left, q * 16))
                        elif q >= self.WIN - ER:
                            widen(wide, q * 16, load16(right, (q - self.WIN + ER) * 16))
                        else:
                            widen(wide, q * 16, load16(body, (q - EL) * PITCH))
            for c0 in range(0, CB, self.U):
                for u in unroll(self.U):
                    c = c0 + u
                    wv = array(f32x16, NB * KW)
                    for j in unroll(NB * KW):
                        wv[j] = load16(self.w, at + (u * NB * KW + j) * 16)
                    for q in unroll(self.WIN):
                        if T is f16:
                            xv = splat16(wide[q * PITCH + c])
                        elif q < EL:
                            xv = splat16(left[q * 16 + c])
                        elif q >= self.WIN - ER:
                            xv = splat16(right[(q - self.WIN + ER) * 16 + c])
                        else:
                            xv = splat16(body[(q - EL) * PITCH + c])
                        for kx in unroll(KW):
                            if (q - kx * DX) % S == 0 and q >= kx * DX and (q - kx * DX) // S < PX:
                                for nb in unroll(NB):
                                    acc[nb * PX + (q - kx * DX) // S] = fma(
                                        wv[nb * KW + kx], xv, acc[nb * PX + (q - kx * DX) // S]
                                    )
                at = at + self.U * NB * KW * 16
        if not PARTIAL:
            if len(self.bias) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.bias[0], nb * 16)
            if self.POST == 0 and len(self.res) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
            activate_all(acc, NB * PX, self.ACT, self.lo, self.hi)
            if self.POST == 1 and len(self.res) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
        for nb in unroll(NB):
            for p in unroll(PX):
                store16(self.out[nb], p * 16, acc[nb * PX + p])


@vertex
class MatMulBlock(Vertex, Generic[T, PX, NB, PITCH, EP, PARTIAL]):
    """As ConvBlock with KW = 1, but w has one edge [16, 16] for every input block and nb.

    For operands that are computed: x has one edge [PX rows] an input block, rows PITCH apart; only
    `tail` of the last block's 16 lanes count.
    """

    out: Vector[Output[Vector[f32 if PARTIAL else T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Vector[Input[Vector[T, ONE_PTR]]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    tail: i32
    lo: f32
    hi: f32

    ACT = EP % 16
    POST = EP // 16

    def compute(self) -> None:
        acc = array(f32x16, NB * PX)
        wide = array(f32, PX * 16 if T is f16 else 1)
        for r in range(len(self.x)):
            body = self.x[r]
            if T is f16:
                for p in unroll(PX):
                    widen(wide, p * 16, load16(body, p * PITCH))
            lanes = 16
            if r == len(self.x) - 1:
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
        if not PARTIAL:
            if len(self.bias) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.bias[0], nb * 16)
            if self.POST == 0 and len(self.res) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
            activate_all(acc, NB * PX, self.ACT, self.lo, self.hi)
            if self.POST == 1 and len(self.res) > 0:
                for nb in unroll(NB):
                    for p in unroll(PX):
                        acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
        for nb in unroll(NB):
            for p in unroll(PX):
                store16(self.out[nb], p * 16, acc[nb * PX + p])


@vertex
class DepthwiseBlock(Vertex, Generic[T, KW, S, DX, PX, EL, ER, EP]):
    """out[p][16] = epilogue(sum over rows, kx of w[row][kx][16] x[row][p S + kx DX][16])."""

    out: Output[Vector[T, ONE_PTR]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Input[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    lo: f32
    hi: f32

    ACT = EP % 16
    POST = EP // 16
    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)

    def compute(self) -> None:
        acc = array(f32x16, PX)
        for r in range(len(self.x) // self.STEP):
            left = self.x[r * self.STEP]
            body = self.x[r * self.STEP + self.HAS_L]
            right = self.x[r * self.STEP + self.STEP - 1]
            wv = array(f32x16, KW)
            for kx in unroll(KW):
                wv[kx] = load16(self.w, (r * KW + kx) * 16)
            for q in unroll(self.WIN):
                if q < EL:
                    xv = load16(left, q * 16)
                elif q >= self.WIN - ER:
                    xv = load16(right, (q - self.WIN + ER) * 16)
                else:
                    xv = load16(body, (q - EL) * 16)
                for kx in unroll(KW):
                    if (q - kx * DX) % S == 0 and q >= kx * DX and (q - kx * DX) // S < PX:
                        acc[(q - kx * DX) // S] = fma(wv[kx], xv, acc[(q - kx * DX) // S])
        if len(self.bias) > 0:
            for p in unroll(PX):
                acc[p] = acc[p] + load16(self.bias[0], 0)
        if self.POST == 0 and len(self.res) > 0:
            for p in unroll(PX):
                acc[p] = acc[p] + load16(self.res[0], p * 16)
        activate_all(acc, PX, self.ACT, self.lo, self.hi)
        if self.POST == 1 and len(self.res) > 0:
            for p in unroll(PX):
                acc[p] = acc[p] + load16(self.res[0], p * 16)
        for p in unroll(PX):
            store16(self.out, p * 16, acc[p])


@vertex
class LaneConv(Vertex, Generic[T, KW, S, DX, PX, NB, EL, ER, EP]):
    """Lanes are 16 images: out[nb][p] = epilogue(sum over rows, kx of w[row][kx][nb] x[row][p S + kx DX]).

    Weights and biases are scalars, one bias for each of NB outputs.
    """

    out: Vector[Output[Vector[T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    res: Vector[Input[Vector[T, ONE_PTR]]]
    w: Input[Vector[T, ONE_PTR]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    lo: f32
    hi: f32

    ACT = EP % 16
    POST = EP // 16
    WIN = (PX - 1) * S + (KW - 1) * DX + 1
    HAS_L = 1 if EL > 0 else 0
    STEP = 1 + (1 if EL > 0 else 0) + (1 if ER > 0 else 0)

    def compute(self) -> None:
        acc = array(f32x16, NB * PX)
        for r in range(len(self.x) // self.STEP):
            left = self.x[r * self.STEP]
            body = self.x[r * self.STEP + self.HAS_L]
            right = self.x[r * self.STEP + self.STEP - 1]
            wv = array(f32x16, NB * KW)
            for j in unroll(NB * KW):
                wv[j] = splat16(f32(self.w[r * NB * KW + j]))
            for q in unroll(self.WIN):
                if q < EL:
                    xv = load16(left, q * 16)
                elif q >= self.WIN - ER:
                    xv = load16(right, (q - self.WIN + ER) * 16)
                else:
                    xv = load16(body, (q - EL) * 16)
                for kx in unroll(KW):
                    if (q - kx * DX) % S == 0 and q >= kx * DX and (q - kx * DX) // S < PX:
                        for nb in unroll(NB):
                            acc[nb * PX + (q - kx * DX) // S] = fma(
                                wv[kx * NB + nb], xv, acc[nb * PX + (q - kx * DX) // S]
                            )
        if len(self.bias) > 0:
            for nb in unroll(NB):
                for p in unroll(PX):
                    acc[nb * PX + p] = acc[nb * PX + p] + splat16(f32(self.bias[0][nb]))
        if self.POST == 0 and len(self.res) > 0:
            for nb in unroll(NB):
                for p in unroll(PX):
                    acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
        for k in unroll(NB * PX):
            acc[k] = activate(acc[k], self.ACT, self.lo, self.hi)
        if self.POST == 1 and len(self.res) > 0:
            for nb in unroll(NB):
                for p in unroll(PX):
                    acc[nb * PX + p] = acc[nb * PX + p] + load16(self.res[nb], p * 16)
        for nb in unroll(NB):
            for p in unroll(PX):
                store16(self.out[nb], p * 16, acc[nb * PX + p])


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
