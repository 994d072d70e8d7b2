"""Functions called with tensors, sizes of fields, tiles of virtual graphs, fields of IPUModel."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import popops
from poplar_py.diagnostics import OptionError, PoplarPyError, ShapeError
from poplar_py.poplar import Engine, Graph, IPUModel, Target, Tensor, program
from poplar_py.poplar.errors import InvalidTileMapping, TensorTypeError, UnknownField
from poplar_py.poputil import graphfn
from poplar_py.types import DType, f16, f32

SOURCE = """
@vertex
class Pick(Vertex):
    x: Vector[Input[Vector[f32]]]
    flat: Input[Vector[f32]]
    out: Output[f32]
    table: Vector[f32]

    def compute(self) -> None:
        self.out[0] = self.x[0][0] + self.flat[0] + self.table[0]
"""


def make() -> tuple[Graph, program.Sequence]:
    return Graph(Target.ipu("gc200", ipus=2, tiles_per_ipu=4)), program.Sequence()


@pytest.mark.parametrize("dtype", [f32, f16])
def test_functions(dtype: DType) -> None:
    graph, prog = make()
    rng = np.random.default_rng(3)
    a, b, total = (graph.add_variable(dtype, (5, 3), n, mapping="linear") for n in "abt")

    def body(args: list[Tensor], work: program.Sequence) -> None:
        popops.add_in_place(graph, args[1], args[0], work)
        args.append(popops.mul(graph, args[0], args[0], work))

    signature = [graphfn.input(a), graphfn.inout(total), graphfn.created()]
    void = graphfn.VoidFunction(graph, signature, body, "accumulate")
    twice = graphfn.TensorFunction(
        graph, [graphfn.input(a)], lambda args, work: popops.add(graph, args[0], args[0], work)
    )
    before = len(graph.compute_sets)
    first: graphfn.Slots = [a, total, None]
    second: graphfn.Slots = [b, total, None]
    void(first, prog)
    void(second, prog)
    doubled = twice([b], prog)
    assert len(graph.compute_sets) == before  # calls share the work
    for name, t in zip("abt", (a, b, total), strict=True):
        graph.create_host_write(name, t)
    for i, t in enumerate((total, first[2], second[2], doubled)):
        assert t is not None
        graph.create_host_read(f"out{i}", t)
    x, y, z = (rng.integers(-4, 5, (5, 3)).astype(dtype.numpy) for _ in range(3))
    engine = Engine(graph, prog, threads=1)
    for name, value in zip("abt", (x, y, z), strict=True):
        engine.write_tensor(name, value)
    engine.run()
    for i, want in enumerate((z + x + y, x * x, y * y, y + y)):
        np.testing.assert_array_equal(engine.read_tensor(f"out{i}").reshape(5, 3), want)
    with pytest.raises(ShapeError):
        twice([b.slice(0, 2, 0)], prog)
    with pytest.raises(TensorTypeError):
        twice([graph.add_variable(f16 if dtype is f32 else f32, (5, 3))], prog)
    with pytest.raises(OptionError, match="left 0 arguments of 1"):
        graphfn.VoidFunction(graph, [graphfn.created()], lambda args, work: None)


def test_field_sizes() -> None:
    graph, _ = make()
    graph.add_codelets(SOURCE)
    x = graph.add_variable(f32, (20,), "x", mapping="linear")
    cs = graph.add_compute_set("cs")
    v = graph.add_vertex(cs, "Pick", {"flat": x.slice(0, 7, 0)})
    assert graph.get_field_size(v["x"]) == 0
    graph.set_field_size(v["x"], 3)
    graph.connect(v["x"][1], x.slice(2, 6, 0))
    graph.set_initial_value(v["table"], np.zeros(5, np.float32))
    assert graph.get_field_size(v["x"]) == 3
    assert graph.get_field_size(v["x"][1]) == 4
    assert graph.get_field_size(v["flat"]) == 7
    assert graph.get_field_size(v["table"]) == 5
    assert graph.get_field_size(v["out"]) == 0
    with pytest.raises(UnknownField):
        graph.get_field_size(v["nothing"])


def test_tiles_of_virtual_graphs() -> None:
    graph, _ = make()
    part = graph.create_virtual_graph([6, 1, 3]).create_virtual_graph([2, 0])
    assert [part.convert_virtual_tile_to_physical_tile(t) for t in (0, 1)] == [3, 6]
    assert graph.convert_virtual_tile_to_physical_tile(5) == 5
    with pytest.raises(InvalidTileMapping):
        part.convert_virtual_tile_to_physical_tile(2)


def test_fields_of_the_model() -> None:
    chip = IPUModel(interleaved_memory_element_index=10).chip()
    assert chip.code_bytes.value == 10 * chip.element_bytes.value
    assert chip.code_bytes.value + chip.interleaved_bytes.value == chip.bytes_per_tile.value
    alone = IPUModel(supports_super_tile_send_receive=False).create_device().get_target()
    assert not alone.supports_exchange_bus_sharing()
    with pytest.raises(PoplarPyError, match="element 99"):
        IPUModel(interleaved_memory_element_index=99).chip()
