"""One of everything in Poplar's API: a graph, an engine, and valid values for arguments by name."""

from __future__ import annotations

import dataclasses
import inspect
import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from poplar_py import poplar
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.types import bool_, f16, f32, i32, u32

SOURCE = """
@vertex
class Move(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    scale: f32

    def compute(self) -> None:
        for i in range(len(self.y)):
            self.y[i] = self.x[i] * self.scale
"""


class Setting:
    """A graph with one of everything, and valid values for arguments by their names."""

    def __init__(self) -> None:
        self.graph = g = Graph(poplar.Target.ipu("gc200", 1, 4))
        g.add_codelets(SOURCE)
        self.tensor = g.add_variable(f32, (2, 4), "t", 0)
        self.other = g.add_variable(f32, (2, 4), "o", 1)
        self.third = g.add_variable(f32, (2, 4), "third", 1)
        self.flag = g.add_variable(bool_, (), "flag", 0)
        self.control = g.add_variable(i32, (), "control", 0)
        self.counter = g.add_variable(u32, (2,), "counter", 0)
        self.half = g.add_variable(f16, (2,), "half", 0)
        self.row = g.add_variable(u32, (1,), "row", 0)
        self.cs = g.add_compute_set("cs")
        self.vertex = g.add_vertex(self.cs, "Move", {"x": self.tensor[0], "y": self.other[0]})
        g.connect(self.vertex["rows"], [self.tensor[1]])
        g.set_tile_mapping(self.vertex, 0)
        self.into = g.add_host_to_device_fifo("in", f32, 8)
        self.remote = g.add_remote_buffer("remote", f32, 8)
        self.function = g.add_function(program.Sequence())
        self.host = g.add_host_function("host", [(f32, 8)], [(f32, 8)])
        self.device = poplar.Device(poplar.Target.ipu("gc200", 1, 4), threads=1)
        self.values = self._values()

    def _values(self) -> dict[str, Any]:
        block = program.Sequence()
        same = ("tensor", "what", "src", "dst", "reference", "a", "t")
        tensors = dict.fromkeys(same, self.tensor)
        same = ("program", "prog", "body", "condition", "if_true", "if_false", "default", "step")
        programs = dict.fromkeys(same, block)
        return {
            **tensors,
            **programs,
            "other": self.other,
            "dst": self.other,
            "tensors": [self.tensor, self.other],
            "others": [self.other],
            "b": self.other[0],
            "graph": self.graph,
            "dtype": f32,
            "predicate": self.flag,
            "control": self.control,
            "compute_set": self.cs,
            "function": self.function,
            "shape": [2, 4],
            "name": "n",
            "handle": "new",
            "num_elements": 8,
            "repeats": 2,
            "times": 2,
            "dim": 0,
            "begin": 0,
            "end": 1,
            "i": 0,
            "step": 1,
            "mapping": 0,
            "values": 1.0,
            "value": 1.0,
            "n": 2,
            "tile": 0,
            "inputs": [(f32, 8)],
            "outputs": [(f32, 8)],
            "regions": [(0, 8)],
            "parts": [(0, 1), 1],
            "cases": [(0, block)],
            "message": "stop",
            "kind": "internal",
            "mode": "replicate",
            "method": "preserve_order_unless_aliases",
            "source": SOURCE.replace("Move", "Other"),
            "codelet": "Move",
            "title": "title",
            "fmt": program.PrintTensorFmt(),
            "replica_map": {0: 0},
            "steps": [block],
            "target": poplar.Target.ipu("gc200", 1, 4),
            "device": self.device,
            "float_partials": True,
            "float_activations": True,
        }


Case = tuple[str, Callable[..., Any], dict[str, Any]]
"""A name, a function, and valid values for those of its parameters that need some of their own."""

COMPILERS = {
    "atlas",
    "given_cycles",
    "here",
    "locate_variables",
    "location",
    "place_variable",
    "same_graph",
    "same_variable",
    "variables_of",
}
"""Methods of graphs that only compilers call."""


