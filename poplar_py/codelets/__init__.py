"""Codelets: what one vertex computes, written in typed Python and turned into codelet IR.

The vertex language (the same for built-ins in `codelets/builtin/*.py` and for users' files)
============================================================================================

A source file is parsed, never imported. It holds, at module level: imports (ignored), a docstring,
`NAMESPACE = "popops"` (the prefix of every class in the file), `T = TypeVar("T", f16, f32)`,
`N = IntParam("N")`, `B = BoolParam("B")`, enums of ints (`class Kind(Enum): ADD = 0`) and
`K = EnumParam("K", Kind)`, constants in CAPITALS, helper functions (`def`, optionally `@device`)
and vertex classes.

    NAMESPACE = "popops"
    T = TypeVar("T", f16, f32)

    @vertex
    class ScaledAdd(Vertex, Generic[T]):
        y: InOut[Vector[T]]
        x: Input[Vector[T]]
        scale: f32                              # vertex state

        def compute(self) -> bool:              # or -> None
            for i in range(len(self.y)):
                self.y[i] += cast(self.scale * f32(self.x[i]), T)
            return True

Instances are named `popops::ScaledAdd<half>`; parameters in the order of `Generic[...]`, types by
Poplar's or our names (`float` = `f32`, `half` = `f16`, `int`, `unsigned int`, ...), ints, `true`,
`false`, members of enums (`my::Kind::ADD`). A `MultiVertex` has `compute(self, worker_id: u32)`,
called for worker_id 0..5 in order (`num_workers()` is 6). A `SupervisorVertex` has `compute(self)`:
the supervisor of the tile runs it alone, its cycles are tile cycles. `@constraint("elem(*a) !=
elem(*b)")` beside `@vertex` is checked for its fields and changes no value.

Fields, in row order (see `rows.py`)
    Input[T] Output[T] InOut[T]           rank 0: `self.a` or `self.a[0]` reads, `=` writes
    Input[Vector[T]]                      rank 1: `self.a[i]`, `len(self.a)`
    Input[Vector[T, ONE_PTR]]             rank 1 without a length
    Vector[Input[Vector[T]]]              rank 2: `self.a[j][i]`, `len(self.a)`, `len(self.a[j])`;
                                          `row = self.a[j]` is an alias
    Vector[Input[Vector[T, ONE_PTR]]]     rank 2, rows without lengths
    Input[VectorList[T, DELTANELEMENTS]]  rank 2, Poplar's compact form: DELTAN, DELTANELEMENTS or
                                          COMPACT_DELTAN, 8 bytes of state and 4 a row
    name: f32                             state; assigned in compute: lives in tile memory
    name: Vector[u16]                     state vector
    LIMIT = 16, LIMIT = 2 * N             class constant, compile time: `self.LIMIT`
    in_: Input[f32]                       keywords of Python with `_`: vertices connect it as "in"
    mode: Mode                            an enum of the file as state: an i32
    Layouts: SPAN, SHORT_SPAN, ONE_PTR, SCALED_PTR32, SCALED_PTR64, SCALED_PTR128, COMPACT_PTR (also
    VectorLayout.ONE_PTR, ...); all but the first two have no length. After the layout may follow a
    least alignment in bytes and a flag for interleaved memory: Vector[T, SPAN, 16, True]. Types may
    be chosen at compile time: `Input[Vector[f16 if HALF else f32]]`.

Types
    f16 f32 f64 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool; short vectors `f32x16` = `Vec[f32, 16]`
    (any element type, 2 to 64 lanes), also by Poplar's names `float2 half4 int2 uint2 ...`;
    `half`, `unsigned`, `float` and `int` are f16, u32, f32 and i32; `float2(a, b)` makes a vector,
    `v[0] = s` sets a lane. Literals take the type of the other operand; alone they are i32 and
    f32. Ints of 8 and 16 bits count as i32 in arithmetic and comparisons, as in C (lanes do not).
    Mixed ints: the wider one, signed at equal width; // and % of i32 and u32 are exact, in the type
    of the dividend. Int with float: the float type. f16 or bf16 with f32: f32. f16 and bf16 round
    once per operation. Ints wrap. Index
    expressions are exact (64 bits, no wrap). `f32(x)`, `cast(x, T)` convert: float to int
    saturates, NaN gives 0, to f16 and bf16 round to nearest even. `bitcast(x, u32)` reinterprets.
    All of it works on vectors too, lane by lane.

Statements
    for i in range(n) / range(a, b) / range(a, b, step)   a step of 0 ends the run
    for p in unroll(N) / unroll(a, b, step)               unrolled; p is a compile-time int
    for v in run (a field, row or array with a length); for i, v in enumerate(run); for a, b in
    zip(x, y); for k in (1, 2, 4) and for a, b in ((1, 2), (3, 4)): unrolled
    while, break, continue, return, pass, if / elif / else; `a if c else b`; and, or, not (short
    circuit). `if` on a compile-time value is folded: the dead branch is not even typed.
    match x: case 1 | 2: ... case Kind.ADD: ... case _: (values only; guards are possible)
    Operands are evaluated from left to right, as in Python; the links of a chain one by one.
    x = e, x: f32 = e, x += e, x, y = a, b, x = y = e; a local has one type for good. Locals in
    CAPITALS, and locals that hold a known int, are compile-time values.
    TABLE = (1, 4, 9) in the file or the class: TABLE[i], with any index, filled by every vertex.
    acc = array(f32x16, 28): a zeroed local array; array(f32, [1.0, 2.0]) holds these. With
    compile-time indices everywhere it lives in registers; else on the stack (at most 16 KiB).
    Operators: + - * / // % ** & | ^ << >> ~ and comparisons. `/` wants floats; // and % on ints
    are Python's (floor), quot and rem are C's; shift counts are masked.
    assert: at compile time an error, at run time as `abort_if(not c)`. abort_if(c) ends the run
    with a TileException.
    Helpers (functions of the file, methods and static methods of the class) are inlined, may take
    arrays, fields and rows, defaults, arguments by name, may return tuples; recursion is refused.

Functions, on scalars and vectors alike
    abs (fabs) min max sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
    atan2 sinh cosh tanh asinh acosh atanh erf sigmoid pow floor ceil round (half to even) trunc
    copysign fmod isnan isinf isfinite popcount clz andc(a, b) = a & ~b fma(a, b, c) select(c, a,
    b)
    min and max of floats give NaN if either is NaN; fmin and fmax give the number.
    size_of(T) is_float(T) limit_max(T) limit_min(T) lowest(T) inf(T) nan(T); `T is f16`, `T == f16`
    compare types at compile time. `math.pi`, `math.sqrt` and the like mean the same functions, as
    do Poplar's intrinsics `ipu.fabs(x)` and `__builtin_ipu_fabs(x)`. Those that reach into
    registers or pointers of the machine are refused with what to write instead.

Random numbers
    urand32() u32, urand64() u64, urand_f32() in [-0.5, 0.5), f32v2grand() two normal numbers as
    f32x2. Each vertex owns a generator in its state field `prng: u64` (see `lower_random`), which a
    class may declare to seed it with set_initial_value.

Short vectors
    load16(run, i[, n])           16 elements at i of a field, row or local array of scalars; f16
                                  and bf16 come as f32; with n only the first n lanes, others 0
    store16(run, i, v[, n])       the inverse
    load(run, i, LANES[, n])      other lane counts; store(run, i, v[, n]); load_raw, store_raw
                                  keep the memory type
    splat16(s), splat(s, LANES)   iota16() = 0..15 as u32x16, iota(LANES)
    v[K], insert(v, K, s)         a lane, K known; shuffle(a, b, (lane numbers, b's after a's))
    sum16 prod16 max16 min16      over the lanes by a fixed tree: lane i with i + 8, then 4, 2, 1;
                                  sum, prod, reduce_max, reduce_min for other lane counts
    gather(run, index_vector)     element by element
    transpose16(acc)              sixteen f32x16 of a register array, in place
    prefetch(run, i[, n])         a hint, never faults; with n: of the vertex n rows later

`codelets.get("popops::ScaledAdd<float>")` returns a built-in; `CodeletLibrary` adds user sources;
`map_codelet` makes one from an expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.lazy import lazy_names

if TYPE_CHECKING:
    from poplar_py.codelets.codelet import Codelet, CodeletLibrary, get
    from poplar_py.codelets.codelet_ir import Field
    from poplar_py.codelets.errors import CodeletError
    from poplar_py.codelets.expr import map_codelet
    from poplar_py.codelets.rows import RowLayout, row_layout

__all__ = [
    "Codelet",
    "CodeletError",
    "CodeletLibrary",
    "Field",
    "RowLayout",
    "get",
    "map_codelet",
    "row_layout",
]

_HOMES = {
    "poplar_py.codelets.codelet": ("Codelet", "CodeletLibrary", "get"),
    "poplar_py.codelets.codelet_ir": ("Field",),
    "poplar_py.codelets.errors": ("CodeletError",),
    "poplar_py.codelets.expr": ("map_codelet",),
    "poplar_py.codelets.rows": ("RowLayout", "row_layout"),
}

__getattr__ = lazy_names(__name__, _HOMES)
