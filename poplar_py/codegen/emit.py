"""Codelet IR to LLVM text: one kernel runs a codelet over a table of rows.

`i32 kernel(ptr base, ptr table, i64 nrows, ptr ctx)`: rows as in `codelets.rows`; the result is the
AND of what the vertices return. `ctx` is an array of i64:

    [0] stop flag: checked code returns soon when it is not zero
    [1] error code, set once (see ERROR_CODES)   [2] address of the failing row
    [3] field index, -1 when none   [4] index   [5] size of the field   [7] source line
    [6] bytes of tile memory: bound of ONE_PTR fields in checked code (0: not checked)

Unchecked code reports only `abort_if`. Checked code tests every access, every int division and
polls the stop flag in loops. No fast-math flags: both variants give the same bits on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poplar_py.codegen import emit_ops
from poplar_py.codegen.emit_core import (
    Emitter,
    Target,
    memory_type,
)
from poplar_py.codegen.emit_division import int_division
from poplar_py.codegen.emit_expr import from_memory, index64, whole_index
from poplar_py.codegen.emit_stmt import emit_body, row_aliases
from poplar_py.codelets.arrays import register_arrays
from poplar_py.codelets.codelet_ir import Expr, Ty
from poplar_py.codelets.depth import deep
from poplar_py.codelets.rows import FieldSlot, row_layout
from poplar_py.types import bool_

if TYPE_CHECKING:
    from poplar_py.codelets.codelet import Codelet

__all__ = ["ERROR_CODES", "Kernel", "emit_kernel", "kernel_symbol"]

ERROR_CODES = {
    1: "out of range",
    2: "integer division by zero",
    3: "integer overflow in a division",
    4: "stopped",
    5: "stack or scratch",
    6: "aborted by the program",
}

_REPORT = """define internal void @report(ptr %ctx, i64 %code, ptr %row, i64 %f, i64 %i, i64 %n, i64 %l) cold noinline {
  %p1 = getelementptr i64, ptr %ctx, i64 1
  %x = cmpxchg ptr %p1, i64 0, i64 %code seq_cst seq_cst
  %won = extractvalue { i64, i1 } %x, 1
  br i1 %won, label %fill, label %out
fill:
  %r = ptrtoint ptr %row to i64
  %p2 = getelementptr i64, ptr %ctx, i64 2
  store i64 %r, ptr %p2
  %p3 = getelementptr i64, ptr %ctx, i64 3
  store i64 %f, ptr %p3
  %p4 = getelementptr i64, ptr %ctx, i64 4
  store i64 %i, ptr %p4
  %p5 = getelementptr i64, ptr %ctx, i64 5
  store i64 %n, ptr %p5
  %p7 = getelementptr i64, ptr %ctx, i64 7
  store i64 %l, ptr %p7
  br label %out
out:
  store atomic i64 1, ptr %ctx seq_cst, align 8
  ret void
}
"""  # noqa: E501

_TABLES = (emit_ops,)  # fills the table of handlers
_METADATA = """!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 100000}
!2 = !{!"branch_weights", i32 100000, i32 1}
"""


def emit_kernel(codelet: Codelet, *, checked: bool, wide: bool = False) -> tuple[str, str]:
    """Symbol and LLVM module text of a codelet's kernel. Equal codelets give equal results."""
    symbol = kernel_symbol(codelet, checked=checked, wide=wide)
    return symbol, Kernel(codelet, checked, wide).text(symbol)


def kernel_symbol(codelet: Codelet, *, checked: bool, wide: bool = False) -> str:
    """The symbol `emit_kernel` uses: it names the code for good."""
    return f"pp_{codelet.digest[:24]}{'c' if checked else 'u'}{'w' if wide else 'n'}"


@dataclass(slots=True)
class Array:
    """A local array: in registers, or at an alloca."""

    name: str
    ty: Ty
    size: int
    registers: bool
    pointer: str = ""

    @property
    def align(self) -> int:
        return min(64, self.ty.dtype.size * self.ty.lanes)