def graph_cases(s: Setting) -> Iterator[Case]:
    field, rows = s.vertex["scale"], s.vertex["rows"]
    edges = {
        "x": poplar.Edges.whole(s.tensor, 1),
        "y": poplar.Edges.whole(s.other, 1),
        "rows": poplar.Edges.nested([0, 1], poplar.Edges.whole(s.tensor, 1)),
    }
    text = io.StringIO()
    s.graph.serialize_tensors(text, [s.tensor])
    own: dict[str, dict[str, Any]] = {
        "add_vertex": {"name": "Move", "edges": {"x": s.tensor[0]}},
        "add_vertices": {"tiles": [0], "edges": edges, "state": {"scale": 1.0}},
        "add_constant_half": {"dtype": f16, "values": 0x3C00},
        "connect": {"field": s.vertex["y"], "value": s.other[1]},
        "set_initial_value": {"what": field},
        "set_initial_value_half": {"what": s.half, "bits": 0x3C00},
        "set_field_size": {"field": rows, "size": 2},
        "get_field_size": {"field": rows},
        "set_tile_mapping": {"what": s.vertex},
        "set_perf_estimate": {"what": s.vertex, "cycles": 10},
        "register_perf_estimator": {"name": "Move", "function": estimate},
        "clone": {"dtype": f32},
        "get_codelet": {"name": "Move"},
        "has_codelet": {"name": "Move"},
        "create_virtual_graph": {"end": 2},
        "add_host_to_device_fifo": {"options": {"bufferingDepth": "2"}},
        "serialize_tensors": {"out": io.StringIO()},
        "deserialize_tensors": {"source": io.StringIO(text.getvalue())},
        "add_function": {"program": program.Sequence()},
    }
    for name in methods(Graph, COMPILERS):
        yield f"Graph.{name}", getattr(s.graph, name), own.get(name, {})
    yield "Graph", Graph, {}
    yield "vertex[]", s.vertex.__getitem__, {"name": "x"}
    yield "field[]", rows.__getitem__, {}


def tensor_cases(s: Setting) -> Iterator[Case]:
    own: dict[str, dict[str, Any]] = {
        "reshape": {"shape": [4, 2]},
        "reshape_partial": {"shape": [2], "begin": 0, "end": 1},
        "expand": {"dims": [0]},
        "squeeze": {"dims": [1]},
        "dim_shuffle": {"perm": [1, 0]},
        "dim_shuffle_partial": {"source": [0], "destination": [1]},
        "dim_roll": {"source": 1},
        "dim": {"index": 0},
        "dim_size": {"index": 0},
        "upsample": {"method": "repeat"},
        "broadcast_to": {"shape": [3, 2, 4]},
        "take": {"index": [0]},
        "dump": {"out": io.StringIO()},
    }
    for name in methods(Tensor, set()):
        what = s.tensor[:, 0:1] if name == "squeeze" else s.tensor
        yield f"Tensor.{name}", getattr(what, name), own.get(name, {})
    yield "Tensor[]", s.tensor.__getitem__, {"key": 0}
    yield "concat", poplar.concat, {}
    yield "append", poplar.append, {}


