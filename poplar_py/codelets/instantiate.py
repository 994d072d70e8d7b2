"""A class template and its parameters to codelet IR."""

from __future__ import annotations

import ast
from dataclasses import replace

from poplar_py.codelets import lower_calls, lower_flow, lower_ops
from poplar_py.codelets.arrays import MAX_ARRAY_BYTES, register_arrays
from poplar_py.codelets.codelet_ir import CodeletIR, Expr, Field, Ty, walk_stmts
from poplar_py.codelets.depth import deep
from poplar_py.codelets.errors import CodeletError
from poplar_py.codelets.language_names import LAYOUTS
from poplar_py.codelets.lower_expr import lower_expr
from poplar_py.codelets.lower_stmt import lower_body
from poplar_py.codelets.lowering import Builtin, Lowering, SelfRef, Value, compile_time
from poplar_py.codelets.source import ClassTemplate, Param, type_named
from poplar_py.types import DType, u32

__all__ = ["bind_parameters", "instance_name", "instantiate"]

_TABLES = (lower_calls, lower_flow, lower_ops)  # they fill the tables of handlers
_EDGE_KINDS = {"Input": "in", "Output": "out", "InOut": "inout"}
_POINTER_LAYOUTS = frozenset(LAYOUTS.values()) - {"span", "short_span"}


