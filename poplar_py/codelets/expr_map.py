"""Codelet IR of an element-wise map over a [rows, cols] block, sixteen lanes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from poplar_py.codelets import build
from poplar_py.codelets.codelet_ir import BOOL, I32, CodeletIR, Expr, Field, Stmt, Ty, walk_expr
from poplar_py.types import DType, i32, u32

__all__ = ["MODES", "map_ir"]

MODES = ("full", "row", "col", "scalar")
LANES = 16
_SMALL = 40  # nodes: up to here the tail is a second copy of the body, above one masked loop


def map_ir(
    name: str,
    in_dtypes: Sequence[DType],
    out_dtype: DType,
    modes: Sequence[str],
    compute: Callable[[Sequence[Expr]], build.Operand],
) -> CodeletIR:
    """The IR of a map codelet. `compute` gives the value of one vector from its inputs."""
    fields = [Field("out", "out", out_dtype, 1, mutable=True)]
    fields += [Field(f"in{i}", "in", d, 1) for i, d in enumerate(in_dtypes)]
    fields += [Field("rows", "state", u32, 0), Field("cols", "state", u32, 0)]
    maker = _Maker(in_dtypes, out_dtype, modes, compute)
    flat = all(m in ("full", "scalar") for m in modes)
    body = maker.flat() if flat else maker.block()
    body.append(Stmt("return", (build.const(True, BOOL),)))
    return CodeletIR(name, False, tuple(fields), body)


def _local(name: str, ty: Ty = I32) -> Expr:
    return Expr("local", ty, (), (name,))


def _state(name: str) -> Expr:
    return build.cast(Expr("state", Ty(u32), (), (name,)), I32)


class _Maker:
    def __init__(
        self,
        in_dtypes: Sequence[DType],
        out_dtype: DType,
        modes: Sequence[str],
        compute: Callable[[Sequence[Expr]], build.Operand],
    ) -> None:
        self.dtypes, self.out_dtype, self.modes = in_dtypes, out_dtype, modes
        self.compute = compute
        inputs = [_local(f"v{i}", Ty(d, LANES)) for i, d in enumerate(in_dtypes)]
        value = build.as_expr(compute(inputs))
        self.small = sum(1 for _ in walk_expr(value)) <= _SMALL

    def ref(self, i: int) -> Expr:
        return Expr("field", Ty(self.dtypes[i], 1, True), (), (f"in{i}",))

    def hoisted(self, mode: str, index: Expr) -> list[Stmt]:
        """Assignments of the inputs of one mode, splat over the lanes."""
        out: list[Stmt] = []
        for i, (d, m) in enumerate(zip(self.dtypes, self.modes, strict=True)):
            if m == mode:
                value = build.splat(build.load(self.ref(i), index), LANES)
                out.append(Stmt("assign", (value,), (f"v{i}",)))
                assert value.ty == Ty(d, LANES)
        return out

    def flat(self) -> list[Stmt]:
        """No row or col inputs: one run of rows * cols elements."""
        body = self.hoisted("scalar", build.const(0, I32))
        total = build.binary("mul", _state("rows"), _state("cols"))
        body.append(Stmt("assign", (total,), ("n",)))
        return body + self.run(_local("n"), {"full": build.const(0, I32)})

    def block(self) -> list[Stmt]:
        """Row by row."""
        body = self.hoisted("scalar", build.const(0, I32))
        body.append(Stmt("assign", (_state("cols"),), ("n",)))
        row = _local("r")
        inner = self.hoisted("col", row)
        first = build.binary("mul", row, _local("n"))
        inner += self.run(_local("n"), {"full": first, "row": build.const(0, I32)})
        body.append(Stmt("for", (build.const(0, I32), _state("rows")), ("r", 1), inner, ty=Ty(i32)))
        return body

    def run(self, n: Expr, first: dict[str, Expr]) -> list[Stmt]:
        """`n` elements; `first` is where each mode's elements start."""
        index, lanes = _local("i"), build.const(LANES, I32)
        rest = build.binary("sub", n, index)
        if not self.small:
            body = self.vector(index, first, rest)
            return [Stmt("for", (build.const(0, I32), n), ("i", LANES), body, ty=I32)]
        whole = build.binary("sub", n, build.const(LANES - 1, I32))
        body = self.vector(index, first, None)
        out = [Stmt("for", (build.const(0, I32), whole), ("i", LANES), body, ty=I32)]
        used = build.binary("and", n, build.const(~(LANES - 1), I32))
        rest = build.binary("and", n, build.const(LANES - 1, I32))
        test = build.compare("gt", rest, 0)
        del lanes
        tail = [Stmt("assign", (used,), ("t",)), *self.vector(_local("t"), first, rest)]
        out.append(Stmt("if", (test,), (), tail))
        return out

    def vector(self, index: Expr, first: dict[str, Expr], count: Expr | None) -> list[Stmt]:
        """One vector: loads, the expression, the store."""
        out: list[Stmt] = []
        inputs: list[Expr] = []
        for i, (d, mode) in enumerate(zip(self.dtypes, self.modes, strict=True)):
            inputs.append(_local(f"v{i}", Ty(d, LANES)))
            if mode in first:
                at = build.binary("add", first[mode], index)
                value = build.load(self.ref(i), at, LANES, count)
                out.append(Stmt("assign", (value,), (f"v{i}",)))
        result = build.splat(build.as_expr(self.compute(inputs)), LANES)
        target = Expr("field", Ty(self.out_dtype, 1, True), (), ("out",))
        at = build.binary("add", first["full"], index)
        args = (target, at, result) if count is None else (target, at, result, count)
        out.append(Stmt("store", args))
        return out
