"""Names and attributes of the vertex language: locals, parameters, fields, enums, functions."""

from __future__ import annotations

import ast
import math

from poplar_py.codelets.codelet_ir import Expr, Ty
from poplar_py.codelets.hints import name_hint
from poplar_py.codelets.language_names import (
    BUILTIN_FUNCTIONS,
    C_NAMES,
    IPU_NAMES,
    IPU_REFUSED,
    LAYOUTS,
    LIST_LAYOUTS,
    MATH_BINARY,
    MATH_UNARY,
    POPLAR_VECTORS,
    TYPE_NAMES,
    VERTEX_BASES,
    vector_named,
)
from poplar_py.codelets.lower_expr import HANDLERS, lower_expr
from poplar_py.codelets.lowering import (
    MAX_EXPR_DEPTH,
    Builtin,
    FieldRef,
    Helper,
    Local,
    Lowering,
    SelfRef,
    Value,
)
from poplar_py.codelets.source import ClassTemplate, EnumType, EnumValue

__all__: list[str] = []


def _name(low: Lowering, node: ast.Name) -> Value:
    name = node.id
    if name in low.frame.names:
        return _read_local(low.frame.names[name])
    if name in low.frame.lost:
        raise low.fail(
            node,
            f"{name} may be unassigned here: it was set in a branch or loop only",
            "assign it before the branch or loop",
        )
    if name in low.bindings:
        return low.bindings[name]
    module = low.frame.module
    if name in module.constants:
        return _module_constant(low, name)
    if name in module.functions:
        return Helper(module.functions[name], module)
    if name in module.shared:
        return Helper(module.shared[name].functions[name], module.shared[name])
    found = TYPE_NAMES.get(name) or vector_named(name)
    if found is not None:
        return found
    if name in LAYOUTS or name in LIST_LAYOUTS:
        return LAYOUTS.get(name) or LIST_LAYOUTS[name]
    if name in module.enums:
        return module.enums[name]
    if name in BUILTIN_FUNCTIONS or name in VERTEX_BASES or name == "VectorListLayout":
        return Builtin(name)
    if name in C_NAMES:
        return Builtin(C_NAMES[name])
    if name.startswith(_INTRINSIC):
        return _intrinsic(low, node, name.removeprefix(_INTRINSIC))
    raise _unknown(low, node)


_INTRINSIC = "__builtin_ipu_"


def _unknown(low: Lowering, node: ast.Name) -> Exception:
    name, module = node.id, low.frame.module
    if name in low.frame.ended_loops:
        remedy = "keep what you need in a local set before the loop"
        return low.fail(node, f"{name} is the variable of a loop that has ended", remedy)
    if name in module.params:
        remedy = f"class {low.template.name}(..., Generic[{name}])"
        return low.fail(node, f"{name} is no parameter of {low.template.name}", remedy)
    if name in low.fields:
        return low.fail(node, f"unknown name {name}", f"the field is self.{name}")
    known = {*low.frame.names, *low.bindings, *module.constants, *module.functions, *module.enums}
    known |= {*TYPE_NAMES, *LAYOUTS, *LIST_LAYOUTS, *BUILTIN_FUNCTIONS, *POPLAR_VECTORS}
    return low.fail(node, f"unknown name {name}", name_hint(name, known))


def _intrinsic(low: Lowering, node: ast.expr, name: str) -> Value:
    """`ipu.NAME` or `__builtin_ipu_NAME`."""
    if name in IPU_NAMES:
        return Builtin(IPU_NAMES[name])
    why = IPU_REFUSED.get(name, "")
    raise low.fail(node, f"the intrinsic {name} is not in the vertex language", why)


def _module_constant(low: Lowering, name: str) -> Value:
    module = low.frame.module
    key = (module.file, name)
    if key not in low.constant_values:
        if len(low.inlining) > MAX_EXPR_DEPTH:
            raise low.fail(module.constants[name], f"the constant {name} depends on itself")
        low.inlining.append(name)
        low.constant_values[key] = lower_expr(low, module.constants[name])
        low.inlining.pop()
    return low.constant_values[key]


