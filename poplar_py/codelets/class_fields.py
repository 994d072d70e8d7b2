"""The body of a vertex class: edges, state and class constants.

An edge or a state vector has a layout, and may have a least alignment and say that it wants
interleaved memory. `VectorList` is Poplar's compact form of a list of rows.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Literal

from poplar_py.codelets.codelet_ir import Expr, Field
from poplar_py.codelets.language_names import LAYOUTS, LIST_LAYOUTS
from poplar_py.codelets.lower_expr import as_type, lower_expr
from poplar_py.codelets.lowering import Lowering, compile_time
from poplar_py.codelets.source import EnumType, is_text
from poplar_py.types import DType, i32

__all__ = ["class_fields"]

_EDGE_KINDS: dict[str, Literal["in", "out", "inout"]] = {
    "Input": "in",
    "Output": "out",
    "InOut": "inout",
}
_POINTER_LAYOUTS = frozenset(LAYOUTS.values()) - {"span", "short_span"}
_CONSTRAINED = re.compile(r"elem\(\s*\*{1,2}\s*(\w+)[^)]*\)")
_MOST_ALIGNED = 64


def class_fields(low: Lowering) -> tuple[Field, ...]:
    """The fields of the class in order; class constants go into the scope of `low`.

    Raises CodeletError at what is neither.
    """
    fields: list[Field] = []
    for item in low.template.node.body:
        made = _item(low, item)
        if made is None:
            continue
        if any(f.name == made.name for f in fields):
            raise low.fail(item, f"the field {made.name} is declared twice")
        fields.append(made)
    _check_constraints(low, {f.name for f in fields})
    return tuple(fields)


def _item(low: Lowering, item: ast.stmt) -> Field | None:
    """A field; None for constants, methods and the docstring."""
    if isinstance(item, (ast.FunctionDef, ast.Pass)) or is_text(item):
        return None
    if isinstance(item, ast.Assign):
        _class_constant(low, item.targets, item.value, item)
        return None
    if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
        raise low.fail(item, "a vertex class holds fields, constants and methods")
    if item.value is None:
        return _field(low, item.target.id, item.annotation)
    if not _is_constant_annotation(item.annotation):
        raise low.fail(
            item,
            f"the field {item.target.id} has a value",
            "set state with the vertex; write NAME = value for a class constant",
        )
    _class_constant(low, [item.target], item.value, item)
    return None


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


def _check_constraints(low: Lowering, names: set[str]) -> None:
    """`@constraint` names fields that exist."""
    for node in low.template.constraints:
        wanted = _CONSTRAINED.findall(str(node.value))
        unknown = next((n for n in wanted if n not in names), None)
        if len(wanted) < 2 or unknown is not None:
            what = f"no field {unknown}" if unknown else "it names no two fields"
            raise low.fail(node, f"the constraint: {what}", "elem(*a) != elem(*b)")


def _field(low: Lowering, name: str, node: ast.expr) -> Field:
    head, args = _subscript(node)
    if head in _EDGE_KINDS:
        return _edge(low, name, _EDGE_KINDS[head], args, node)
    if head == "VectorList":
        raise low.fail(
            node, "a VectorList is an edge", "write Input[VectorList[T, DELTANELEMENTS]]"
        )
    if head != "Vector":
        return Field(name, "state", _element(low, node), 0)
    inner, inner_args = _subscript(args[0])
    if inner in _EDGE_KINDS:
        return _list_of_edges(low, name, node, _EDGE_KINDS[inner], inner_args)
    layout, align = _layout(low, args[1:], node, LAYOUTS)
    one = layout in _POINTER_LAYOUTS
    dtype = _element(low, args[0])
    return Field(name, "state", dtype, 1, one_ptr=one, align=align, layout=layout)


def _list_of_edges(
    low: Lowering,
    name: str,
    node: ast.expr,
    kind: Literal["in", "out", "inout"],
    inner_args: list[ast.expr],
) -> Field:
    """`Vector[Input[Vector[T]], layout]`."""
    _, args = _subscript(node)
    edge = _edge(low, name, kind, inner_args, args[0])
    if edge.rank != 1:
        raise low.fail(node, "a list of edges holds Vectors: Vector[Input[Vector[T]]]")
    outer, _ = _layout(low, args[1:], node, LAYOUTS)
    return replace(
        edge,
        rank=2,
        one_ptr=False,
        inner_one_ptr=edge.one_ptr,
        layout=outer,
        inner_layout=edge.layout,
    )


def _edge(
    low: Lowering,
    name: str,
    kind: Literal["in", "out", "inout"],
    args: list[ast.expr],
    node: ast.expr,
) -> Field:
    if len(args) != 1:
        raise low.fail(node, "an edge has one type: Input[T] or Input[Vector[T]]")
    head, inner = _subscript(args[0])
    if head == "VectorList":
        return _vector_list(low, name, kind, inner, node)
    if head != "Vector":
        return Field(name, kind, _element(low, args[0]), 0)
    layout, align = _layout(low, inner[1:], node, LAYOUTS)
    one = layout in _POINTER_LAYOUTS
    return Field(name, kind, _element(low, inner[0]), 1, one_ptr=one, align=align, layout=layout)


def _vector_list(
    low: Lowering,
    name: str,
    kind: Literal["in", "out", "inout"],
    inner: list[ast.expr],
    node: ast.expr,
) -> Field:
    """`Input[VectorList[T, DELTANELEMENTS, align]]`: rows with lengths behind one base pointer."""
    layout, align = _layout(low, inner[1:], node, LIST_LAYOUTS)
    if layout == "span":
        layout = "deltanelements"
    dtype = _element(low, inner[0])
    return Field(name, kind, dtype, 2, align=align, layout=layout, inner_layout="delta_row")


def _subscript(node: ast.expr) -> tuple[str, list[ast.expr]]:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return "", []
    inner = node.slice
    return node.value.id, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


def _layout(
    low: Lowering, args: list[ast.expr], node: ast.expr, layouts: dict[str, str]
) -> tuple[str, int]:
    """Layout and alignment from what follows the element type; the flag is for interleaving."""
    layout, align = "span", 0
    for arg in args:
        value = lower_expr(low, arg)
        if isinstance(value, str) and value in layouts.values():
            layout = value
        elif isinstance(value, str):
            raise low.fail(arg, f"no layout here: {value}", "layouts: " + ", ".join(layouts))
        elif isinstance(value, bool):
            continue
        elif isinstance(value, int) and 0 < value <= _MOST_ALIGNED and not value & (value - 1):
            align = value
        else:
            raise low.fail(
                arg,
                "after the element type come a layout and an alignment in bytes",
                f"an alignment is a power of two, at most {_MOST_ALIGNED}",
            )
    if len(args) > 3:
        raise low.fail(node, "a Vector has an element type, a layout, an alignment, interleaved")
    return layout, align


def _element(low: Lowering, node: ast.expr) -> DType:
    if _subscript(node)[0] in (*_EDGE_KINDS, "Vector", "VectorList"):
        remedy = "a list of edges is Vector[Input[Vector[T]]]"
        raise low.fail(node, "an element type is wanted here, such as f32 or T", remedy)
    value = lower_expr(low, node)
    if isinstance(value, EnumType):
        return i32
    found = as_type(value)
    if found is None or found.lanes != 1:
        raise low.fail(node, "an element type is wanted here, such as f32 or T")
    return found.dtype
