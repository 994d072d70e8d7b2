"""Programs and graphs put together wrongly: refused where the user can change it, never run."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from poplar_py import poplar, popops
from poplar_py.poplar import Graph, Tensor, errors
from poplar_py.poplar.program import Call, Copy, Execute, If, PrintTensor, Repeat, Sequence, Switch


def new_graph() -> Graph:
    return Graph(poplar.Target.ipu("gc200", tiles_per_ipu=2))


def variable(graph: Graph, dtype: Any = poplar.FLOAT, shape: tuple[int, ...] = (4,)) -> Tensor:
    return graph.add_variable(dtype, shape, "v", mapping=0)


FOREIGN: list[Callable[[Tensor, Tensor], Any]] = [
    lambda own, other: Copy(other, own),
    lambda own, other: Copy(own, other),
    lambda own, other: Sequence(Repeat(2, PrintTensor(other))),
    lambda own, other: Execute(other.graph.add_compute_set("foreign")),
    lambda own, other: poplar.concat([own, other]),
]


@pytest.mark.parametrize("make", FOREIGN)
def test_what_belongs_to_another_graph(make: Callable[[Tensor, Tensor], Any]) -> None:
    graph = new_graph()
    own, other = variable(graph), variable(new_graph())
    with pytest.raises(errors.GraphError, match=r"another graph|two graphs"):
        poplar.Engine(graph, make(own, other))


def test_parts_of_one_graph_belong_together() -> None:
    """Tensors made through virtual graphs are their parent's."""
    graph = new_graph()
    first, second = (graph.create_virtual_graph(t, t + 1) for t in range(2))
    a, b = (g.add_variable(poplar.FLOAT, [2], mapping=0) for g in (first, second))
    one = graph.add_constant(poplar.FLOAT, [4], [1, 2, 3, 4], mapping=0)
    both = poplar.concat([a, b])
    graph.create_host_read("both", both)
    engine = poplar.Engine(graph, Copy(one, both))
    engine.run()
    assert np.array_equal(engine.read_tensor("both"), [1, 2, 3, 4])


NO_PROGRAMS: list[Callable[[Tensor], Any]] = [
    lambda v: None,
    lambda v: 3,
    lambda v: [None],
    lambda v: Sequence(None),  # type: ignore[arg-type]
    lambda v: Sequence(3),  # type: ignore[arg-type]
    lambda v: Repeat(3, None),  # type: ignore[arg-type]
    lambda v: Execute(None),  # type: ignore[arg-type]
    lambda v: Call(None),  # type: ignore[arg-type]
    lambda v: If(None, Sequence(), Sequence()),  # type: ignore[arg-type]
    lambda v: reduce(lambda inner, _: Sequence(inner), range(3000), Copy(v, v)),
]


@pytest.mark.parametrize("make", NO_PROGRAMS)
def test_steps_that_are_no_programs(make: Callable[[Tensor], Any]) -> None:
    graph = new_graph()
    with pytest.raises(errors.GraphError):
        poplar.Engine(graph, make(variable(graph)))


def test_programs_nested_as_deep_as_allowed_run() -> None:
    graph = new_graph()
    v, one = variable(graph), graph.add_constant(poplar.FLOAT, [4], 1.0, mapping=1)
    graph.create_host_read("v", v)
    program = reduce(lambda inner, _: Sequence(inner), range(190), Copy(one, v))
    engine = poplar.Engine(graph, program)
    engine.run()
    assert np.array_equal(engine.read_tensor("v"), np.ones(4))


@pytest.mark.parametrize("value", [2**32 + 1, -(2**31) - 1, 1.5, "a"])
def test_cases_that_no_control_value_has(value: Any) -> None:
    graph = new_graph()
    control = variable(graph, poplar.INT, ())
    with pytest.raises(errors.TensorIndexError):
        Switch(control, [(value, Sequence())])


@pytest.mark.parametrize("times", [-1, 1.5, "3", 2**70])
def test_repeat_counts(times: Any) -> None:
    with pytest.raises(errors.TensorIndexError):
        Repeat(times, Sequence())


@pytest.mark.parametrize("shape", [[2.5], ["a"], 3, None, [[2]]])
def test_shapes(shape: Any) -> None:
    with pytest.raises(errors.TensorCreationError):
        new_graph().add_variable(poplar.FLOAT, shape)


@pytest.mark.parametrize("dtype", ["float", None, 3])
def test_element_types(dtype: Any) -> None:
    with pytest.raises(errors.TensorTypeError):
        new_graph().add_variable(dtype, [2])


@pytest.mark.parametrize("index", [1.5, "a", None, slice(None, None, 0), slice(0.5, 1)])
def test_indices(index: Any) -> None:
    with pytest.raises(errors.TensorIndexError):
        variable(new_graph())[index]


@pytest.mark.parametrize("mapping", [[0], "0", 1.5, [[(0,)]]])
def test_mappings(mapping: Any) -> None:
    graph = new_graph()
    with pytest.raises(errors.InvalidTileMapping):
        graph.set_tile_mapping(variable(graph), mapping)


@pytest.mark.parametrize("values", ["text", None, object(), 1j])
def test_constants(values: Any) -> None:
    with pytest.raises(errors.TensorCreationError):
        new_graph().add_constant(poplar.FLOAT, [4], values)


@pytest.mark.parametrize("dims", [[5], [-3], [0, 2]])
def test_reduced_dims(dims: list[int]) -> None:
    graph = new_graph()
    with pytest.raises(errors.TensorIndexError):
        popops.reduce(graph, variable(graph, shape=(2, 3)), dims, "sum", Sequence())