def _read_local(binding: Local | Value) -> Value:
    if not isinstance(binding, Local):
        return binding
    if binding.known is not None:
        return binding.known
    return Expr("local", binding.ty, (), (binding.name,))


def _attribute(low: Lowering, node: ast.Attribute) -> Value:
    if isinstance(node.value, ast.Name) and node.value.id == "math":
        return _math_name(low, node)
    if isinstance(node.value, ast.Name) and node.value.id == "ipu":
        return _intrinsic(low, node, node.attr)
    owner = _class_named(low, node.value)
    if owner is not None:
        return _static(low, node, owner)
    base = lower_expr(low, node.value)
    if isinstance(base, EnumType):
        return _enum_member(low, node, base)
    if isinstance(base, Builtin) and base.name == "VectorListLayout" and node.attr in LIST_LAYOUTS:
        return LIST_LAYOUTS[node.attr]
    if isinstance(base, Builtin) and base.name in VERTEX_BASES and node.attr == "num_workers":
        return Builtin(node.attr)
    if not isinstance(base, SelfRef):
        remedy = "write len(x)" if node.attr == "size" else ""
        raise low.fail(node, "only attributes of self exist in the vertex language", remedy)
    name = node.attr
    if name in low.fields:
        f = low.fields[name]
        if f.kind == "state" and f.rank == 0:
            return Expr("state", Ty(f.dtype), (), (name,))
        return FieldRef(f)
    if name in low.class_constants:
        return lower_expr(low, low.class_constants[name])
    if name in low.template.methods:
        function = low.template.methods[name]
        return Helper(function, low.template.module, not _is_static(function))
    if name == "num_workers" and low.template.multi:
        return Builtin(name)
    raise low.fail(
        node,
        f"{low.template.name} has no field {name}",
        "fields are: " + ", ".join(low.fields),
    )


def _class_named(low: Lowering, node: ast.expr) -> ClassTemplate | None:
    """The vertex class of this file that a name stands for."""
    if not isinstance(node, ast.Name) or node.id in low.frame.names:
        return None
    return low.frame.module.classes.get(node.id)


def _static(low: Lowering, node: ast.Attribute, owner: ClassTemplate) -> Value:
    """`Class.name`: a static method, or a constant of the class itself."""
    function = owner.methods.get(node.attr)
    if function is not None and _is_static(function):
        return Helper(function, owner.module)
    if owner is low.template and node.attr in low.class_constants:
        return lower_expr(low, low.class_constants[node.attr])
    remedy = "write self.NAME for what belongs to this vertex"
    raise low.fail(node, f"{owner.name} has no static method {node.attr}", remedy)


def _is_static(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)


def _enum_member(low: Lowering, node: ast.Attribute, enum: EnumType) -> EnumValue:
    found = enum.members.get(node.attr)
    if found is None:
        names = ", ".join(enum.members)
        raise low.fail(node, f"{enum.full_name} has no member {node.attr}", f"members: {names}")
    return found


def _math_name(low: Lowering, node: ast.Attribute) -> Value:
    """`math.pi`, `math.sqrt`: the constants and functions the language has under these names."""
    constants = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}
    if node.attr in constants:
        return constants[node.attr]
    if node.attr in MATH_UNARY or node.attr in MATH_BINARY:
        return Builtin(node.attr)
    if node.attr in C_NAMES:
        return Builtin(C_NAMES[node.attr])
    remedy = name_hint(node.attr, MATH_UNARY | MATH_BINARY)
    raise low.fail(node, f"there is no math.{node.attr} in the vertex language", remedy)


HANDLERS[ast.Name] = _name
HANDLERS[ast.Attribute] = _attribute
