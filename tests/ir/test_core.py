"""Declarations, builders, verifier, rewriting, diagnostics."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import ir
from poplar_py.diagnostics import (
    ErrorList,
    InputError,
    Location,
    PoplarPyError,
    PoplarPyErrors,
    ShapeError,
    TypeMismatch,
    VerifyError,
    register_source,
)
from poplar_py.ir.rewrite import captures
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.ops.core import If
from poplar_py.types import DTYPES, TensorType, bool_, broadcast_shapes, dtype_of, f32, i32


def small() -> tuple[ir.Module, ir.Graph, ir.Value, ir.Value]:
    graph = ir.Graph("main")
    x = graph.add_input(TensorType(f32, (2, 3)), "x")
    y = ir.Builder(graph, Location("m.pml", 1, 1)).add(ew.Exp, x, name="y")
    graph.add_output(y)
    return ir.Module("m", [graph]), graph, x, y


def test_declaration() -> None:
    assert ew.Exp.opname == "math.exp"
    assert ir.REGISTRY["math.exp"] is ew.Exp
    assert [f.name for f in nn.Conv.spec.operands] == ["x", "w", "bias"]
    assert [f.name for f in nn.Conv.spec.attributes][:3] == ["strides", "pads", "dilations"]
    with pytest.raises(ValueError, match="twice"):
        ir.op("math.exp")(type("Other", (ir.Op,), {}))


def test_matching() -> None:
    _, graph, x, y = small()
    z = ir.Builder(graph).add(ew.Neg, y)
    match z.owner:
        case ew.Neg(x=ir.Value(owner=ew.Exp(x=inner))):
            assert inner is x
        case _:
            pytest.fail("no match")


def test_shape_error_has_op_and_place() -> None:
    graph = ir.Graph()
    a = graph.add_input(TensorType(f32, (2, 3)))
    register_source("w.pml", "y = a @ a\n")
    with pytest.raises(ShapeError) as caught:
        nn.MatMul(a, a, loc=Location("w.pml", 1, 7))
    text = str(caught.value)
    assert text.startswith("error[shape-error]: nn.matmul: inner sizes differ")
    assert "--> w.pml:1:7" in text
    assert "\n 1 | y = a @ a\n   |       ^" in text


def test_verifier_finds_faults() -> None:
    module, graph, x, y = small()
    ir.verify(module)
    lost = ir.Value(TensorType(f32, (2,)), "lost")
    bad = ew.Add(lost, lost)
    graph.ops.append(bad)
    with pytest.raises(PoplarPyError) as caught:
        ir.verify(module)
    assert "not defined above" in str(caught.value)
    graph.ops[:] = [graph.ops[0], graph.ops[0]]
    with pytest.raises(VerifyError, match="two places"):
        ir.verify(module)
    graph.ops[:] = [ew.Exp(x)]
    with pytest.raises(VerifyError, match="not defined"):
        ir.verify(module)
    graph.ops[:] = [y.owner]
    y.type = TensorType(f32, (3, 2))
    with pytest.raises(VerifyError, match="by its operands they are"):
        ir.verify(module)
    assert y.owner is not None
    assert y.owner.reinfer()
    ir.verify(module)


def test_cycle_is_found() -> None:
    module, graph, _, y = small()
    z = ir.Builder(graph).add(ew.Neg, y)
    y.owner.x = z  # type: ignore[union-attr]
    with pytest.raises(VerifyError, match="not defined above"):
        ir.verify(module)


def test_regions() -> None:
    graph = ir.Graph("main")
    flag = graph.add_input(TensorType(bool_, ()), "flag")
    x = graph.add_input(TensorType(f32, (2,)), "x")
    yes, no = ir.Graph(), ir.Graph(outputs=[x])
    yes.outputs = [ir.Builder(yes).add(ew.Exp, x)]
    y = ir.Builder(graph).add(If, flag, yes, no)
    graph.add_output(y, "y")
    assert captures(yes) == (x,)
    assert [op.opname for op in graph.walk()] == ["core.if", "math.exp"]
    assert ir.use_counts(graph)[x] == 2
    module = ir.Module("m", [graph])
    copy = ir.clone_module(module)
    assert ir.print_module(copy) == ir.print_module(module)
    copied = next(iter(copy.main.walk()))
    assert copied.regions()[0].ops[0].operands() == (copy.main.inputs[1],)
    ir.verify(copy)
    other = graph.add_input(TensorType(f32, (2,)), "other")
    ir.replace_values(graph, {x: other})
    assert captures(yes) == (other,)


def test_error_list() -> None:
    errors = ErrorList(limit=3)
    with errors:
        raise InputError("first")
    with errors:
        pass
    with pytest.raises(InputError):
        errors.raise_if_any()
    errors.add(TypeMismatch("second"))
    with pytest.raises(PoplarPyErrors) as caught:
        errors.add(ShapeError("third"))
    assert str(caught.value).endswith("3 errors")
    assert "first" in str(caught.value)


def test_long_lines_and_notes_are_shortened() -> None:
    register_source("long.pml", "x" * 5000)
    error = InputError("here", Location("long.pml", 1, 3000))
    error.notes += [f"note {i}" for i in range(50)]
    lines = str(error).splitlines()
    assert max(map(len, lines)) < 200
    assert lines[-1].endswith("and 44 more")
    assert lines[4].index("^") == lines[3].index("x") + 80


def test_types() -> None:
    for dtype in DTYPES.values():
        assert dtype_of(np.zeros(1, dtype.numpy)) is dtype
    with pytest.raises(TypeMismatch):
        dtype_of(np.dtype("complex64"))
    assert broadcast_shapes((2, 1, "n"), (3, "n"), (1,)) == (2, 3, "n")
    assert broadcast_shapes(("n", 4), (1, 4)) == ("n", 4)
    with pytest.raises(ShapeError):
        broadcast_shapes((2,), (3,))
    kind = TensorType(i32, ("b", 3))
    assert (str(kind), kind.rank, kind.free_dims, kind.is_static) == ("i32[b,3]", 2, ("b",), False)
    with pytest.raises(ShapeError, match="free dims"):
        _ = kind.numel
    assert TensorType(i32, (2, 3)).nbytes == 24
