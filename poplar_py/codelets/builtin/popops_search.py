"""Searches along a row: best elements in order, positions of the largest and smallest."""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)
LARGEST = BoolParam("LARGEST")
LAST = BoolParam("LAST")


def better(a, i, b, j, LARGEST):
    """Whether element a at position i comes before b at j."""
    if LARGEST:
        return a > b or (a == b and i < j)
    return a < b or (a == b and i < j)


def sift_down(values, index, base, size, LARGEST):
    """Let the root of the heap sink; the worst of [base, base + size) ends at the root."""
    at = 0
    going = True
    while going:
        child = 2 * at + 1
        going = child < size
        if going:
            other = child + 1
            if other < size:
                if better(
                    values[base + child],
                    index[base + child],
                    values[base + other],
                    index[base + other],
                    LARGEST,
                ):
                    child = other
            going = better(
                values[base + at],
                index[base + at],
                values[base + child],
                index[base + child],
                LARGEST,
            )
            if going:
                v = values[base + at]
                k = index[base + at]
                values[base + at] = values[base + child]
                index[base + at] = index[base + child]
                values[base + child] = v
                index[base + child] = k
                at = child


@vertex
class TopK(Vertex, Generic[T, LARGEST]):
    """The k best of each row of n elements, best first, with their positions.

    `given` holds no edge, or one with the positions of the elements of x; without it they are
    `base` + place in the row. Equal elements: the lower position first.
    """

    values: Output[Vector[T]]
    index: Output[Vector[i32]]
    x: Input[Vector[T, ONE_PTR]]
    given: Vector[Input[Vector[i32, ONE_PTR]]]
    n: i32
    k: i32
    base: i32

    def compute(self) -> None:
        for r in range(len(self.values) // self.k):
            at = r * self.k
            for i in range(self.k):
                self.values[at + i] = self.x[r * self.n + i]
                self.index[at + i] = self.base + i
                if len(self.given) > 0:
                    self.index[at + i] = self.given[0][r * self.n + i]
                # move up while worse than the parent
                c = i
                while c > 0:
                    p = (c - 1) // 2
                    if better(
                        self.values[at + p],
                        self.index[at + p],
                        self.values[at + c],
                        self.index[at + c],
                        LARGEST,
                    ):
                        v = self.values[at + p]
                        q = self.index[at + p]
                        self.values[at + p] = self.values[at + c]
                        self.index[at + p] = self.index[at + c]
                        self.values[at + c] = v
                        self.index[at + c] = q
                        c = p
                    else:
                        c = 0
            for i in range(self.k, self.n):
                x = self.x[r * self.n + i]
                place = self.base + i
                if len(self.given) > 0:
                    place = self.given[0][r * self.n + i]
                if better(x, place, self.values[at], self.index[at], LARGEST):
                    self.values[at] = x
                    self.index[at] = place
                    sift_down(self.values, self.index, at, self.k, LARGEST)
            for j in range(self.k - 1):
                end = self.k - 1 - j
                v2 = self.values[at]
                q2 = self.index[at]
                self.values[at] = self.values[at + end]
                self.index[at] = self.index[at + end]
                self.values[at + end] = v2
                self.index[at + end] = q2
                sift_down(self.values, self.index, at, end, LARGEST)


@vertex
class ArgBest(Vertex, Generic[T, LARGEST, LAST]):
    """out[r, c] = k of the largest (smallest) x[r, k, c]; of equal ones the first, or the last."""

    out: Output[Vector[i32]]
    x: Input[Vector[T, ONE_PTR]]
    n: i32
    cols: i32

    def compute(self) -> None:
        for r in range(len(self.out) // self.cols):
            for c in range(self.cols):
                at = r * self.n * self.cols + c
                best = self.x[at]
                where = i32(0)
                for k in range(1, self.n):
                    v = self.x[at + k * self.cols]
                    wins = v > best
                    if not LARGEST:
                        wins = v < best
                    if LAST:
                        wins = wins or v == best
                    if wins:
                        best = v
                        where = k
                self.out[r * self.cols + c] = where
