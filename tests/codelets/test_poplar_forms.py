"""Fields and vertices as public Poplar codelets have them: layouts, VectorList, supervisors."""

from __future__ import annotations

import numpy as np
import pytest
from forms import compiled, run_both

from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Engine, Graph, Target, program
from poplar_py.types import i32

F = np.float32

# ---------------------------------------------------------------- fields

ROTATE = """
@vertex
class Rotate(Vertex):
    out: Output[VectorList[f32, VectorListLayout.{layout}{more}]]
    data: Input[VectorList[f32, {layout}{more}]]
    angle: Input[Vector[f32]]

    def compute(self) -> bool:
        for i in range(len(self.data)):
            a = self.angle[i]
            self.out[i][0] = cos(a) * self.data[i][0] - sin(a) * self.data[i][1]
            self.out[i][1] = sin(a) * self.data[i][0] + cos(a) * self.data[i][1]
        return True
"""


@pytest.mark.parametrize("layout", ["DELTAN", "DELTANELEMENTS", "COMPACT_DELTAN"])
@pytest.mark.parametrize("more", ["", ", 8", ", 8, True"])
def test_vector_list(layout: str, more: str) -> None:
    codelet = compiled(ROTATE.format(layout=layout, more=more), "Rotate")
    f = codelet.field("data")
    assert (f.kind, f.rank, f.layout) == ("in", 2, layout.lower())
    assert f.align == (8 if more else 0)
    rng = np.random.default_rng(1)
    data = [rng.standard_normal(2).astype(F) for _ in range(5)]
    angle = rng.uniform(0, 6, 5).astype(F)
    row = {"out": [np.zeros(2, F) for _ in data], "data": data, "angle": angle}
    got = np.array(run_both(codelet, row)["out"])
    x, y = np.array(data, np.float64).T
    c, s = np.cos(angle.astype(np.float64)), np.sin(angle.astype(np.float64))
    np.testing.assert_allclose(got, np.stack([c * x - s * y, s * x + c * y], 1), atol=1e-6)


def test_vector_list_state_and_cycles() -> None:
    """Two lists and a span: 8 bytes each, and 4 for each row."""
    codelet = compiled(ROTATE.format(layout="DELTAN", more=""), "Rotate")
    assert codelet.state_bytes == 24
    sizes = {"out": np.array([5]), "out[]": np.array([10]), "angle": np.array([5])}
    sizes |= {"data": np.array([5]), "data[]": np.array([10])}
    assert codelet.state_bytes_of(sizes).tolist() == [24 + 4 * 10]
    plain = "Vector[{}[Vector[f32]]]"
    text = ROTATE.format(layout="DELTAN", more="")
    text = text.replace("Output[VectorList[f32, VectorListLayout.DELTAN]]", plain.format("Output"))
    text = text.replace("Input[VectorList[f32, DELTAN]]", plain.format("Input"))
    spans = compiled(text, "Rotate")
    assert spans.state_bytes_of(sizes).tolist() == [24 + 8 * 10]
    assert codelet.cycles(sizes, {})[0] > spans.cycles(sizes, {})[0]  # rows are unpacked


def test_vector_list_in_a_graph_is_checked() -> None:
    text = """
@vertex
class Pick(Vertex):
    rows: Input[VectorList[i32, DELTANELEMENTS]]
    out: Output[i32]
    k: i32
    j: i32

    def compute(self) -> None:
        self.out = self.rows[self.k][self.j]
"""
    for k, j, want in ((1, 4, 7), (0, 2, 2), (2, 0, None), (1, 5, None)):
        graph = Graph(Target.ipu("gc200", 1, 4))
        graph.add_codelets(text)
        x = graph.add_constant(i32, (8,), np.arange(8), "x", 1)
        out = graph.add_variable(i32, (), "out", mapping=0)
        graph.create_host_read("out", out)
        cs = graph.add_compute_set("pick")
        vertex = graph.add_vertex(cs, "Pick", {"rows": [x.slice(0, 3), x.slice(3, 8)], "out": out})
        graph.set_initial_value(vertex["k"], k)
        graph.set_initial_value(vertex["j"], j)
        graph.set_tile_mapping(vertex, 2)
        engine = Engine(graph, program.Execute(cs), threads=1)
        if want is None:
            with pytest.raises(PoplarPyError, match="out of range"):
                engine.run(timeout=10)
        else:
            engine.run(timeout=10)
            assert engine.read_tensor("out") == want
        engine.close()


LAYOUTS = {"SPAN": 8, "SHORT_SPAN": 4, "ONE_PTR": 4, "COMPACT_PTR": 2, "SCALED_PTR32": 2,
           "SCALED_PTR64": 2, "SCALED_PTR128": 2}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    text = f"""
@vertex
class Copy(Vertex):
    x: Input[Vector[half, {layout}, 16, True]]
    y: Output[Vector[half, {layout}, 16]]
    n: u16
    pad: u16

    def compute(self):
        for i in range(self.n):
            self.y[i] = self.x[i]
"""
    codelet = compiled(text, "Copy")
    assert codelet.state_bytes == 2 * LAYOUTS[layout] + 4
    assert codelet.field("x").align == 16
    x = np.arange(9, dtype=np.float16)
    row = {"x": x, "y": np.zeros(9, np.float16), "n": 9, "pad": 0}
    np.testing.assert_array_equal(run_both(codelet, row)["y"], x)


