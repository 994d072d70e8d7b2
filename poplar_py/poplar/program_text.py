"""Programs as text: one line a step, blocks in braces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import quote_name
from poplar_py.poplar import program as prog
from poplar_py.poplar.streams import DataStream, Function, RemoteBuffer

if TYPE_CHECKING:
    from poplar_py.poplar.tile_print import TilePrinter


def program_lines(p: TilePrinter, program: prog.Program, indent: str) -> list[str]:
    """Lines of a block that holds a program; an unnamed Sequence is the block itself."""
    out: list[str] = []
    for step in _contents(program):
        out += _step(p, step, indent)
    return out


def _contents(program: prog.Program) -> list[prog.Program]:
    if isinstance(program, prog.Sequence) and not program.name:
        return program.steps
    return [program]


def _step(p: TilePrinter, step: prog.Program, indent: str) -> list[str]:
    tail = (f" name {quote_name(step.name)}" if step.name else "") + p.loc(step.loc)
    blocks = _blocks(step)
    head = indent + _head(p, step)
    if not blocks:
        return [head + tail]
    lines: list[str] = []
    for word, body in blocks:
        before = f"{indent}}}" if lines else head
        lines.append(f"{before} {word} {{" if word else f"{before} {{")
        for inner in body:
            lines += _step(p, inner, indent + "  ")
    return [*lines, indent + "}" + tail]


def _blocks(step: prog.Program) -> list[tuple[str, list[prog.Program]]]:
    """Word before each block, and its steps."""
    if isinstance(step, prog.Sequence):
        return [("", step.steps)]
    if isinstance(step, (prog.Repeat, prog.Loop, prog.Block)):
        return [("", _contents(step.body))]
    if isinstance(step, (prog.RepeatWhileTrue, prog.RepeatWhileFalse)):
        return [("", _contents(step.condition)), ("do", _contents(step.body))]
    if isinstance(step, prog.If):
        return [("", _contents(step.if_true)), ("else", _contents(step.if_false))]
    if isinstance(step, prog.Switch):
        cases = [(f"case {v}", _contents(body)) for v, body in step.cases]
        return [*cases, ("default", _contents(step.default))]
    if isinstance(step, prog.CycleCount) and step.body is not None:
        return [("", _contents(step.body))]
    return []


def _head(p: TilePrinter, step: prog.Program) -> str:
    """The words of a step before its block, name and location."""
    if isinstance(step, prog.Sequence):
        return "sequence"
    if isinstance(step, prog.Execute):
        to = "" if step.predicate is None else f" -> {p.tensor(step.predicate)}"
        return f"execute @{p.sets[step.compute_set.id]}{to}"
    if isinstance(step, prog.Copy):
        row = "" if step.offset is None else f" row {p.tensor(step.offset)}"
        return f"copy {_end(p, step.src)} -> {_end(p, step.dst)}{row}"
    if isinstance(step, prog.Repeat):
        return f"repeat {step.times}"
    if isinstance(step, prog.Loop):
        return "loop"
    if isinstance(step, prog.Block):
        return "block"
    if isinstance(step, prog.RepeatWhileTrue):
        return f"while_true {p.tensor(step.predicate)}"
    if isinstance(step, prog.RepeatWhileFalse):
        return f"while_false {p.tensor(step.predicate)}"
    if isinstance(step, prog.If):
        return f"if {p.tensor(step.predicate)}"
    if isinstance(step, prog.Switch):
        closed = " unreachable_default" if step.unreachable_default else ""
        return f"switch{closed} {p.tensor(step.control)}"
    if isinstance(step, prog.Call):
        return _call(p, step)
    return _leaf(p, step)


def _end(p: TilePrinter, end: prog.Endpoint) -> str:
    if isinstance(end, DataStream):
        return f"stream {quote_name(end.handle)}"
    if isinstance(end, RemoteBuffer):
        return f"remote {quote_name(end.handle)}"
    return p.tensor(end)


def _call(p: TilePrinter, step: prog.Call) -> str:
    if isinstance(step.function, Function):
        return f"call {step.function.id}"
    ins = ", ".join([p.tensor(t) for t in step.inputs])
    outs = ", ".join([p.tensor(t) for t in step.outputs])
    return f"call_host {quote_name(step.function.handle)} ({ins}) -> ({outs})"


def _leaf(p: TilePrinter, step: prog.Program) -> str:
    if isinstance(step, prog.PrintTensor):
        text = f"print {quote_name(step.title)} {p.tensor(step.tensor)}"
        return text if step.fmt is None else f"{text} format {_format(step.fmt)}"
    if isinstance(step, prog.WriteUndef):
        return f"write_undef {p.tensor(step.tensor)}"
    if isinstance(step, prog.AssumeEqualAcrossReplicas):
        return f"assume_equal {p.tensor(step.tensor)}"
    if isinstance(step, prog.CrossReplicaCopy):
        pairs = ", ".join([f"{a}: {b}" for a, b in sorted(step.replica_map.items())])
        return f"cross_replica_copy {p.tensor(step.src)} -> {p.tensor(step.dst)} [{pairs}]"
    if isinstance(step, prog.Sync):
        return f"sync {step.kind}"
    if isinstance(step, prog.ErrorProgram):
        tensor = "" if step.tensor is None else f" {p.tensor(step.tensor)}"
        return f"error {quote_name(step.message)}{tensor}"
    if isinstance(step, prog.Abort):
        return f"abort {quote_name(step.message)}"
    if isinstance(step, prog.AbortOnCondition):
        return f"abort_if {p.tensor(step.predicate)} {quote_name(step.message)}"
    if isinstance(step, prog.CycleCount):
        word = "cycle_stamp" if step.body is None else "cycle_count"
        return f"{word} {p.tensor(step.tensor)} tile {step.tile}"
    raise TypeError(type(step).__name__)


def _format(fmt: prog.PrintTensorFmt) -> str:
    numbers = f"{fmt.threshold} {fmt.edge_items} {fmt.max_line_width} {fmt.precision}"
    texts = (fmt.float_format, fmt.separator, fmt.open_bracket, fmt.close_bracket)
    return f"[{numbers} {' '.join([quote_name(t) for t in texts])}]"
