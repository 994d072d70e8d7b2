"""Operations that write over what they read in another order, and arguments that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poplar_py import poplin, popops
from poplar_py.diagnostics import OptionError, PoplarPyError, ShapeError, TypeMismatch
from poplar_py.poplar import Graph, Target, Tensor, errors, program
from poplar_py.poplar.errors import TensorIndexError, TensorTypeError
from poplar_py.types import DType, f16, f32, i32, u8, u32
from tests.libraries.lab import Array, Lab

X = np.arange(12).reshape(3, 4)
LATER = X + X[::-1]
Write = Callable[[Lab, Tensor], None]


def index(lab: Lab, *values: int) -> Tensor:
    return lab.put(np.array(values, np.int32))


def updated(rows: dict[int, Any]) -> Array:
    out = X.copy()
    for row, value in rows.items():
        out[row] = value
    return out


OVER: dict[str, tuple[Write, Array]] = {
    "itself": (lambda s, t: popops.add_in_place(s.graph, t, t, s.prog), 2 * X),
    "reversed": (lambda s, t: popops.add_in_place(s.graph, t, t.reverse(0), s.prog), LATER),
    "a row": (lambda s, t: popops.add_in_place(s.graph, t, t[1:2], s.prog), X + X[1]),
    "an element": (lambda s, t: popops.mul_in_place(s.graph, t, t[0][2], s.prog), X * 2),
    "second operand": (
        lambda s, t: popops.sub_with_output(s.graph, s.put(X.astype(t.dtype.numpy)), t, t, s.prog),
        X - X,
    ),
    "neighbour": (
        lambda s, t: popops.map_with_output(s.graph, "neg($0)", [t[0:2]], t[1:3], s.prog),
        updated({1: -X[0], 2: -X[1]}),
    ),
    "scaled": (
        lambda s, t: popops.scaled_add_to(s.graph, t, t.reverse(1), 2.0, s.prog),
        X + 2 * X[:, ::-1],
    ),
    "scale": (lambda s, t: popops.scaled_add_to(s.graph, t, t, t[0][3], s.prog), 4 * X),
    "rows": (
        lambda s, t: popops.multi_update(s.graph, t, index(s, 2, 0), t[0:2], s.prog),
        updated({2: X[0], 0: X[1]}),
    ),
    "slice": (
        lambda s, t: _discard(
            popops.dynamic_update(s.graph, t, t[0:2], index(s, 1), 0, s.prog, in_place=True)
        ),
        updated({1: X[0], 2: X[1]}),
    ),
    "scalars": (
        lambda s, t: popops.update_scalar_in_rows(
            s.graph, t, index(s, 3, 2, 1), s.prog, values=t[0, :3]
        ),
        np.array([[0, 1, 2, 0], [4, 5, 1, 7], [8, 2, 10, 11]]),
    ),
    "sequences": (
        lambda s, t: popops.sequence_slice(
            s.graph, t, t, index(s, 2), index(s, 0), index(s, 1), False, s.prog
        ),
        updated({1: X[0], 2: X[1]}),
    ),
    "sum": (
        lambda s, t: popops.reduce_with_output(s.graph, t, t[1], [0], "sum", s.prog),
        updated({1: X.sum(0)}),
    ),
}


def _discard(_: object) -> None:
    pass


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("name", OVER)
def test_operands_keep_their_values_from_before(name: str, dtype: DType) -> None:
    write, want = OVER[name]
    for seed in range(3):
        lab = Lab(dtype, seed)
        t = lab.put(X.astype(dtype.numpy))
        write(lab, t)
        lab.expect(t, want, exact=True)
        lab.run()


Refused = Callable[[Lab, Tensor], object]
REFUSED: dict[str, tuple[Refused, type[PoplarPyError]]] = {
    "small target": (
        lambda s, t: popops.add_with_output(s.graph, t, t, t[0:1], s.prog),
        ShapeError,
    ),
    "shapes": (lambda s, t: popops.add(s.graph, t, t[0:2], s.prog), ShapeError),
    "scaled shapes": (lambda s, t: popops.scaled_add_to(s.graph, t, t[0], 1, s.prog), ShapeError),
    "scaled types": (
        lambda s, t: popops.scaled_add_to(s.graph, t, s.variable(i32, (3, 4)), 1, s.prog),
        TypeMismatch,
    ),
    "pads": (lambda s, t: popops.pad(s.graph, t, [1], [1], 0, s.prog), ShapeError),
    "cuts": (lambda s, t: popops.pad(s.graph, t, [-1, 0], [0, 0], 0, s.prog), ShapeError),
    "fill": (
        lambda s, t: popops.fill(s.graph, s.variable(u8, (3,)), 300, s.prog),
        TensorTypeError,
    ),
    "half": (
        lambda s, t: popops.fill(s.graph, s.variable(i32, (3,)), 0.5, s.prog),
        TensorTypeError,
    ),
    "axis": (lambda s, t: popops.gather(s.graph, t, index(s, 0), 2, s.prog), TensorIndexError),
    "offsets": (lambda s, t: popops.gather(s.graph, t, t, 0, s.prog), TensorTypeError),
    "size": (
        lambda s, t: popops.dynamic_slice(s.graph, t, index(s, 0), 0, 4, s.prog),
        TensorIndexError,
    ),
    "counts": (
        lambda s, t: popops.dynamic_slice(s.graph, t, index(s, 0), [0, 1], [1, 1], s.prog),
        TensorIndexError,
    ),
    "update": (
        lambda s, t: popops.dynamic_update(s.graph, t, t[0:1, 0:2], index(s, 0), 0, s.prog),
        ShapeError,
    ),
    "best": (lambda s, t: popops.top_k(s.graph, t, 5, 1, True, s.prog), TensorIndexError),
    "best of none": (lambda s, t: popops.arg_max(s.graph, t[0:0], 0, s.prog), TensorIndexError),
    "join": (
        lambda s, t: popops.multi_update(s.graph, t, index(s, 0), t[0:1], s.prog, operation="sub"),
        OptionError,
    ),
    "updated maximum": (
        lambda s, t: popops.reduce_with_output(s.graph, t, t[0], [0], "max", s.prog, update=True),
        OptionError,
    ),
    "logarithms of integers": (
        lambda s, t: popops.reduce(s.graph, s.variable(i32, (3,)), [0], "LOG_ADD", s.prog),
        OptionError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error = REFUSED[name]
    lab = Lab(f32)
    with pytest.raises(error):
        call(lab, lab.put(X.astype(np.float32)))


def test_several_axes() -> None:
    """A box at device offsets, read and written; the last axis by its number from the end."""
    lab = Lab(f32, 5)
    x, box = lab.values((4, 5, 6)), lab.values((2, 5, 3))
    t, at = lab.put(x), index(lab, 1, 2)
    got = popops.dynamic_slice(lab.graph, t, at, [0, -1], [2, 3], lab.prog)
    out = popops.dynamic_update(lab.graph, t, lab.put(box), at, (0, -1), lab.prog)
    want = x.copy()
    want[1:3, :, 2:5] = box
    lab.expect(got, x[1:3, :, 2:5], exact=True)
    lab.expect(out, want, exact=True)
    lab.run()


def test_targets_that_hold_an_element_twice_are_refused() -> None:
    graph = Graph(Target.ipu("gc200", 1, 4))
    prog = program.Sequence()
    row = graph.add_variable(f32, (1,), mapping=0).broadcast(4, 0)
    x = graph.add_variable(f32, (4,), mapping=1)
    which = graph.add_variable(u32, (2,), mapping=0)
    calls = (
        lambda: popops.scaled_add_to(graph, row, x, 1.0, prog),
        lambda: popops.add_in_place(graph, row, x, prog),
        lambda: popops.map_with_output(graph, "neg($0)", [x], row, prog),
        lambda: popops.update_scalar_in_rows(graph, row.reshape((2, 2)), which, prog),
        lambda: poplin.convolution_bias_update(graph, x.reshape((1, 4)), row, 1.0, prog),
    )
    for call in calls:
        with pytest.raises(errors.AliasedWrite) as caught:
            call()
        assert caught.value.loc.file == __file__
