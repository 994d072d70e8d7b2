"""Lowered codelets as bytes, for the cache: facts first, the IR only decoded when it is wanted."""

from __future__ import annotations

import marshal
from dataclasses import astuple
from functools import lru_cache
from typing import Any

from poplar_py.codelets.codelet_ir import CodeletIR, Expr, Field, Stmt, Ty
from poplar_py.codelets.cycles import IssueModel, Node
from poplar_py.codelets.depth import deep
from poplar_py.types import DTYPES

__all__ = ["Packed", "pack", "unpack"]

_VERSION = 2  # of marshal: no references, so that equal values give equal bytes


class Packed:
    """A codelet from the cache."""

    def __init__(self, header: Any, body: bytes) -> None:
        facts, fields, self.digest, model = header
        self.name, self.multi, self.file, self.line, self.worker, self.supervisor = facts
        self.fields = tuple(_field(f) for f in fields)
        self._model, self._body = model, body

    @deep
    def ir(self) -> CodeletIR:
        """The IR, decoded."""
        body = _decode_body(marshal.loads(self._body))
        ir = CodeletIR(
            self.name,
            self.multi,
            self.fields,
            body,
            self.worker,
            self.file,
            self.line,
            self.supervisor,
        )
        ir.__dict__["digest"] = self.digest
        return ir

    @deep
    def model(self) -> IssueModel:
        """The issue model, without the IR."""
        program, overhead, code, rows = self._model
        nodes = [_decode_node(n) for n in program]
        return IssueModel.restored(nodes, overhead, code, rows, self)


@deep
def pack(ir: CodeletIR, model: IssueModel) -> bytes:
    """The bytes of a lowered codelet."""
    cost = ([_encode_node(n) for n in model.program], model.overhead, model.code_bytes, model.rows)
    fields = [(*astuple(f)[:2], f.dtype.name, *astuple(f)[3:]) for f in ir.fields]
    facts = (ir.name, ir.multi, ir.file, ir.source_line, ir.worker, ir.supervisor)
    body = marshal.dumps([_encode_stmt(s) for s in ir.body], _VERSION)
    return marshal.dumps(((facts, fields, ir.digest, cost), body), _VERSION)


def unpack(data: bytes) -> Packed:
    """The inverse of `pack`."""
    header, body = marshal.loads(data)
    return Packed(header, body)


def _field(values: Any) -> Field:
    return Field(values[0], values[1], DTYPES[values[2]], *values[3:])


@lru_cache(maxsize=1024)
def _encode_ty(ty: Ty) -> tuple[Any, ...]:
    return ty.dtype.name, ty.lanes, ty.ref, ty.sized


@lru_cache(maxsize=1024)
def _decode_ty(values: tuple[Any, ...]) -> Ty:
    return Ty(DTYPES[values[0]], *values[1:])


def _encode(e: Expr) -> tuple[Any, ...]:
    return e.op, _encode_ty(e.ty), tuple(_encode(a) for a in e.args), e.attr


def _decode(v: Any) -> Expr:
    return Expr(v[0], _decode_ty(v[1]), tuple([_decode(a) for a in v[2]]), v[3])


def _encode_stmt(s: Stmt) -> tuple[Any, ...]:
    ty = None if s.ty is None else _encode_ty(s.ty)
    body, orelse = ([_encode_stmt(b) for b in part] for part in (s.body, s.orelse))
    return s.op, tuple(_encode(a) for a in s.args), s.attr, body, orelse, s.line, ty


def _decode_body(values: Any) -> list[Stmt]:
    return [
        Stmt(
            v[0],
            tuple([_decode(a) for a in v[1]]),
            v[2],
            _decode_body(v[3]) if v[3] else [],
            _decode_body(v[4]) if v[4] else [],
            v[5],
            None if v[6] is None else _decode_ty(v[6]),
        )
        for v in values
    ]


def _encode_node(n: Node) -> tuple[Any, ...]:
    exprs = tuple(_encode(e) for e in n.exprs)
    body, orelse = ([_encode_node(b) for b in part] for part in (n.body, n.orelse))
    return n.kind, n.cycles, n.name, exprs, n.step, body, orelse


def _decode_node(v: Any) -> Node:
    exprs = tuple([_decode(e) for e in v[3]])
    body, orelse = ([_decode_node(b) for b in part] for part in (v[5], v[6]))
    return Node(v[0], v[1], v[2], exprs, v[4], body, orelse)
