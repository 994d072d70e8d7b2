"""Reductions of a [rows, n, cols] block over n, and running sums and products.

The order of one result depends on n only: ReduceRows (cols = 1) keeps 16 lanes that a fixed tree joins,
then the rest one by one; ReduceCols goes through n one by one, 16 or 4 columns at a time.
KIND: 0 sum, 1 prod, 2 max, 3 min, 4 and, 5 or, 6 sum of squares, 7 sum divided by `divisor`,
8 logarithm of the sum of exponentials.
"""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
ACC = TypeVar("ACC", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
OUT = TypeVar("OUT", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
KIND = IntParam("KIND")


def log_add(a, b):
    """log(exp(a) + exp(b)); the gap of two equal infinities is none, not NaN."""
    top = max(a, b)
    return top + log1p(exp(fmax(min(a, b) - top, -1.0e4)))


def log_tree(v):
    """log of the sum of exp of 16 lanes; a lane is the largest, so the sum is 1 or more."""
    top = max16(v)
    return top + fmax(log(sum16(exp(fmax(v - splat(top, 16), -1.0e4)))), 0.0)


def join(a, b, KIND):
    """Two partial results as one; b is an element for KIND 6."""
    if KIND == 0 or KIND == 7:
        return a + b
    if KIND == 1:
        return a * b
    if KIND == 2:
        return max(a, b)
    if KIND == 3:
        return min(a, b)
    if KIND == 8:
        return log_add(a, b)
    return a + b * b


def first(a, KIND):
    """An element as a partial result."""
    if KIND == 6:
        return a * a
    return a


def tree(v, KIND):
    """The 16 lanes as one."""
    if KIND == 1:
        return prod16(v)
    if KIND == 2:
        return max16(v)
    if KIND == 3:
        return min16(v)
    if KIND == 8:
        return log_tree(v)
    return sum16(v)


def finish(total, divisor, ACC, KIND, OUT):
    """A result as it is stored."""
    if KIND == 7:
        return cast(total / cast(divisor, ACC), OUT)
    return cast(total, OUT)


def finish_lanes(total, divisor, lanes, ACC, KIND, OUT):
    """As finish, for `lanes` results."""
    if KIND == 7:
        return cast(total / splat(cast(divisor, ACC), lanes), OUT)
    return cast(total, OUT)


@vertex
class ReduceRows(Vertex, Generic[T, ACC, OUT, KIND]):
    """out[r] = reduction of x[r * n] .. x[r * n + n - 1], n >= 1."""

    out: Output[Vector[OUT]]
    x: Input[Vector[T, ONE_PTR]]
    n: i32
    divisor: f32

    def compute(self) -> None:
        for r in range(len(self.out)):
            at = r * self.n
            if self.n >= 16:
                acc = first(cast(load_raw(self.x, at, 16), ACC), KIND)
                whole = self.n // 16 * 16
                for k in range(16, whole, 16):
                    acc = join(acc, cast(load_raw(self.x, at + k, 16), ACC), KIND)
                total = tree(acc, KIND)
                for k in range(whole, self.n):
                    total = join(total, cast(self.x[at + k], ACC), KIND)
                self.out[r] = finish(total, self.divisor, ACC, KIND, OUT)
            else:
                small = first(cast(self.x[at], ACC), KIND)
                for k in range(1, self.n):
                    small = join(small, cast(self.x[at + k], ACC), KIND)
                self.out[r] = finish(small, self.divisor, ACC, KIND, OUT)


@vertex
class ReduceCols(Vertex, Generic[T, ACC, OUT, KIND]):
    """out[r, c] = reduction over k of x[r, k, first + c], rows of x `pitch` elements, n >= 1."""

    out: Output[Vector[OUT]]
    x: Input[Vector[T, ONE_PTR]]
    n: i32
    cols: i32
    pitch: i32
    first: i32
    divisor: f32

    def compute(self) -> None:
        whole = self.cols // 16 * 16
        most = self.cols // 4 * 4
        for r in range(len(self.out) // self.cols):
            row = r * self.n * self.pitch + self.first
            for c in range(0, whole, 16):
                acc = first(cast(load_raw(self.x, row + c, 16), ACC), KIND)
                for k in range(1, self.n):
                    v = cast(load_raw(self.x, row + k * self.pitch + c, 16), ACC)
                    acc = join(acc, v, KIND)
                done = finish_lanes(acc, self.divisor, 16, ACC, KIND, OUT)
                store_raw(self.out, r * self.cols + c, done, 16)
            for c in range(whole, most, 4):
                few = first(cast(load_raw(self.x, row + c, 4), ACC), KIND)
                for k in range(1, self.n):
                    w = cast(load_raw(self.x, row + k * self.pitch + c, 4), ACC)
                    few = join(few, w, KIND)
                four = finish_lanes(few, self.divisor, 4, ACC, KIND, OUT)
                store_raw(self.out, r * self.cols + c, four, 4)
            for c in range(most, self.cols):
                one = first(cast(self.x[row + c], ACC), KIND)
                for k in range(1, self.n):
                    one = join(one, cast(self.x[row + k * self.pitch + c], ACC), KIND)
                self.out[r * self.cols + c] = finish(one, self.divisor, ACC, KIND, OUT)


@vertex
class ReduceBool(Vertex, Generic[KIND]):
    """As ReduceCols for bools: KIND 4 and, 5 or."""

    out: Output[Vector[bool]]
    x: Input[Vector[bool, ONE_PTR]]
    n: i32
    cols: i32
    pitch: i32
    first: i32

    def compute(self) -> None:
        for r in range(len(self.out) // self.cols):
            for c in range(self.cols):
                at = r * self.n * self.pitch + self.first + c
                acc = self.x[at]
                for k in range(1, self.n):
                    if KIND == 4:
                        acc = acc and self.x[at + k * self.pitch]
                    else:
                        acc = acc or self.x[at + k * self.pitch]
                self.out[r * self.cols + c] = acc


@vertex
class Cumulative(Vertex, Generic[T, ACC, KIND]):
    """Running sum (KIND 0) or product (1) of x[r, k, c] over k; FLAGS 1 exclusive, 2 reverse."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    n: i32
    cols: i32
    exclusive: i32
    reverse: i32

    def compute(self) -> None:
        for r in range(len(self.out) // (self.n * self.cols)):
            for c in range(self.cols):
                acc = ACC(0)
                if KIND == 1:
                    acc = ACC(1)
                for j in range(self.n):
                    k = j if self.reverse == 0 else self.n - 1 - j
                    at = (r * self.n + k) * self.cols + c
                    before = acc
                    acc = join(acc, cast(self.x[at], ACC), KIND)
                    self.out[at] = cast(before if self.exclusive != 0 else acc, T)
