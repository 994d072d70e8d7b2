"""Constructs of the vertex language, checked and unchecked, against Python or NumPy."""

from __future__ import annotations

import numpy as np
from forms import compiled

from poplar_py.codegen.run_codelet import run_codelet

F = np.float32


def test_control_flow(checked) -> None:
    codelet = compiled(
        """
@vertex
class Collatz(Vertex):
    out: Output[Vector[i32]]
    x: Input[Vector[i32]]
    def steps(self, n):
        count = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            count += 1
            if count > 50:
                return -1
        return count
    def compute(self):
        for i in range(len(self.x)):
            if self.x[i] == 0:
                continue
            if self.x[i] < 0:
                break
            self.out[i] = self.steps(self.x[i])
""",
        "Collatz",
    )
    x = np.array([1, 6, 0, 27, 7, -1, 3], np.int32)
    result = run_codelet(codelet, {"out": np.full(7, 9, np.int32), "x": x}, checked=checked)
    assert result["out"].tolist() == [0, 8, 9, -1, 16, 9, 9]
    assert result.ctx[1] == 0


def test_integer_arithmetic_follows_python(checked) -> None:
    codelet = compiled(
        """
T = TypeVar("T", i8, i16, i32, i64, u8, u32)
@vertex
class Ints(Vertex, Generic[T]):
    out: Output[Vector[T]]
    a: Input[Vector[T]]
    b: Input[Vector[T]]
    def compute(self):
        n = len(self.a)
        for i in range(n):
            a, b = self.a[i], self.b[i]
            self.out[i] = a // b
            self.out[n + i] = a % b
            self.out[2 * n + i] = (a << b) ^ (a >> 1) | ~b & a
            self.out[3 * n + i] = min(a, b) * max(a, b) - abs(a)
""",
        "Ints<int>",
    )
    a = np.array([7, -7, 7, -7, 100, 0, -1], np.int32)
    b = np.array([2, 2, -2, -2, 7, 5, 3], np.int32)
    out = np.zeros(28, np.int32)
    got = run_codelet(codelet, {"out": out, "a": a, "b": b}, checked=checked)["out"].reshape(4, 7)
    np.testing.assert_array_equal(got[0], a // b)
    np.testing.assert_array_equal(got[1], a % b)
    np.testing.assert_array_equal(got[2], np.left_shift(a, b & 31) ^ (a >> 1) | ~b & a)
    np.testing.assert_array_equal(got[3], np.minimum(a, b) * np.maximum(a, b) - abs(a))


def test_short_circuit_guards_an_access(checked) -> None:
    codelet = compiled(
        """
@vertex
class Guard(Vertex):
    out: Output[Vector[i32]]
    x: Input[Vector[i32]]
    def positive(self, i):
        return self.x[i] > 0
    def compute(self):
        for i in range(len(self.out)):
            ok = i < len(self.x) and self.x[i] > 1
            also = i >= len(self.x) or self.positive(i)
            v = self.x[i] if i < len(self.x) else 40
            self.out[i] = i32(ok) + 2 * i32(also) + 4 * v
""",
        "Guard",
    )
    x = np.array([5, 1, -3], np.int32)
    result = run_codelet(codelet, {"out": np.zeros(5, np.int32), "x": x}, checked=checked)
    assert result.ctx[1] == 0
    assert result["out"].tolist() == [3 + 20, 2 + 4, -12, 2 + 160, 2 + 160]


def test_state_arrays_and_return(checked) -> None:
    codelet = compiled(
        """
N = IntParam("N")
@vertex
class Counter(Vertex, Generic[N]):
    out: Output[i32]
    table: Vector[u16]
    count: i32
    limit: i64
    flag: bool
    half: f16
    SCALE = 2 * N
    def compute(self) -> bool:
        hist = array(i32, 8)
        for i in range(len(self.table)):
            hist[i32(self.table[i]) % 8] += 1
        self.count += 1
        total = 0
        for k in range(8):
            total += hist[k] * k
        self.out = total * self.SCALE + i32(self.half * 2.0)
        return self.count < self.limit and self.flag
""",
        "Counter<3>",
    )
    table = np.array([1, 2, 3, 9, 15], np.uint16)
    row = {
        "out": np.zeros(1, np.int32),
        "table": table,
        "count": np.array([4], np.int32),
        "limit": 6,
        "flag": True,
        "half": 1.5,
    }
    result = run_codelet(codelet, row, checked=checked)
    assert result["out"][0] == int((table % 8).sum()) * 6 + 3
    assert result["count"][0] == 5
    assert result.code == 1
    assert run_codelet(codelet, {**row, "limit": 5}, checked=checked).code == 0
    assert run_codelet(codelet, [row, {**row, "flag": False}], checked=checked, wide=True).code == 0


def test_multi_vertex_runs_six_workers_in_order(checked) -> None:
    codelet = compiled(
        """
@vertex
class Fill(MultiVertex):
    out: InOut[Vector[u32]]
    def compute(self, worker_id: u32):
        for i in range(worker_id, len(self.out), 6):
            self.out[i] = worker_id * 10
        self.out[0] = self.out[0] * 2 + worker_id
""",
        "Fill",
    )
    out = run_codelet(codelet, {"out": np.zeros(9, np.uint32)}, checked=checked)["out"]
    want = 0
    for w in range(6):
        want = want * 2 + w
    assert out.tolist() == [want, 10, 20, 30, 40, 50, 0, 10, 20]


def test_iteration_and_math_names(checked) -> None:
    codelet = compiled(
        """
@vertex
class Walk(Vertex):
    out: Output[Vector[f32]]
    x: Input[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    def compute(self):
        total = 0.0
        for v in self.x:
            if v < 0.0:
                continue
            total += math.sqrt(v)
        self.out[0] = total
        k = 1
        for row in self.rows:
            for v in row:
                self.out[k] = v * math.pi
                k += 1
        a = array(f32, 3)
        for p in (0, 2):
            a[p] = 4.0
        for v in a:
            self.out[k] = v
            k += 1
""",
        "Walk",
    )
    x = np.array([4, -1, 9], F)
    rows = [np.array([1, 2], F), np.zeros(0, F), np.array([3], F)]
    row = {"out": np.zeros(7, F), "x": x, "rows": rows}
    out = run_codelet(codelet, row, checked=checked)["out"]
    pi = F(np.pi)
    np.testing.assert_array_equal(out, np.array([5, pi, 2 * pi, 3 * pi, 4, 0, 4], F))


def test_a_helper_may_return_out_of_an_endless_loop(checked) -> None:
    codelet = compiled(
        """
@vertex
class Search(Vertex):
    out: Output[Vector[i32]]
    x: Input[Vector[i32]]
    def find(self, want):
        i = 0
        while True:
            if i == len(self.x):
                return -1
            if self.x[i] == want:
                return i
            i += 1
    def compute(self):
        for k in range(len(self.out)):
            self.out[k] = self.find(k)
""",
        "Search",
    )
    row = {"out": np.zeros(5, np.int32), "x": np.array([3, 0, 4], np.int32)}
    assert run_codelet(codelet, row, checked=checked)["out"].tolist() == [1, -1, -1, 0, 2]


def test_order_of_evaluation(checked) -> None:
    """Left to right, links of a chain one by one, an index after the value: as Python does."""
    body = """
        self.out[0] = self.s + self.bump(1)
        self.out[1] = i32(self.s * 2 < self.bump(10) < self.bump(100))
        self.out[2] = self.add(self.s, self.bump(1000))
        self.out[self.bump(1) % 8] = self.s
        self.out[4] = i32(0 < self.s and self.bump(5) < 0 and self.bump(7) > 0)
        a, b = self.s, self.bump(3)
        self.out[5] = a * 7 + b
        self.out[6] = self.s
"""
    codelet = compiled(
        f"""
@vertex
class Order(Vertex):
    out: Output[Vector[i32]]
    s: i32
    def bump(self, n):
        self.s = self.s + n
        return self.s
    def add(self, a, b):
        return a * 3 + b
    def compute(self):
{body}
""",
        "Order",
    )

    class Account:
        def __init__(self):
            self.s, self.out = 3, [0] * 8

        def bump(self, n):
            self.s += n
            return self.s

        def add(self, a, b):
            return a * 3 + b

    me = Account()
    exec("\n".join(line.strip() for line in body.splitlines()), {"self": me, "i32": int})
    row = {"out": np.zeros(8, np.int32), "s": np.array([3], np.int32)}
    result = run_codelet(codelet, row, checked=checked)
    assert result["out"].tolist() == [int(v) for v in me.out]
    assert result["s"][0] == me.s


def test_known_ints_keep_their_types(checked) -> None:
    """What folds at compile time wraps, promotes and compares as it would at run time."""
    codelet = compiled(
        """
@vertex
class Known(Vertex):
    out: Output[Vector[i64]]
    def compute(self):
        a = u64(18446744073709551615)
        b = u8(200)
        self.out[0] = i64(a * u64(3))
        self.out[1] = i64(b + u8(100))
        self.out[2] = i64(u16(2) < i8(-128))
        self.out[3] = i64(clz(max(b, u8(3))))
        self.out[4] = i64(i8(-128) * i8(17))
        self.out[5] = i64(u64(6148914691236517205) << u64(5))
        self.out[6] = i64(popcount(7) + clz(1))
""",
        "Known",
    )
    out = run_codelet(codelet, {"out": np.zeros(7, np.int64)}, checked=checked)["out"]
    wrapped = (6148914691236517205 << 5) % (1 << 64)
    assert out.tolist() == [-3, 300, 0, 0, -2176, wrapped - (1 << 64), 3 + 31]