def program_cases(s: Setting) -> Iterator[Case]:
    own: dict[str, dict[str, Any]] = {
        "Copy": {"src": s.into, "dst": s.tensor},
        "Call": {"function": s.host, "inputs": [s.tensor], "outputs": [s.other]},
        "CycleCount": {"tensor": s.counter},
        "Switch": {"default": program.Sequence()},
    }
    block = {"step": program.Sequence()}
    for name in program.__all__:
        found = getattr(program, name)
        if inspect.isclass(found) and name not in ("Program", "Sequence"):
            yield f"program.{name}", found, own.get(name, {})
    yield "program.Sequence", lambda step, name: program.Sequence([step], name=name), block
    yield "program.Sequence.add", program.Sequence().add, block
    yield "program.Switch.add", program.Switch(s.control).add, {"value": 1}
    yield "program.Switch.checked", program.Switch.switch_with_bounds_checking, {}
    yield "program.Switch.unreachable", program.Switch.switch_with_unreachable_default, {}
    yield "program.Copy rows", program.Copy, {"src": s.remote, "dst": s.tensor, "offset": s.row}
    yield "cycle_count", poplar.cycle_count, {}
    yield "cycle_stamp", poplar.cycle_stamp, {}
    behaviour = poplar.FloatingPointBehaviour()
    yield "floating", poplar.set_floating_point_behaviour, {"behaviour": behaviour}
    yield "rounding", poplar.set_stochastic_rounding, {"enable": False}


def machine_cases(s: Setting) -> Iterator[Case]:
    target = poplar.Target.ipu("gc200", 2, 4)
    own: dict[str, dict[str, Any]] = {
        "ipu": {"chip": "gc200", "ipus": 1, "tiles_per_ipu": 4},
        "of": {"system": "m2000", "ipus": 1, "tiles_per_ipu": 4},
        "virtual": {"tiles_per_ipu": 2},
        "create_ipu_target": {"num_ipus": 1, "tiles_per_ipu": 4, "arch": "ipu2"},
        "create_virtual_target": {"num_ipus": 1, "tiles_per_ipu": 2},
        "set": {"name": "debug.verify", "value": "true"},
        "read_json": {"text": "{}"},
        "read_json_from_env": {"variable": "POPLAR_ENGINE_OPTIONS"},
        "get_device": {"ident": 0},
        "get_devices": {"target_type": "IPU", "num_ipus": 1},
        "acquire_available_device": {"num_ipus": 1},
        "create_device_manager": {"system": "m2000"},
        "create_virtual_device": {"tiles_per_ipu": 2},
        "create_cpu_device": {"n": 1},
        "create_simulator_device": {"target": target},
        "create_device": {"options": {}, "threads": 1},
        "at": {"name": "debug.verify"},
    }
    options = poplar.OptionFlags({"debug.verify": "true"})
    things = (target, s.device, poplar.DeviceManager(), poplar.IPUModel(), options)
    for thing in things:
        for name in methods(type(thing), {"pop", "popitem", "setdefault", "update", "get"}):
            found = getattr(thing, name)
            if callable(found):
                yield f"{type(thing).__name__}.{name}", found, own.get(name, {})
    yield "DeviceManager", poplar.DeviceManager, {"system": "m2000"}
    yield "OptionFlags", poplar.OptionFlags, {"options": {"a": "b"}}
    model = {f.name: f.default for f in dataclasses.fields(poplar.IPUModel)}
    yield "IPUModel", lambda **fields: poplar.IPUModel(**fields).create_device(), model


def engine_cases(s: Setting) -> Iterator[Case]:
    engine = running_engine()
    own: dict[str, dict[str, Any]] = {
        "load": {"device": s.device},
        "prepare": {"device": s.device},
        "load_and_run": {"device": s.device, "program": 0},
        "run": {"program": 0, "options": {}, "timeout": 10.0},
        "connect_stream": {"handle": "in", "source": np.zeros(8, np.float32)},
        "connect_stream_to_callback": {"handle": "in", "callback": fill},
        "connect_host_function": {"handle": "host", "function": fill},
        "write_tensor": {"handle": "t", "array": np.zeros(8, np.float32)},
        "read_tensor": {"handle": "t", "out": np.zeros(8, np.float32)},
        "copy_to_remote_buffer": {"array": np.zeros(8, np.float32), "handle": "remote"},
        "copy_from_remote_buffer": {"array": np.zeros(8, np.float32), "handle": "remote"},
        "report_timing": {"start": 0, "end": 1},
        "print_profile_summary": {"stream": io.StringIO(), "options": {}},
    }
    for name in methods(poplar.Engine, {"engine"}):
        yield f"Engine.{name}", getattr(engine, name), own.get(name, {})
    exe = engine.executable
    valid = {"graph": s.graph, "programs": [program.Sequence()], "options": {}}
    yield "compile_graph", poplar.compile_graph, valid
    valid = {"what": exe, "options": {}, "threads": 1, "replicas": 1}
    yield "Engine", poplar.Engine, valid
    yield "Executable.save", exe.save, {"path": "/dev/null"}
    yield "Executable.serialize", exe.serialize, {"out": io.BytesIO()}
    yield "Executable.deserialize", exe.deserialize, {"source": io.BytesIO(saved())}


