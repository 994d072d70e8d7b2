"""Reads the programs of tile-level ``.pir`` (see ``program_text``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from poplar_py.diagnostics import ParseError, PoplarPyError, UnknownName
from poplar_py.poplar import program as prog
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.tile_tokens import MAX_DEPTH

if TYPE_CHECKING:
    from poplar_py.poplar.tile_reader import Reader


class ProgramReader:
    """Reads blocks of steps; names, functions and compute sets come from the module's reader."""

    def __init__(self, reader: Reader) -> None:
        self.r = reader
        self.t = reader.t
        self.steps: dict[str, Callable[[], prog.Program]] = {
            "sequence": lambda: self.block(),
            "execute": self.execute,
            "copy": self.copy,
            "repeat": lambda: prog.Repeat(self.t.integer(0), self.block()),
            "loop": lambda: prog.Loop(self.block()),
            "block": lambda: prog.Block(self.block()),
            "while_true": lambda: self.loop(prog.RepeatWhileTrue),
            "while_false": lambda: self.loop(prog.RepeatWhileFalse),
            "if": self.branch,
            "switch": self.switch,
            "call": lambda: prog.Call(self.r.call_target(self.t.integer(0, 1 << 30))),
            "call_host": self.call_host,
            "print": self.print,
            "write_undef": lambda: prog.WriteUndef(self.r.tensor()),
            "assume_equal": lambda: prog.AssumeEqualAcrossReplicas(self.r.tensor()),
            "cross_replica_copy": self.cross_replica_copy,
            "sync": lambda: prog.Sync(self.t.of_kind("word", "a kind of sync")),
            "error": self.error,
            "abort": lambda: prog.Abort(self.t.string()),
            "abort_if": lambda: prog.AbortOnCondition(self.r.tensor(), self.t.string()),
            "cycle_stamp": lambda: self.cycles(False),
            "cycle_count": lambda: self.cycles(True),
        }

    def block(self) -> prog.Sequence:
        """``{ steps }`` as a Sequence."""
        t = self.t
        t.want("{")
        t.depth += 1
        if t.depth > MAX_DEPTH:
            t.fail(f"programs nested more than {MAX_DEPTH} deep")
        out = prog.Sequence()
        while not t.take("}"):
            out.steps.append(self.step())
        t.depth -= 1
        return out

    def step(self) -> prog.Program:
        t = self.t
        where = t.here()
        word = t.of_kind("word", "a program step")
        reader = self.steps.get(word)
        if reader is None:
            raise ParseError(f"unknown step {word!r}", where, f"one of {', '.join(self.steps)}")
        try:
            out = reader()
        except PoplarPyError as error:
            raise t.located(error, where) from None
        out.name = t.string() if t.take("name") else ""
        out.loc = t.location()
        return out

    # ------------------------------------------------------------------ one step each
    def execute(self) -> prog.Program:
        where = self.t.here()
        compute_set = self.r.set_of(self.t.symbol(), where)
        return prog.Execute(compute_set, self.r.tensor() if self.t.take("->") else None)

    def copy(self) -> prog.Program:
        src = self.end()
        self.t.want("->")
        dst = self.end()
        return prog.Copy(src, dst, self.r.tensor() if self.t.take("row") else None)

    def end(self) -> prog.Endpoint:
        t, graph = self.t, self.r.graph
        tables: dict[str, dict[str, Any]] = {
            "stream": graph.streams,
            "remote": graph.remote_buffers,
        }
        word = next((w for w in tables if t.take(w)), None)
        if word is None:
            return self.r.tensor()
        where = t.here()
        found = tables[word].get(t.string())
        if found is None:
            raise UnknownName(f"no such {word} handle", where)
        return found

    def loop(self, kind: type[prog.RepeatWhileTrue] | type[prog.RepeatWhileFalse]) -> prog.Program:
        predicate = self.r.tensor()
        condition = self.block()
        self.t.want("do")
        return kind(condition, predicate, self.block())

    def branch(self) -> prog.Program:
        predicate = self.r.tensor()
        if_true = self.block()
        self.t.want("else")
        return prog.If(predicate, if_true, self.block())

    def switch(self) -> prog.Program:
        closed = self.t.take("unreachable_default")
        out = prog.Switch(self.r.tensor())
        out.unreachable_default = closed
        while self.t.take("case"):
            value = self.t.integer()
            out.add(value, self.block())
        self.t.want("default")
        out.default = self.block()
        return out

    def call_host(self) -> prog.Program:
        where = self.t.here()
        function = self.r.graph.host_functions.get(self.t.string())
        if function is None:
            raise UnknownName("no such host function", where)
        inputs = self.tensors()
        self.t.want("->")
        return prog.Call(function, inputs, self.tensors())

    def tensors(self) -> list[Tensor]:
        self.t.want("(")
        out: list[Tensor] = []
        while not self.t.take(")"):
            out.append(self.r.tensor())
            self.t.take(",")
        return out

    def print(self) -> prog.Program:
        title = self.t.string()
        tensor = self.r.tensor()
        if not self.t.take("format"):
            return prog.PrintTensor(title, tensor)
        self.t.want("[")
        numbers = [self.t.integer(0) for _ in range(4)]
        texts = [self.t.string() for _ in range(4)]
        self.t.want("]")
        fmt = prog.PrintTensorFmt(
            numbers[0], numbers[1], numbers[2], numbers[3], texts[0], texts[1], texts[2], texts[3]
        )
        return prog.PrintTensor(title, tensor, fmt)

    def cross_replica_copy(self) -> prog.Program:
        src = self.r.tensor()
        self.t.want("->")
        dst = self.r.tensor()
        self.t.want("[")
        pairs: dict[int, int] = {}
        while not self.t.take("]"):
            key = self.t.integer(0)
            self.t.want(":")
            pairs[key] = self.t.integer(0)
            self.t.take(",")
        return prog.CrossReplicaCopy(src, dst, pairs)

    def error(self) -> prog.Program:
        message = self.t.string()
        more = self.t.kind in ("var", "type")
        return prog.ErrorProgram(message, self.r.tensor() if more else None)

    def cycles(self, counted: bool) -> prog.Program:
        tensor = self.r.tensor()
        self.t.want("tile")
        tile = self.t.integer(0, self.r.graph.target.num_tiles - 1)
        return prog.CycleCount(self.block() if counted else None, tensor, tile)
