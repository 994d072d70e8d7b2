"""A class template and its parameters to codelet IR."""

from __future__ import annotations

import ast
from dataclasses import replace

from poplar_py.codelets import (
    lower_calls,
    lower_flow,
    lower_loops,
    lower_match,
    lower_names,
    lower_ops,
)
from poplar_py.codelets.arrays import MAX_ARRAY_BYTES, register_arrays
from poplar_py.codelets.class_fields import class_fields
from poplar_py.codelets.codelet_ir import CodeletIR, Expr, Field, Ty, walk_stmts
from poplar_py.codelets.depth import deep
from poplar_py.codelets.errors import CodeletError, InstanceError
from poplar_py.codelets.lower_stmt import lower_body
from poplar_py.codelets.lowering import Lowering, SelfRef, Value
from poplar_py.codelets.source import ClassTemplate, EnumType, EnumValue, Param, type_named
from poplar_py.types import DType, u32

__all__ = ["bind_parameters", "instance_name", "instantiate"]

_TABLES = (
    lower_calls,
    lower_flow,
    lower_loops,
    lower_match,
    lower_names,
    lower_ops,
)  # they fill the tables of handlers


def bind_parameters(template: ClassTemplate, args: tuple[str, ...]) -> dict[str, Value]:
    """Parameter values from the texts between < and >. Raises InstanceError."""
    if len(args) != len(template.params):
        wants = ", ".join(p.name for p in template.params) or "none"
        raise InstanceError(
            f"{template.full_name} has {len(template.params)} parameters, found {len(args)}",
            template.loc,
            f"parameters: {wants}",
        )
    return {p.name: _bind(template, p, a) for p, a in zip(template.params, args, strict=True)}


def _bind(template: ClassTemplate, param: Param, text: str) -> Value:
    if param.kind == "type":
        dtype = type_named(text)
        if dtype is None or (param.choices and dtype not in param.choices):
            names = ", ".join(t.name for t in param.choices) or "any element type"
            raise InstanceError(
                f"{template.full_name}: {param.name} cannot be {text!r}", template.loc, names
            )
        return dtype
    if param.kind == "bool":
        if text not in ("true", "false", "True", "False", "0", "1"):
            raise InstanceError(f"{param.name} must be true or false, not {text!r}", template.loc)
        return text in ("true", "True", "1")
    if param.enum is not None:
        return _bind_enum(template, param.name, param.enum, text)
    try:
        return int(text)
    except ValueError:
        raise InstanceError(f"{param.name} must be an int, not {text!r}", template.loc) from None


def _bind_enum(template: ClassTemplate, name: str, enum: EnumType, text: str) -> EnumValue:
    found = enum.find(text)
    if found is None:
        members = ", ".join(enum.members) or "none"
        raise InstanceError(
            f"{template.full_name}: {name} cannot be {text!r}",
            template.loc,
            f"members of {enum.full_name}: {members}",
        )
    return found


def instance_name(template: ClassTemplate, bindings: dict[str, Value]) -> str:
    """The name as Poplar writes it: `popops::ScaledAdd<half>`."""
    parts: list[str] = []
    for param in template.params:
        value = bindings[param.name]
        if isinstance(value, DType):
            parts.append(value.poplar)
        elif isinstance(value, EnumValue):
            parts.append(f"{value.enum}::{value.member}")
        else:
            parts.append(str(value).lower() if isinstance(value, bool) else str(value))
    return template.full_name + (f"<{','.join(parts)}>" if parts else "")


@deep
def instantiate(template: ClassTemplate, bindings: dict[str, Value]) -> CodeletIR:
    """Codelet IR of one instance. Raises CodeletError and TypeMismatch at the user's line."""
    probe = Lowering(template, bindings, ())
    fields = class_fields(probe)
    low = Lowering(template, bindings, fields)
    low.class_constants = probe.class_constants
    compute = template.methods["compute"]
    worker = _bind_compute(low, compute)
    try:
        ends = lower_body(low, compute.body)
    except RecursionError:
        raise CodeletError("the codelet is nested too deeply", template.loc) from None
    if low.value_returned and not ends:
        message = f"compute of {template.name} returns a value on some paths only"
        raise low.fail(compute, message, "end it with return True")
    low.out = [*low.table_stores, *low.out]
    _check_arrays(low)
    fields = tuple(_with_mutability(f, low.assigned_state) for f in low.fields.values())
    return CodeletIR(
        instance_name(template, bindings),
        template.multi,
        fields,
        low.out,
        worker,
        template.module.file,
        template.node.lineno,
        template.kind == "supervisor",
    )


def _check_arrays(low: Lowering) -> None:
    """Arrays that need memory must fit a worker's scratch."""
    kept = register_arrays(low.out)
    total = 0
    for stmt in walk_stmts(low.out):
        if stmt.op != "array" or str(stmt.attr[0]) in kept or stmt.ty is None:
            continue
        total += int(stmt.attr[1]) * stmt.ty.nbytes
        if total > MAX_ARRAY_BYTES:
            raise CodeletError(
                f"local arrays of {total} bytes: {MAX_ARRAY_BYTES} are possible",
                low.arrays.get(str(stmt.attr[0]), low.template.loc),
                "use an InOut field as scratch, or compile-time indices",
            )


def _with_mutability(f: Field, assigned: set[str]) -> Field:
    if f.kind == "state":
        return replace(f, mutable=f.name in assigned)
    return replace(f, mutable=f.kind != "in")


def _bind_compute(low: Lowering, compute: ast.FunctionDef) -> str:
    args = [a.arg for a in compute.args.args]
    want = 2 if low.template.multi else 1
    if len(args) != want:
        wants = "(self, worker_id)" if low.template.multi else "(self)"
        raise low.fail(compute, f"compute of {low.template.name} must be compute{wants}")
    if not _returns_bool(compute.returns):
        message = f"compute of {low.template.name} gives a bool, or nothing"
        raise low.fail(compute.returns or compute, message, "results go to an Output")
    low.frame.names[args[0]] = SelfRef()
    if not low.template.multi:
        return ""
    name = low.fresh(args[1])
    low.frame.names[args[1]] = build_local(name)
    return name


def _returns_bool(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("bool", "bool_")
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def build_local(name: str) -> Expr:
    return Expr("local", Ty(u32), (), (name,))