def bind_parameters(template: ClassTemplate, args: tuple[str, ...]) -> dict[str, Value]:
    """Parameter values from the texts between < and >. Raises CodeletError."""
    if len(args) != len(template.params):
        wants = ", ".join(p.name for p in template.params) or "none"
        raise CodeletError(
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
            raise CodeletError(
                f"{template.full_name}: {param.name} cannot be {text!r}", template.loc, names
            )
        return dtype
    if param.kind == "bool":
        if text not in ("true", "false", "True", "False", "0", "1"):
            raise CodeletError(f"{param.name} must be true or false, not {text!r}", template.loc)
        return text in ("true", "True", "1")
    try:
        return int(text)
    except ValueError:
        raise CodeletError(f"{param.name} must be an int, not {text!r}", template.loc) from None


def instance_name(template: ClassTemplate, bindings: dict[str, Value]) -> str:
    """The name as Poplar writes it: `popops::ScaledAdd<half>`."""
    parts: list[str] = []
    for param in template.params:
        value = bindings[param.name]
        if isinstance(value, DType):
            parts.append(value.poplar)
        else:
            parts.append(str(value).lower() if isinstance(value, bool) else str(value))
    return template.full_name + (f"<{','.join(parts)}>" if parts else "")


@deep
def instantiate(template: ClassTemplate, bindings: dict[str, Value]) -> CodeletIR:
    """Codelet IR of one instance. Raises CodeletError and TypeMismatch at the user's line."""
    probe = Lowering(template, bindings, ())
    fields = tuple(_fields(probe))
    low = Lowering(template, bindings, fields)
    low.class_constants = probe.class_constants
    compute = template.methods["compute"]
    worker = _bind_compute(low, compute)
    try:
        lower_body(low, compute.body)
    except RecursionError:
        raise CodeletError("the codelet is nested too deeply", template.loc) from None
    _check_arrays(low)
    fields = tuple(_with_mutability(f, low.assigned_state) for f in fields)
    name = instance_name(template, bindings)
    return CodeletIR(
        name, template.multi, fields, low.out, worker, template.module.file, template.node.lineno
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
    low.frame.names[args[0]] = SelfRef()
    if not low.template.multi:
        return ""
    name = low.fresh(args[1])
    low.frame.names[args[1]] = build_local(name)
    return name


def build_local(name: str) -> Expr:
    return Expr("local", Ty(u32), (), (name,))


# ---------------------------------------------------------------- fields


def _fields(low: Lowering) -> list[Field]:
    fields: list[Field] = []
    for item in low.template.node.body:
        if isinstance(item, ast.FunctionDef) or _is_doc(item) or isinstance(item, ast.Pass):
            continue
        if isinstance(item, ast.Assign):
            _class_constant(low, item.targets, item.value, item)
            continue
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            raise low.fail(item, "a vertex class holds fields, constants and methods")
        if item.value is not None:
            if not _is_constant_annotation(item.annotation):
                raise low.fail(
                    item,
                    f"the field {item.target.id} has a value",
                    "set state with the vertex; write NAME = value for a class constant",
                )
            _class_constant(low, [item.target], item.value, item)
            continue
        name = item.target.id
        if any(f.name == name for f in fields):
            raise low.fail(item, f"the field {name} is declared twice")
        fields.append(_field(low, name, item.annotation))
    return fields


def _is_doc(item: ast.stmt) -> bool:
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)


def _is_constant_annotation(node: ast.expr) -> bool:
    head = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(head, ast.Name) and head.id in ("ClassVar", "Final")


def _class_constant(
    low: Lowering, targets: list[ast.expr], value: ast.expr, item: ast.stmt
) -> None:
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        raise low.fail(item, "a class constant is one name")
    low.class_constants[targets[0].id] = value
    known = lower_expr(low, value)
    if isinstance(known, Expr) and compile_time(known) is None:
        raise low.fail(value, "a class constant must be known at compile time")
    low.frame.names[targets[0].id] = known


def _field(low: Lowering, name: str, node: ast.expr) -> Field:
    head, args = _subscript(node)
    if head in _EDGE_KINDS:
        return _edge(low, name, _EDGE_KINDS[head], args, node)
    if head == "Vector":
        inner, inner_args = _subscript(args[0])
        if inner in _EDGE_KINDS:
            edge = _edge(low, name, _EDGE_KINDS[inner], inner_args, args[0])
            if edge.rank != 1:
                raise low.fail(node, "a list of edges holds Vectors: Vector[Input[Vector[T]]]")
            outer, _ = _layout(low, args[1:], node)
            return replace(
                edge,
                rank=2,
                one_ptr=False,
                inner_one_ptr=edge.one_ptr,
                layout=outer,
                inner_layout=edge.layout,
            )
        layout, align = _layout(low, args[1:], node)
        one = layout in _POINTER_LAYOUTS
        dtype = _element(low, args[0])
        return Field(name, "state", dtype, 1, one_ptr=one, align=align, layout=layout)
    return Field(name, "state", _element(low, node), 0)


def _edge(low: Lowering, name: str, kind: str, args: list[ast.expr], node: ast.expr) -> Field:
    if len(args) != 1:
        raise low.fail(node, "an edge has one type: Input[T] or Input[Vector[T]]")
    head, inner = _subscript(args[0])
    if head != "Vector":
        return Field(name, kind, _element(low, args[0]), 0)  # type: ignore[arg-type]
    layout, align = _layout(low, inner[1:], node)
    one = layout in _POINTER_LAYOUTS
    dtype = _element(low, inner[0])
    return Field(name, kind, dtype, 1, one_ptr=one, align=align, layout=layout)  # type: ignore[arg-type]


def _subscript(node: ast.expr) -> tuple[str, list[ast.expr]]:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return "", []
    inner = node.slice
    return node.value.id, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


def _layout(low: Lowering, args: list[ast.expr], node: ast.expr) -> tuple[str, int]:
    layout, align = "span", 0
    for arg in args:
        value = lower_expr(low, arg)
        if isinstance(value, str) and value in LAYOUTS.values():
            layout = value
        elif isinstance(value, bool):
            continue
        elif isinstance(value, int) and value > 0 and not value & (value - 1):
            align = value
        else:
            raise low.fail(arg, "after the element type come a layout and an alignment in bytes")
    if len(args) > 3:
        raise low.fail(node, "a Vector has an element type, a layout, an alignment, interleaved")
    return layout, align


def _element(low: Lowering, node: ast.expr) -> DType:
    value = lower_expr(low, node)
    if isinstance(value, Ty) and value.lanes == 1:
        value = value.dtype
    if isinstance(value, Builtin) and value.name in ("int", "float"):
        raise low.fail(node, f"{value.name} is not exact here", "write i32, u32, f32 or f16")
    if not isinstance(value, DType):
        raise low.fail(node, "an element type is wanted here, such as f32 or T")
    return value