class Kernel:
    """Emission state of one kernel."""

    def __init__(self, codelet: Codelet, checked: bool, wide: bool) -> None:
        self.ir = codelet.ir
        self.checked = checked
        self.layout = row_layout(codelet.fields, wide)
        self.slots = {s.field.name: s for s in self.layout.slots}
        self.word = 8 if wide else 4
        self.e = Emitter()
        self.counters: set[str] = set()
        self.arrays: dict[str, Array] = {}
        self.in_registers = register_arrays(self.ir.body)
        self.line = 0
        self.uses_report = False
        self.wants_loop_passes = False
        self.prologue: list[str] = []
        self.prologue_memo: dict[str, str] = {}
        self.row = ""
        self.row_names = row_aliases(self.ir.body)

    # -- the row loop

    @deep
    def text(self, symbol: str) -> str:
        """The module text: declarations and the kernel."""
        e = self.e
        e.types |= {"#ret": "i32", "#row": "ptr", "#k": "i64"}
        e.env |= {"#ret": "1", "#row": "%table", "#k": "%nrows"}
        e.lines.append("  %some = icmp sgt i64 %nrows, 0")
        e.line("br i1 %some, label %rows, label %none")
        e.start("none")
        e.line("ret i32 1")
        e.start("rows")
        target = e.loop(("#ret", "#row", "#k"), self._row, self._next_row, "row")
        e.merge(target.label, target.edges)
        e.line(f"ret i32 {e.env['#ret']}")
        return self._module(symbol)

    def _module(self, symbol: str) -> str:
        passes = "loops" if self.wants_loop_passes else "none"
        head = f"define i32 @{symbol}(ptr noalias %base, ptr noalias readonly %table, i64 %nrows, "
        head += 'ptr noalias %ctx) nounwind "prefer-vector-width"="512" {\nentry:\n'
        parts = [f"; passes: {passes}\n", *(d + "\n" for d in sorted(self.e.declares))]
        parts += [_REPORT] if self.uses_report else []
        parts += [head, *(a + "\n" for a in self.e.allocas)]
        parts += ["\n".join(self.e.lines), "\n}\n", _METADATA]
        return "".join(parts)

    def _row(self, _target: Target) -> None:
        e = self.e
        self.row = e.env["#row"]
        e.line("; row")
        at = len(e.lines)
        if self.layout.variable:
            self.word_at(0)
        if self.ir.multi:
            self._workers()
        else:
            self._vertex()
        if e.dead:
            e.start(e.block_name("unreached"))
            e.env = {"#ret": "0", "#row": "%table", "#k": "1"}
        e.lines[at:at] = self.prologue

    def _next_row(self) -> str:
        e = self.e
        if self.layout.variable:
            words = self.word_at(0)
            step = e.raw(f"mul i64 {words}, {self.word}")
        else:
            step = str(self.layout.fixed * self.word)
        e.env["#row"] = e.raw(f"getelementptr i8, ptr {self.row}, i64 {step}")
        e.env["#k"] = e.raw(f"add nsw i64 {e.env['#k']}, -1")
        return e.raw(f"icmp sgt i64 {e.env['#k']}, 0")

    def _vertex(self) -> None:
        """One execution of compute."""
        e = self.e
        target = Target(e.block_name("done"), "#return")
        e.targets.append(target)
        outer, e.env = e.env, dict(e.env)
        e.scoped(lambda: emit_body(self, self.ir.body))
        e.targets.pop()
        if not e.dead:
            target.edges.append(e.edge())
            e.jump(target.label)
        e.merge(target.label, target.edges)
        if not e.dead:
            e.env = {k: v for k, v in e.env.items() if k in outer}

    def _workers(self) -> None:
        """The six workers, in order."""
        e = self.e
        name = self.ir.worker
        e.env[name] = "0"
        e.types[name] = "i64"
        self.counters.add(name)

        def latch() -> str:
            e.env[name] = e.raw(f"add nuw nsw i64 {e.env[name]}, 1")
            return e.raw(f"icmp ult i64 {e.env[name]}, 6")

        target = e.loop(("#ret", name), lambda _t: self._vertex(), latch, "worker")
        e.merge(target.label, target.edges)

    # -- the table row

    def _in_prologue(self, rhs: str, name: str | None = None) -> str:
        """A value computed once per row, before the vertex."""
        found = self.prologue_memo.get(rhs)
        if found is None:
            found = name or self.e.name("r")
            self.prologue.append(f"  {found} = {rhs}")
            self.prologue_memo[rhs] = found
        return found

    def word_at(self, word: int) -> str:
        """A word of the row, as i64."""
        value = self._in_prologue(
            f"load i{self.word * 8}, ptr {self._word_pointer(word)}, align {self.word}, "
            "!invariant.load !0"
        )
        return value if self.word == 8 else self._in_prologue(f"zext i32 {value} to i64")

    def _word_pointer(self, word: int) -> str:
        if word == 0:
            return self.row
        return self._in_prologue(f"getelementptr i8, ptr {self.row}, i64 {word * self.word}")

    def _base_plus(self, offset: str) -> str:
        return self._in_prologue(f"getelementptr i8, ptr %base, i64 {offset}")

    def field_pointer(self, name: str) -> str:
        """The address of a rank-0 or rank-1 field."""
        return self._base_plus(self.word_at(self.slots[name].word))

    def field_size(self, name: str) -> str | None:
        """Elements of a rank-1 field as i64; None when the row does not say."""
        slot = self.slots[name]
        if slot.field.rank == 0:
            return "1"
        return self.word_at(slot.word + 1) if slot.kind == "span" else None

    def row_count(self, name: str) -> str:
        return self.word_at(self.slots[name].word + 1)

    def row_pointer(self, name: str, index: Expr) -> tuple[str, str | None]:
        """Pointer and size of sub-run `index` of a rank-2 field."""
        e, slot = self.e, self.slots[name]
        if self.checked:
            position = whole_index(self, index)
            self.check_index(self.field_number(name), position, self.row_count(name))
        relative = self.word_at(slot.word)
        start = self._in_prologue(f"mul i64 {relative}, {self.word}")
        sub = self._in_prologue(f"getelementptr i8, ptr {self.row}, i64 {start}")
        variable, constant = index64(self, index)
        stride = slot.entry_words * self.word
        if variable is not None:
            scaled = e.op(f"mul i64 {variable}, {stride}")
            sub = e.op(f"getelementptr i8, ptr {sub}, i64 {scaled}")
        offset = self._entry_word(sub, constant * stride)
        pointer = e.op(f"getelementptr i8, ptr %base, i64 {offset}")
        if slot.entry_words == 1:
            return pointer, None
        return pointer, self._entry_word(sub, constant * stride + self.word)

    def _entry_word(self, pointer: str, offset: int) -> str:
        e = self.e
        if offset:
            pointer = e.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        load = f"load i{self.word * 8}, ptr {pointer}, align {self.word}, !invariant.load !0"
        value = e.op(load)
        return value if self.word == 8 else e.op(f"zext i32 {value} to i64")

    def state_value(self, name: str) -> str:
        """A scalar of state: a literal of the row, or a load from tile memory."""
        slot = self.slots[name]
        ty = Ty(slot.field.dtype)
        if slot.kind == "value":
            return self._literal(slot, ty)
        pointer = self.field_pointer(name)
        value = self.e.raw(f"load {memory_type(ty)}, ptr {pointer}, align {ty.dtype.size}")
        return from_memory(self, value, ty)

    def _literal(self, slot: FieldSlot, ty: Ty) -> str:
        pointer = self._word_pointer(slot.word)
        align = min(self.word, ty.dtype.size)
        load = f"load {memory_type(ty)}, ptr {pointer}, align {align}, !invariant.load !0"
        value = self._in_prologue(load)
        if ty.dtype is bool_:
            return self._in_prologue(f"icmp ne i8 {value}, 0")
        return value

    # -- arrays

    def array_address(self, array: Array, index: Expr, lanes: int) -> str:
        position = whole_index(self, index)
        if self.checked and position.startswith("%"):
            room = array.size - (0 if lanes == array.ty.lanes else lanes - 1)
            self.check_index(-1, position, str(max(room, 0)))
        at = f"getelementptr {memory_type(array.ty)}, ptr {array.pointer}, i64 {position}"
        return self.e.op(at)

    # -- checks

    def field_number(self, name: str) -> int:
        return next((n for n, f in enumerate(self.ir.fields) if f.name == name), -1)

    def check_bounds(
        self, ref: Expr, pointer: str, size: str | None, index: str, lanes: int | str
    ) -> None:
        """Report and return unless elements index .. index + lanes - 1 exist."""
        e = self.e
        name = str(ref.attr[0]) if ref.op != "local" else self.row_names.get(str(ref.attr[0]), "")
        number = self.field_number(name)
        if size is None:
            self._check_memory(number, pointer, index, lanes, ref.ty.dtype.size)
            return
        if lanes == 1:
            self.check_index(number, index, size)
            return
        room = e.op(f"sub i64 {size}, {lanes}")
        negative = e.op(f"icmp slt i64 {room}, 0")
        beyond = e.op(f"icmp ugt i64 {index}, {room}")
        self.fail_if(e.op(f"or i1 {negative}, {beyond}"), 1, number, index, size)

    def check_index(self, field: int, index: str, size: str) -> None:
        self.fail_if(self.e.op(f"icmp uge i64 {index}, {size}"), 1, field, index, size)

    def _check_memory(
        self, field: int, pointer: str, index: str, lanes: int | str, size: int
    ) -> None:
        """A run without a size must at least lie inside tile memory."""
        e = self.e
        limit = self._elements_after(pointer, size)
        if lanes == 1:
            self.fail_if(e.op(f"icmp uge i64 {index}, {limit}"), 1, field, index, "-1")
            return
        end = e.op(f"add i64 {index}, {lanes}")
        before, beyond = e.op(f"icmp slt i64 {index}, 0"), e.op(f"icmp sgt i64 {end}, {limit}")
        self.fail_if(e.op(f"or i1 {before}, {beyond}"), 1, field, index, "-1")

    def _elements_after(self, pointer: str, size: int) -> str:
        """How many elements lie between a pointer and the end of tile memory."""
        e = self.e
        word = self._in_prologue("getelementptr i64, ptr %ctx, i64 6")
        total = self._in_prologue(f"load i64, ptr {word}, align 8")
        known = self._in_prologue(f"icmp ne i64 {total}, 0")
        end = self._in_prologue(f"select i1 {known}, i64 {total}, i64 {1 << 62}")
        origin = self._in_prologue("ptrtoint ptr %base to i64")
        start = e.op(f"ptrtoint ptr {pointer} to i64")
        room = e.op(f"sub i64 {end}, {e.op(f'sub i64 {start}, {origin}')}")
        count = e.op(f"ashr i64 {room}, {size.bit_length() - 1}")
        return e.intrinsic("smax", "i64", count, "0")

    def fail_if(self, cond: str, code: int, field: int, index: str, size: str) -> None:
        """Report an error and leave the kernel when `cond` holds."""
        e = self.e
        self.uses_report = True
        trap, go_on = e.block_name("trap"), e.block_name("ok")
        e.branch(cond, trap, go_on, cold="yes")
        e.start(trap)
        place = f"i64 {code}, ptr {self.row}, i64 {field}, i64 {index}, i64 {size}"
        e.line(f"call void @report(ptr %ctx, {place}, i64 {self.line})")
        e.line("ret i32 0")
        e.start(go_on)

    def poll_stop(self) -> None:
        """Return when the run was stopped."""
        e = self.e
        flag = e.raw("load atomic i64, ptr %ctx monotonic, align 8")
        stop = e.raw(f"icmp ne i64 {flag}, 0")
        leave, go_on = e.block_name("stop"), e.block_name("go")
        e.branch(stop, leave, go_on, cold="yes")
        e.start(leave)
        e.line("ret i32 0")
        e.start(go_on)

    def int_division(self, expr: Expr, a: str, b: str) -> str:
        """quot, rem (truncating), floordiv, mod (as Python). Never traps."""
        return int_division(self, expr, a, b)
