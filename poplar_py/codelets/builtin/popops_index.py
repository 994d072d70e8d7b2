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
    """x[index[i] - base] = update[i] in the order of i, for the rows this vertex holds.

    An index outside [0, total) ends the run; with a total of -1 it is passed over.
    """

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
            abort_if(self.total >= 0 and (k < 0 or k >= self.total))
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
            abort_if(self.total >= 0 and (k < 0 or k >= self.total))
            k = k - self.base
            if k >= 0 and k < rows:
                for c in range(self.cols):
                    at = k * self.cols + c
                    self.x[at] = joined(self.x[at], self.update[i * self.cols + c], KIND)


def missing(T):
    """What stands for an element that is not there."""
    return nan(T) if is_float(T) else cast(0, T)


@vertex
class SelectFromRow(Vertex, Generic[T]):
    """out[i] = x[i][index[i]], rows of `cols` elements; 0 where the index is -1, and where it is
    outside the row NaN, of integers 0."""

    out: Output[Vector[T]]
    x: Input[Vector[T]]
    index: Input[Vector[i32]]
    cols: i32

    def compute(self) -> None:
        for i in range(len(self.index)):
            k = self.index[i]
            if k >= 0 and k < self.cols:
                self.out[i] = self.x[i * self.cols + k]
            elif k == -1:
                self.out[i] = cast(0, T)
            else:
                self.out[i] = missing(T)


@vertex
class UpdateInRow(Vertex, Generic[T]):
    """x[i][index[i]] = value[i], rows of `cols` elements; an index of -1 changes nothing, another
    one outside makes its row NaN, of integers 0."""

    x: InOut[Vector[T]]
    value: Input[Vector[T, ONE_PTR]]
    index: Input[Vector[i32]]
    cols: i32

    def compute(self) -> None:
        for i in range(len(self.index)):
            k = self.index[i]
            if k >= 0 and k < self.cols:
                self.x[i * self.cols + k] = self.value[i]
            elif k != -1:
                for c in range(self.cols):
                    self.x[i * self.cols + c] = missing(T)


@vertex
class DecrementInRow(Vertex, Generic[N]):
    """As UpdateInRow, the element becomes less by 1."""

    x: InOut[Vector[N]]
    index: Input[Vector[i32]]
    cols: i32

    def compute(self) -> None:
        for i in range(len(self.index)):
            k = self.index[i]
            if k >= 0 and k < self.cols:
                at = i * self.cols + k
                self.x[at] = self.x[at] - cast(1, N)
            elif k != -1:
                for c in range(self.cols):
                    self.x[i * self.cols + c] = missing(N)


@vertex
class Histogram(Vertex, Generic[N]):
    """Adds to out[k] how many elements of x have k of the levels (ascending) at or below them.

    A search by halves: as many steps for an element as the number of levels has bits.
    """

    out: Output[Vector[u32]]
    x: Input[Vector[N]]
    levels: Input[Vector[N]]

    def compute(self) -> None:
        for k in range(len(self.out)):
            self.out[k] = cast(0, u32)
        for i in range(len(self.x)):
            v = self.x[i]
            low = 0
            high = len(self.levels)
            while low < high:
                middle = (low + high) // 2
                if v < self.levels[middle]:
                    high = middle
                else:
                    low = middle + 1
            self.out[low] = self.out[low] + cast(1, u32)


@vertex
class SequenceCopy(Vertex, Generic[T]):
    """The part of the copied sequences that falls into the rows out[base ..] of this vertex.

    Sequence s copies rows[s] rows of `cols` elements from row source[s] of x to row target[s].
    """

    out: InOut[Vector[T]]
    x: Input[Vector[T]]
    rows: Input[Vector[i32]]
    source: Input[Vector[i32]]
    target: Input[Vector[i32]]
    cols: i32
    base: i32
    zero: bool

    def compute(self) -> None:
        held = len(self.out) // self.cols
        given = len(self.x) // self.cols
        if self.zero:
            for c in range(len(self.out)):
                self.out[c] = cast(0, T)
        for s in range(len(self.rows)):
            first = max(self.target[s], self.base)
            last = min(self.target[s] + self.rows[s], self.base + held)
            if first < last:
                at = self.source[s] + first - self.target[s]
                abort_if(at < 0 or at + last - first > given)
                n = (last - first) * self.cols
                copy_row(self.out, (first - self.base) * self.cols, self.x, at * self.cols, n)