# ---------------------------------------------------------------- kinds of vertices


def test_supervisor() -> None:
    body = """
    out: Output[Vector[i32]]
    def compute(self{}) -> None:
        for i in range(len(self.out)):
            self.out[i] = i * 3
"""
    source = "@vertex\nclass S(SupervisorVertex):" + body.format("")
    codelet = compiled(source, "S")
    worker = compiled("@vertex\nclass W(Vertex):" + body.format(""), "W")
    assert codelet.supervisor
    assert codelet.whole_tile
    assert not codelet.multi
    assert run_both(codelet, {"out": np.zeros(5, np.int32)})["out"].tolist() == [0, 3, 6, 9, 12]
    sizes = {"out": np.array([600])}
    assert codelet.cycles(sizes, {})[0] == worker.cycles(sizes, {})[0] + 11  # tile cycles
    assert codelet.digest != worker.digest


def test_supervisor_runs_and_is_charged_in_tile_cycles() -> None:
    cycles: dict[str, int] = {}
    for base in ("Vertex", "SupervisorVertex"):
        graph = Graph(Target.ipu("gc200", 1, 4))
        graph.add_codelets(
            f"@vertex\nclass V({base}):\n    x: InOut[Vector[i32]]\n"
            "    def compute(self):\n        for i in range(len(self.x)):\n"
            "            self.x[i] = self.x[i] + i\n"
        )
        x = graph.add_variable(i32, (900,), "x", mapping=1)
        graph.create_host_read("x", x)
        graph.create_host_write("x", x)
        cs = graph.add_compute_set("one")
        graph.set_tile_mapping(graph.add_vertex(cs, "V", {"x": x}), 1)
        engine = Engine(graph, program.Execute(cs), threads=1)
        engine.write_tensor("x", np.ones(900, np.int32))
        engine.run()
        np.testing.assert_array_equal(engine.read_tensor("x"), np.arange(900) + 1)
        cycles[base] = engine.cycles().compute
        engine.close()
    launch = cycles["SupervisorVertex"] - 11
    assert launch > 900
    assert cycles["Vertex"] == 6 * launch  # a worker issues once in six cycles


def test_static_methods_and_num_workers() -> None:
    text = """
@vertex
@constraint("elem(*x) != elem(*y)")
class Strided(MultiVertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    @staticmethod
    def twice(v: f32) -> f32:
        return v + v

    def compute(self, worker_id: u32) -> None:
        for i in range(worker_id, len(self.x), MultiVertex.num_workers()):
            self.y[i] = self.twice(self.x[i])
"""
    x = np.arange(20, dtype=F)
    codelet = compiled(text, "Strided")
    np.testing.assert_array_equal(run_both(codelet, {"x": x, "y": np.zeros(20, F)})["y"], x * 2)


WRONG = {
    "x: VectorList[f32, DELTAN]": ("a VectorList is an edge", 3),
    "x: Input[VectorList[f32, ONE_PTR]]": ("no layout here", 3),
    "x: Input[Vector[f32, DELTAN]]": ("no layout here", 3),
    "x: Input[Vector[f32, SPAN, 3]]": ("a layout and an alignment", 3),
    "x: Input[Vector[f32, SPAN, 128]]": ("a layout and an alignment", 3),
    "x: Vector[Input[VectorList[f32]]]": ("holds Vectors", 3),
    "prng: f32": ("need the field prng", 5),
}


@pytest.mark.parametrize("field", WRONG)
def test_refused_fields(field: str) -> None:
    message, line = WRONG[field]
    text = (
        f"@vertex\nclass V(Vertex):\n    {field}\n    def compute(self):\n        x = urand32()\n"
    )
    with pytest.raises(PoplarPyError, match=message) as caught:
        compiled(text, "V")
    assert caught.value.loc.line == line


COMPUTE = "    def compute(self):\n        pass\n"
SOURCES = {
    '@constraint("elem(*a) != elem(*b)")\nclass V(Vertex):\n    a: Input[f32]\n': "no field b",
    "@constraint(3)\nclass V(Vertex):\n": "is a string",
    "@other\nclass V(Vertex):\n": "may have @vertex",
    'K = EnumParam("K", Kind)\nclass V(Vertex):\n': "wants an enum of this file",
    "class Kind(Enum):\n    A = f()\nclass V(Vertex):\n": "an enum holds NAME = int",
    "class V(Actor):\n": "derives from Vertex, MultiVertex, SupervisorVertex",
}


@pytest.mark.parametrize("text", SOURCES)
def test_refused_sources(text: str) -> None:
    with pytest.raises(PoplarPyError, match=SOURCES[text]) as caught:
        compiled(text + COMPUTE, "V")
    assert caught.value.loc.line