def estimate(vertex: Any, target: Any) -> int:
    return 1


def edge_cases(s: Setting) -> Iterator[Case]:
    flat, edges = s.tensor.flatten(), poplar.Edges.whole(s.tensor, 2)
    own: dict[str, dict[str, Any]] = {
        "whole": {"n": 2, "rank": 1},
        "boxes": {"lo": [[0, 0]], "size": [[1, 2]]},
        "elements": {"index": [0, 1], "rank": 0},
        "flat": {"tensor": flat, "begin": [0], "end": [2]},
        "views": {"tensors": [s.tensor], "rank": 1},
        "nested": {"vptr": [0, 2], "edges": edges},
        "from_runs": {"eptr": [0, 1], "start": [0], "length": [2], "rank": 1},
        "from_records": {
            "eptr": [0, 1],
            "start": [0],
            "length": [2],
            "count": [1],
            "stride": [0],
        },
        "stack": {"parts": [edges, edges]},
        "take": {"index": [1, 0]},
    }
    for name in methods(poplar.Edges, set()):
        yield f"Edges.{name}", getattr(edges, name), own.get(name, {})
    group = s.graph.add_vertices(
        s.cs,
        "Move",
        [0],
        {f: poplar.Edges.whole(t, 1) for f, t in (("x", s.tensor), ("y", s.third))}
        | {"rows": poplar.Edges.nested([0, 1], poplar.Edges.whole(s.tensor, 1))},
    )
    yield "tiles of a group", lambda mapping: s.graph.set_tile_mapping(group, mapping), {}
    cycles = {"cycles": 3, "flops": 1}
    what = "cycles of a group"
    yield what, lambda cycles, flops: s.graph.set_perf_estimate(group, cycles, flops), cycles


def fill(*buffers: Any) -> None:
    for b in buffers[-1:]:
        if isinstance(b, np.ndarray):
            b[:] = 0


@cache
def saved() -> bytes:
    out = io.BytesIO()
    running_engine().executable.serialize(out)
    return out.getvalue()


@cache
def running_engine() -> poplar.Engine:
    """An engine with one of everything, used by all cases: none of them changes its program."""
    s = Setting()
    g = s.graph
    g.create_host_write("t", s.tensor)
    g.create_host_read("t", s.tensor)
    steps = [
        program.Copy(s.into, s.tensor),
        program.Call(s.host, [s.tensor], [s.other]),
        program.Copy(s.remote, s.other),
    ]
    engine = poplar.Engine(g, program.Sequence(steps), threads=1)
    engine.connect_stream("in", np.zeros(8, np.float32))
    engine.connect_host_function("host", fill)
    return engine


def methods(kind: type, without: set[str]) -> list[str]:
    """Public methods of a class."""
    return [n for n in dir(kind) if not n.startswith("_") and n not in without and _calls(kind, n)]


def _calls(kind: type, name: str) -> bool:
    return callable(getattr(kind, name))


FAMILIES: dict[str, Callable[[Setting], Iterator[Case]]] = {
    "graph": graph_cases,
    "tensor": tensor_cases,
    "program": program_cases,
    "machine": machine_cases,
    "engine": engine_cases,
    "edges": edge_cases,
}
