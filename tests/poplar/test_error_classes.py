"""Every error class a program for Poplar can meet: an example of each, its code and its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poplar_py import diagnostics
from poplar_py.codelets.errors import CodeletError
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Engine, Graph, OptionFlags, Target, errors, program
from poplar_py.types import f32, i32

SOURCE = """
@vertex
class Move(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self) -> None:
        for i in range(len(self.y)):
            self.y[i] = self.x[i + 1]

@vertex
class Forever(Vertex):
    y: Output[Vector[f32]]

    def compute(self) -> None:
        while True:
            self.y[0] = 1.0
"""


class Setting:
    """A graph with two mapped vectors and codelets."""

    def __init__(self) -> None:
        self.graph = Graph(Target.ipu("gc200", 1, 4))
        self.graph.add_codelets(SOURCE)
        self.a = self.graph.add_variable(f32, (8,), "a", mapping=0)
        self.b = self.graph.add_variable(f32, (8,), "b", mapping=1)
        self.cs = self.graph.add_compute_set("cs")

    def vertex(self, name: str = "Move", **edges: Any) -> Any:
        vertex = self.graph.add_vertex(self.cs, name, edges)
        self.graph.set_tile_mapping(vertex, 2)
        return vertex

    def engine(self, prog: program.Program | None = None, **options: Any) -> Engine:
        return Engine(self.graph, prog or program.Execute(self.cs), threads=1, **options)


def connection(s: Setting) -> None:
    s.vertex(x=s.a)
    s.engine()


def mapping(s: Setting) -> None:
    s.graph.set_tile_mapping(s.a, 4)


def unmapped(s: Setting) -> None:
    c = s.graph.add_variable(f32, (8,), "c")
    s.engine(program.Copy(s.a, c))


def vertex_type(s: Setting) -> None:
    s.vertex("Mov")


def field(s: Setting) -> None:
    s.graph.connect(s.vertex()["z"], s.a)


def types(s: Setting) -> None:
    s.graph.connect(s.vertex()["x"], s.graph.add_variable(i32, (8,), "i", mapping=0))


def index(s: Setting) -> None:
    s.a.slice(4, 9)


def creation(s: Setting) -> None:
    s.graph.add_variable(f32, (-1,), "negative")


def stream(s: Setting) -> None:
    s.graph.add_host_to_device_fifo("in", f32, 8)
    s.graph.add_device_to_host_fifo("in", f32, 8)


def conflict(s: Setting) -> None:
    s.vertex(x=s.a, y=s.b)
    s.vertex(x=s.a, y=s.b)
    s.engine()


def aliased(s: Setting) -> None:
    s.engine(program.Copy(s.a, s.b.slice(0, 1).broadcast(8, 0)))


def cycle(s: Setting) -> None:
    loop = program.Sequence()
    loop.add(program.Repeat(2, loop))
    s.engine(loop)


def memory(s: Setting) -> None:
    big = s.graph.add_variable(f32, (1 << 20,), "big", mapping=0)
    s.graph.create_host_read("big", big)
    s.engine(program.Copy(s.a, s.b))


def tile(s: Setting) -> None:
    s.vertex(x=s.a, y=s.b)
    s.engine(checked=True).run(timeout=10)


def abort(s: Setting) -> None:
    s.engine(program.Abort("enough")).run(timeout=10)


def late(s: Setting) -> None:
    s.vertex("Forever", y=s.b)
    s.engine(checked=True).run(timeout=0.2)


def handle(s: Setting) -> None:
    s.engine(program.Copy(s.a, s.b)).write_tensor("nothing", np.zeros(8))


def option(s: Setting) -> None:
    s.engine(program.Copy(s.a, s.b), options=OptionFlags({"debug.instrumented": "true"}))


def target(s: Setting) -> None:
    Target.ipu("gc2000")


def codelet(s: Setting) -> None:
    s.graph.add_codelets("@vertex\nclass Bad(Vertex):\n    def compute(self):\n        import os\n")
    s.vertex("Bad")


def missing_file(s: Setting) -> None:
    s.graph.add_codelets("no_such_file.py")


Case = tuple[type[PoplarPyError], str, Callable[[Setting], None]]
CASES: list[Case] = [
    (errors.GraphConnectionError, "graph_connection_error", connection),
    (errors.InvalidTileMapping, "invalid_tile_mapping", mapping),
    (errors.InvalidTileMapping, "invalid_tile_mapping", unmapped),
    (errors.UnknownVertexType, "unknown_vertex_type", vertex_type),
    (errors.UnknownField, "unknown_field", field),
    (errors.TensorTypeError, "type_error", types),
    (errors.TensorIndexError, "index_error", index),
    (errors.TensorCreationError, "tensor_creation_error", creation),
    (errors.StreamConnectionError, "stream_connection_error", stream),
    (errors.WriteConflict, "write_conflict", conflict),
    (errors.AliasedWrite, "aliased_write", aliased),
    (errors.GraphError, "graph-error", cycle),
    (diagnostics.OutOfTileMemory, "graph_memory_allocation_error", memory),
    (diagnostics.TileException, "tile_exception", tile),
    (PoplarPyError, "graph_program_error", abort),
    (diagnostics.RunTimeout, "timeout", late),
    (diagnostics.InputError, "input-error", handle),
    (diagnostics.OptionError, "option-error", option),
    (diagnostics.OptionError, "option-error", target),
    (CodeletError, "codelet-error", codelet),
    (diagnostics.FileError, "file-error", missing_file),
]


@pytest.mark.parametrize(("kind", "code", "example"), CASES, ids=[c[2].__name__ for c in CASES])
def test_error(kind: type[PoplarPyError], code: str, example: Callable[[Setting], None]) -> None:
    """The example raises that class with that code, a reason, and the place in this file."""
    with pytest.raises(kind) as caught:
        example(Setting())
    error = caught.value
    assert error.code == code
    assert error.message
    assert str(error).startswith(f"error[{code}]: ")
    graph_errors = (errors.GraphError, diagnostics.TileException)
    if isinstance(error, graph_errors):
        assert Path(error.loc.file).name in (Path(__file__).name, "<codelets>"), str(error)


def test_every_graph_error_has_an_example() -> None:
    classes = {v for v in vars(errors).values() if isinstance(v, type)}
    ours = {c for c in classes if issubclass(c, errors.GraphError)}
    assert ours == {kind for kind, _, _ in CASES if issubclass(kind, errors.GraphError)}
