"""Rows picked and written by indices that are known on the device only."""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool)
N = TypeVar("N", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
KIND = IntParam("KIND")


def copy_row(out, to, x, at, n):
    """n elements of x from `at` to out from `to`."""
    whole = n // 16 * 16
    for c in range(0, whole, 16):
        store_raw(out, to + c, load_raw(x, at + c, 16), 16)
    for c in range(whole, n):
        out[to + c] = x[at + c]


@vertex
class Gather(Vertex, Generic[T]):
    """out[i] = x[index[i] - base] for the indices in [base, base + rows); other rows stay.

    An index outside [0, total) ends the run.
    """

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    index: Input[Vector[i32]]
    cols: i32
    base: i32
    rows: i32
    total: i32

    def compute(self) -> None:
        for i in range(len(self.index)):
            k = self.index[i]
            abort_if(k < 0 or k >= self.total)
            if k >= self.base and k < self.base + self.rows:
                copy_row(self.out, i * self.cols, self.x, (k - self.base) * self.cols, self.cols)


@vertex
class GatherPick(Vertex, Generic[T]):
    """out[i] = x[index[i] // rows][i]: the part that holds row index[i]."""

    out: Output[Vector[T]]
    x: Vector[Input[Vector[T, ONE_PTR]]]
    index: Input[Vector[i32]]
    cols: i32
    rows: i32

    def compute(self) -> None:
        for i in range(len(self.index)):
            part = self.x[self.index[i] // self.rows]
            copy_row(self.out, i * self.cols, part, i * self.cols, self.cols)


@vertex
class DynamicSlice(Vertex, Generic[T]):
    """out = the `size` rows of x[rows, cols] from `start`, clamped to fit."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    start: Input[i32]
    cols: i32
    rows: i32
    size: i32

    def compute(self) -> None:
        at = min(max(self.start[0], 0), self.rows - self.size)
        copy_row(self.out, 0, self.x, at * self.cols, self.size * self.cols)


@vertex
class DynamicUpdate(Vertex, Generic[T]):
    """Rows of x (its first is row `base` of `total`) from `start`, clamped, become those of update."""

    x: InOut[Vector[T]]
    update: Input[Vector[T, ONE_PTR]]
    start: Input[i32]
    cols: i32
    base: i32
    total: i32
    size: i32

    def compute(self) -> None:
        at = min(max(self.start[0], 0), self.total - self.size) - self.base
        rows = len(self.x) // self.cols
        first = max(at, 0)
        last = min(at + self.size, rows)
        if first < last:
            n = (last - first) * self.cols
            copy_row(self.x, first * self.cols, self.update, (first - at) * self.cols, n)


@vertex
class Scatter(Vertex, Generic[T]):
    """x[index[i] - base] = update[i] in the order of i, for the rows this vertex holds."""

    x: InOut[Vector[T]]
    update: Input[Vector[T, ONE_PTR]]
    index: Input[Vector[i32]]
    cols: i32
    base: i32
    total: i32

    def compute(self) -> None:
        rows = len(self.x) // self.cols
        for i in range(len(self.index)):
            k = self.index[i]
            abort_if(k < 0 or k >= self.total)
            k = k - self.base
            if k >= 0 and k < rows:
                copy_row(self.x, k * self.cols, self.update, i * self.cols, self.cols)


def joined(a, b, KIND):
    """What a row becomes: KIND 0 add, 1 mul, 2 max, 3 min."""
    if KIND == 0:
        return a + b
    if KIND == 1:
        return a * b
    if KIND == 2:
        return max(a, b)
    return min(a, b)


@vertex
class ScatterReduce(Vertex, Generic[N, KIND]):
    """As Scatter, each row joined with what is there: KIND 0 add, 1 mul, 2 max, 3 min."""

    x: InOut[Vector[N]]
    update: Input[Vector[N, ONE_PTR]]
    index: Input[Vector[i32]]
    cols: i32
    base: i32
    total: i32

    def compute(self) -> None:
        rows = len(self.x) // self.cols
        for i in range(len(self.index)):
            k = self.index[i]
            abort_if(k < 0 or k >= self.total)
            k = k - self.base
            if k >= 0 and k < rows:
                for c in range(self.cols):
                    at = k * self.cols + c
                    self.x[at] = joined(self.x[at], self.update[i * self.cols + c], KIND)
