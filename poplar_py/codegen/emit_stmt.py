"""Codelet statements to LLVM text, in SSA form: no allocas except for indexed arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from poplar_py.codegen.emit_core import Target, const_text, llvm_type, mangle, memory_type
from poplar_py.codegen.emit_expr import (
    address,
    clamped_count,
    emit_expr,
    lane_mask,
    reference,
    to_memory,
    whole_index,
)
from poplar_py.codelets.codelet_ir import Expr, Stmt, Ty, walk_expr, walk_stmts

if TYPE_CHECKING:
    from poplar_py.codegen.emit import Kernel

__all__ = ["assigned_keys", "emit_body", "row_aliases"]

_POLL_EVERY = 1024


def row_aliases(body: list[Stmt]) -> dict[str, str]:
    """The field behind each local that stands for a row."""
    names: dict[str, str] = {}
    for stmt in walk_stmts(body):
        if stmt.op == "assign" and stmt.args[0].ty.ref:
            source = str(stmt.args[0].attr[0])
            names[str(stmt.attr[0])] = names.get(source, source)
    return names


def assigned_keys(k: Kernel, body: list[Stmt]) -> set[str]:
    """Environment keys that a list of statements may change."""
    keys: set[str] = set()
    for stmt in walk_stmts(body):
        match stmt.op:
            case "assign":
                name = str(stmt.attr[0])
                keys |= {name + "#p", name + "#n"} if stmt.args[0].ty.ref else {name}
            case "astore" if str(stmt.attr[0]) in k.in_registers:
                keys.add(f"{stmt.attr[0]}#{int(stmt.args[0].attr[0])}")
            case "array" if str(stmt.attr[0]) in k.in_registers:
                keys |= {f"{stmt.attr[0]}#{n}" for n in range(int(stmt.attr[1]))}
            case "return":
                keys.add("#ret")
            case _:
                pass
    return keys


def emit_body(k: Kernel, body: list[Stmt]) -> None:
    """Statements in order; what follows a jump is dropped."""
    for stmt in body:
        if k.e.dead:
            return
        k.line = stmt.line
        _HANDLERS[stmt.op](k, stmt)


def _assign(k: Kernel, s: Stmt) -> None:
    name, value = str(s.attr[0]), s.args[0]
    if not value.ty.ref:
        k.e.env[name] = emit_expr(k, value)
        k.e.types[name] = llvm_type(value.ty)
        return
    pointer, size = reference(k, value)
    k.e.env[name + "#p"] = pointer
    k.e.types |= {name + "#p": "ptr", name + "#n": "i64"}
    if size is not None:
        k.e.env[name + "#n"] = size


def _array(k: Kernel, s: Stmt) -> None:
    from poplar_py.codegen.emit import Array

    assert s.ty is not None
    name, size = str(s.attr[0]), int(s.attr[1])
    array = k.arrays.get(name)
    if array is None:
        array = Array(name, s.ty, size, name in k.in_registers)
        k.arrays[name] = array
        if not array.registers:
            array.pointer = k.e.name("array")
            kind = f"[{size} x {memory_type(s.ty)}]"
            k.e.allocas.append(f"  {array.pointer} = alloca {kind}, align {array.align}")
    if array.registers:
        for n in range(size):
            k.e.env[f"{name}#{n}"] = const_text(0, s.ty)
            k.e.types[f"{name}#{n}"] = llvm_type(s.ty)
        return
    k.e.declares.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
    nbytes = size * s.ty.nbytes
    args = f"ptr align {array.align} {array.pointer}, i8 0, i64 {nbytes}, i1 false"
    k.e.line(f"call void @llvm.memset.p0.i64({args})")


def _astore(k: Kernel, s: Stmt) -> None:
    array = k.arrays[str(s.attr[0])]
    value = emit_expr(k, s.args[1])
    if array.registers:
        k.e.env[f"{array.name}#{int(s.args[0].attr[0])}"] = value
        return
    pointer = k.array_address(array, s.args[0], s.args[1].ty.lanes)
    stored = to_memory(k, value, s.args[1].ty)
    k.e.line(f"store {memory_type(s.args[1].ty)} {stored}, ptr {pointer}, align {array.align}")


def _store(k: Kernel, s: Stmt) -> None:
    ref, index, value = s.args[:3]
    ty = value.ty
    stored = to_memory(k, emit_expr(k, value), ty)
    if len(s.args) > 3:
        _masked_store(k, s, stored)
        return
    pointer = address(k, ref, index, ty.lanes)
    k.e.line(f"store {memory_type(ty)} {stored}, ptr {pointer}, align {ty.dtype.size}")


def _masked_store(k: Kernel, s: Stmt, stored: str) -> None:
    ref, index, value, count_expr = s.args
    ty = value.ty
    count = clamped_count(k, count_expr, ty.lanes)
    pointer = address(k, ref, index, count)
    vector, mask_type = memory_type(ty), f"<{ty.lanes} x i1>"
    mask = lane_mask(k, _unfolded(k, count, ty), ty.lanes)
    name = f"llvm.masked.store.{mangle(vector)}.p0"
    k.e.declares.add(f"declare void @{name}({vector}, ptr, {mask_type})")
    args = f"{vector} {stored}, ptr align {ty.dtype.size} {pointer}, {mask_type} {mask}"
    k.e.line(f"call void @{name}({args})")


def _unfolded(k: Kernel, count: str, ty: Ty) -> str:
    """A count of lanes that LLVM cannot know, for integers that may have been wider.

    Narrowed lanes under a mask of one known lane are stored in their full width by LLVM 22 with
    AVX-512, over what lies behind them.
    """
    if not ty.dtype.is_integer or ty.dtype.size == 8:
        return count
    return k.e.op(f'call i64 asm "", "=r,0"(i64 {count})')


def _setstate(k: Kernel, s: Stmt) -> None:
    value, ty = emit_expr(k, s.args[0]), s.args[0].ty
    stored = to_memory(k, value, ty)
    pointer = k.field_pointer(str(s.attr[0]))
    k.e.line(f"store {memory_type(ty)} {stored}, ptr {pointer}, align {ty.dtype.size}")


def _prefetch(k: Kernel, s: Stmt) -> None:
    level = 3 - (len(s.args) == 3)  # what a later vertex reads goes to the second cache
    if len(s.args) == 3:
        pointer = _later_address(k, s)
    else:  # the run must be one of its list; where in memory the hint points to does not matter
        start, _ = reference(k, s.args[0])
        position = whole_index(k, s.args[1])
        element = memory_type(s.args[0].ty)
        pointer = k.e.op(f"getelementptr {element}, ptr {start}, i64 {position}")
    k.e.declares.add("declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
    k.e.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {level}, i32 1)")


def _later_address(k: Kernel, s: Stmt) -> str:
    """Element `index` of that field of the vertex `distance` rows on (of this one near the end).

    Rows may differ in length: what is read then may be no address, which a prefetch can bear;
    staying twice the distance away from the end keeps the read inside the table.
    """
    ref, index, distance = s.args
    slot = k.slots[str(ref.attr[0])]
    ahead = whole_index(k, distance)
    twice = k.e.op(f"shl i64 {ahead}, 1")
    inside = k.e.op(f"icmp slt i64 {twice}, {k.e.env['#k']}")
    rows = k.e.op(f"select i1 {inside}, i64 {ahead}, i64 0")
    words = k.word_at(0) if k.layout.variable else str(k.layout.fixed)
    skip = k.e.op(f"mul i64 {rows}, {words}")
    bits = k.word * 8
    row = k.e.op(f"getelementptr i{bits}, ptr {k.row}, i64 {skip}")
    place = k.e.op(f"getelementptr i{bits}, ptr {row}, i64 {slot.word}")
    offset = k.e.op(f"load i{bits}, ptr {place}, align {k.word}")
    offset = offset if bits == 64 else k.e.op(f"zext i32 {offset} to i64")
    start = k.e.op(f"getelementptr i8, ptr %base, i64 {offset}")
    position = whole_index(k, index)
    return k.e.op(f"getelementptr {memory_type(ref.ty)}, ptr {start}, i64 {position}")


def _abort(k: Kernel, s: Stmt) -> None:
    k.fail_if(emit_expr(k, s.args[0]), 6, -1, "0", "0")


# ---------------------------------------------------------------- control flow


def _if(k: Kernel, s: Stmt) -> None:
    e = k.e
    cond = emit_expr(k, s.args[0])
    then, orelse, end = (e.block_name(p) for p in ("then", "else", "fi"))
    before = dict(e.env)
    pre = e.label
    e.branch(cond, then, orelse if s.orelse else end)
    edges: list[tuple[str, dict[str, str]]] = [] if s.orelse else [(pre, before)]
    for label, body in ((then, s.body), (orelse, s.orelse)):
        if label == orelse and not s.orelse:
            continue
        e.start(label)
        e.env = dict(before)
        e.scoped(lambda body=body: emit_body(k, body))
        if not e.dead:
            edges.append(e.edge())
            e.jump(end)
    e.merge(end, edges)


def _for(k: Kernel, s: Stmt) -> None:
    e = k.e
    name, step = str(s.attr[0]), int(s.attr[1])
    start, stop = whole_index(k, s.args[0]), whole_index(k, s.args[1])
    test = "slt" if step > 0 else "sgt"
    exits: list[tuple[str, dict[str, str]]] = []
    if start.startswith("%") or stop.startswith("%"):
        some, body = e.op(f"icmp {test} i64 {start}, {stop}"), e.block_name("enter")
        exits.append(e.edge())
        done = e.block_name("after")
        e.branch(some, body, done)
        e.start(body)
    elif not (int(start) < int(stop) if step > 0 else int(start) > int(stop)):
        return
    else:
        done = e.block_name("after")
    k.counters.add(name)
    e.env[name], e.types[name] = start, "i64"
    mask_poll = k.checked and _polls(start, stop)

    def latch() -> str:
        if mask_poll:
            _poll_sometimes(k, e.env[name])
        e.env[name] = e.raw(f"add nsw i64 {e.env[name]}, {step}")
        return e.raw(f"icmp {test} i64 {e.env[name]}, {stop}")

    keys = assigned_keys(k, s.body) | {name}
    target = e.loop(keys, lambda _t: emit_body(k, s.body), latch, "for")
    k.wants_loop_passes |= not k.checked and _vectorisable(s.body)
    e.merge(target.label, target.edges)
    if not e.dead:
        exits.append(e.edge())
        e.jump(done)
    e.merge(done, exits)
    e.env.pop(name, None)


_LOOPS = frozenset({"for", "while", "loop", "break", "return", "leave", "setstate", "abort"})


def _vectorisable(body: list[Stmt]) -> bool:
    """Whether LLVM may vectorise a loop: innermost, one way through, scalar, with stores."""
    stores = False
    for stmt in walk_stmts(body):
        stores |= stmt.op == "store"
        if stmt.op in _LOOPS or any(x.ty.lanes > 1 for a in stmt.args for x in walk_expr(a)):
            return False
    return stores


def _polls(start: str, stop: str) -> bool:
    if start.startswith("%") or stop.startswith("%"):
        return True
    return abs(int(stop) - int(start)) > 64


def _poll_sometimes(k: Kernel, counter: str) -> None:
    e = k.e
    low = e.raw(f"and i64 {counter}, {_POLL_EVERY - 1}")
    now = e.raw(f"icmp eq i64 {low}, 0")
    poll, rest = e.block_name("poll"), e.block_name("on")
    e.branch(now, poll, rest, cold="yes")
    e.start(poll)
    k.poll_stop()
    e.jump(rest)
    e.start(rest)


def _while(k: Kernel, s: Stmt) -> None:
    """Tested before the first round and after each one."""
    e = k.e
    cond = emit_expr(k, s.args[0])
    body, done = e.block_name("enter"), e.block_name("after")
    exits = [e.edge()]
    e.branch(cond, body, done)
    e.start(body)
    target = e.loop(
        assigned_keys(k, s.body),
        lambda _t: emit_body(k, s.body),
        lambda: _while_latch(k, s.args[0]),
        "while",
    )
    e.merge(target.label, target.edges)
    if not e.dead:
        exits.append(e.edge())
        e.jump(done)
    e.merge(done, exits)


def _while_latch(k: Kernel, cond: Expr) -> str:
    if k.checked:
        k.poll_stop()
    result: list[str] = []
    held, k.e.memo = k.e.memo, [{}]
    result.append(emit_expr(k, cond))
    k.e.memo = held
    return result[0]


def _loop(k: Kernel, s: Stmt) -> None:
    def latch() -> str:
        if k.checked:
            k.poll_stop()
        return "true"

    keys = assigned_keys(k, s.body)
    target = k.e.loop(keys, lambda _t: emit_body(k, s.body), latch, "loop")
    k.e.merge(target.label, target.edges)


def _block(k: Kernel, s: Stmt) -> None:
    e = k.e
    target = Target(e.block_name("out"), str(s.attr[0]))
    e.targets.append(target)
    e.scoped(lambda: emit_body(k, s.body))
    e.targets.pop()
    if not e.dead:
        target.edges.append(e.edge())
        e.jump(target.label)
    e.merge(target.label, target.edges)


def _leave(k: Kernel, s: Stmt) -> None:
    _go(k, next(t for t in reversed(k.e.targets) if t.name == s.attr[0]))


def _go(k: Kernel, target: Target) -> None:
    target.edges.append(k.e.edge())
    k.e.jump(target.label)


def _break(k: Kernel, _s: Stmt) -> None:
    _go(k, next(t for t in reversed(k.e.targets) if t.loop))


def _continue(k: Kernel, _s: Stmt) -> None:
    target = next(t for t in reversed(k.e.targets) if t.loop)
    target.continues.append(k.e.edge())
    k.e.jump(target.label.removesuffix("x") + "l")


def _return(k: Kernel, s: Stmt) -> None:
    e = k.e
    if s.args and not (s.args[0].op == "const" and s.args[0].attr[0]):
        value = emit_expr(k, s.args[0])
        bit = e.op(f"zext i1 {value} to i32")
        e.env["#ret"] = e.op(f"and i32 {e.env['#ret']}, {bit}")
    _go(k, next(t for t in reversed(e.targets) if t.name == "#return"))


_HANDLERS: dict[str, Callable[[Kernel, Stmt], None]] = {
    "assign": _assign,
    "array": _array,
    "astore": _astore,
    "store": _store,
    "setstate": _setstate,
    "prefetch": _prefetch,
    "abort": _abort,
    "if": _if,
    "for": _for,
    "while": _while,
    "loop": _loop,
    "block": _block,
    "leave": _leave,
    "break": _break,
    "continue": _continue,
    "return": _return,
}
