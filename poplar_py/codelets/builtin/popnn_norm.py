"""Row operations: softmax, log-softmax, layer norm. A vertex holds whole rows of n elements.

Sums and maxima keep 16 lanes that a fixed tree joins, then the rest one by one: the order depends on
n only. ACC is f32, or f64 for f64 rows.
"""

NAMESPACE = "popnn"

T = TypeVar("T", f16, f32, f64, bf16)
ACC = TypeVar("ACC", f32, f64)
LOG = BoolParam("LOG")
SCALE = BoolParam("SCALE")
BIAS = BoolParam("BIAS")


def row_max(x, at, n, ACC):
    """The largest of n elements from `at`."""
    best = cast(x[at], ACC)
    whole = n // 16 * 16
    if whole > 0:
        acc = cast(load_raw(x, at, 16), ACC)
        for k in range(16, whole, 16):
            acc = max(acc, cast(load_raw(x, at + k, 16), ACC))
        best = max16(acc)
    for k in range(whole, n):
        best = max(best, cast(x[at + k], ACC))
    return best


@vertex
class Softmax(Vertex, Generic[T, ACC, LOG]):
    """Softmax (or its logarithm) of rows of n elements."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    n: i32

    def compute(self) -> None:
        n = self.n
        whole = n // 16 * 16
        for r in range(len(self.out) // n):
            at = r * n
            top = row_max(self.x, at, n, ACC)
            tops = splat(top, 16)
            acc = splat(ACC(0), 16)
            for k in range(0, whole, 16):
                e = exp(cast(load_raw(self.x, at + k, 16), ACC) - tops)
                if T == ACC and not LOG:
                    store_raw(self.out, at + k, cast(e, T), 16)
                acc = acc + e
            total = sum16(acc)
            for k in range(whole, n):
                e1 = exp(cast(self.x[at + k], ACC) - top)
                if T == ACC and not LOG:
                    self.out[at + k] = cast(e1, T)
                total = total + e1
            if LOG:
                low = top + log(total)
                lows = splat(low, 16)
                for k in range(0, whole, 16):
                    v = cast(load_raw(self.x, at + k, 16), ACC) - lows
                    store_raw(self.out, at + k, cast(v, T), 16)
                for k in range(whole, n):
                    self.out[at + k] = cast(cast(self.x[at + k], ACC) - low, T)
            else:
                inv = ACC(1) / total
                invs = splat(inv, 16)
                if T == ACC:
                    for k in range(0, whole, 16):
                        store_raw(
                            self.out, at + k, load_raw(self.out, at + k, 16) * cast(invs, T), 16
                        )
                    for k in range(whole, n):
                        self.out[at + k] = self.out[at + k] * cast(inv, T)
                else:
                    for k in range(0, whole, 16):
                        e2 = exp(cast(load_raw(self.x, at + k, 16), ACC) - tops)
                        store_raw(self.out, at + k, cast(e2 * invs, T), 16)
                    for k in range(whole, n):
                        e3 = exp(cast(self.x[at + k], ACC) - top)
                        self.out[at + k] = cast(e3 * inv, T)


@vertex
class LayerNorm(Vertex, Generic[T, ACC, SCALE, BIAS]):
    """(x - mean) / sqrt(variance + eps) * scale + bias over rows of n elements."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    scale: Vector[Input[Vector[T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    n: i32
    eps: f32

    def compute(self) -> None:
        n = self.n
        whole = n // 16 * 16
        count = cast(n, ACC)
        for r in range(len(self.out) // n):
            at = r * n
            acc = splat(ACC(0), 16)
            for k in range(0, whole, 16):
                acc = acc + cast(load_raw(self.x, at + k, 16), ACC)
            total = sum16(acc)
            for k in range(whole, n):
                total = total + cast(self.x[at + k], ACC)
            mean = total / count
            means = splat(mean, 16)
            sq = splat(ACC(0), 16)
            for k in range(0, whole, 16):
                d = cast(load_raw(self.x, at + k, 16), ACC) - means
                sq = sq + d * d
            spread = sum16(sq)
            for k in range(whole, n):
                d1 = cast(self.x[at + k], ACC) - mean
                spread = spread + d1 * d1
            inv = ACC(1) / sqrt(spread / count + cast(self.eps, ACC))
            invs = splat(inv, 16)
            for k in range(0, whole, 16):
                y = (cast(load_raw(self.x, at + k, 16), ACC) - means) * invs
                if SCALE:
                    y = y * cast(load_raw(self.scale[0], k, 16), ACC)
                if BIAS:
                    y = y + cast(load_raw(self.bias[0], k, 16), ACC)
                store_raw(self.out, at + k, cast(y, T), 16)
            for k in range(whole, n):
                z = (cast(self.x[at + k], ACC) - mean) * inv
                if SCALE:
                    z = z * cast(self.scale[0][k], ACC)
                if BIAS:
                    z = z + cast(self.bias[0][k], ACC)
                self.out[at + k] = cast(z, T)


@vertex
class SoftmaxBlocks(Vertex, Generic[T, ACC, LOG]):
    """Softmax of `rows` rows stored as blocks of 16: x[k] holds elements 16 k .. of every row."""

    out: Vector[Output[Vector[T, ONE_PTR]]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    rows: i32

    def compute(self) -> None:
        blocks = len(self.x)
        for r in range(self.rows):
            at = r * 16
            best = cast(load_raw(self.x[0], at, 16), ACC)
            for k in range(1, blocks):
                best = max(best, cast(load_raw(self.x[k], at, 16), ACC))
            top = max16(best)
            tops = splat(top, 16)
            acc = splat(ACC(0), 16)
            for k in range(blocks):
                e = exp(cast(load_raw(self.x[k], at, 16), ACC) - tops)
                if T == ACC and not LOG:
                    store_raw(self.out[k], at, cast(e, T), 16)
                acc = acc + e
            total = sum16(acc)
            if LOG:
                lows = splat(top + log(total), 16)
                for k in range(blocks):
                    v = cast(load_raw(self.x[k], at, 16), ACC) - lows
                    store_raw(self.out[k], at, cast(v, T), 16)
            else:
                invs = splat(ACC(1) / total, 16)
                for k in range(blocks):
                    if T == ACC:
                        v1 = load_raw(self.out[k], at, 16) * cast(invs, T)
                        store_raw(self.out[k], at, v1, 16)
                    else:
                        e2 = exp(cast(load_raw(self.x[k], at, 16), ACC) - tops)
                        store_raw(self.out[k], at, cast(e2 * invs, T), 16)


@vertex
class LayerNormBlocks(Vertex, Generic[T, ACC, SCALE, BIAS]):
    """LayerNorm of `rows` rows stored as blocks of 16."""

    out: Vector[Output[Vector[T, ONE_PTR]]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    scale: Vector[Input[Vector[T, ONE_PTR]]]
    bias: Vector[Input[Vector[T, ONE_PTR]]]
    rows: i32
    eps: f32

    def compute(self) -> None:
        blocks = len(self.x)
        count = cast(blocks * 16, ACC)
        for r in range(self.rows):
            at = r * 16
            acc = splat(ACC(0), 16)
            for k in range(blocks):
                acc = acc + cast(load_raw(self.x[k], at, 16), ACC)
            means = splat(sum16(acc) / count, 16)
            sq = splat(ACC(0), 16)
            for k in range(blocks):
                d = cast(load_raw(self.x[k], at, 16), ACC) - means
                sq = sq + d * d
            inv = ACC(1) / sqrt(sum16(sq) / count + cast(self.eps, ACC))
            invs = splat(inv, 16)
            for k in range(blocks):
                y = (cast(load_raw(self.x[k], at, 16), ACC) - means) * invs
                if SCALE:
                    y = y * cast(load_raw(self.scale[0], k * 16, 16), ACC)
                if BIAS:
                    y = y + cast(load_raw(self.bias[0], k * 16, 16), ACC)
                store_raw(self.out[k], at, cast(y, T), 16)
