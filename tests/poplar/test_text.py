"""Tile-level text: print, parse, print gives the same bytes, and bad text gives located errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poplar_py.diagnostics import Location, PoplarPyError
from poplar_py.poplar import Edges, Graph, Mapping, Target, concat
from poplar_py.poplar import program as prog
from poplar_py.poplar.int_text import ints_text
from poplar_py.poplar.tile_parse import TileText, is_tile_text, parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.poplar.tile_tokens import Tokens
from poplar_py.poplar.verify import verify
from poplar_py.target import SYSTEMS, Figure
from poplar_py.types import bool_, f16, f32, i32, u32

SOURCE = """
@vertex
class Scale(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    k: f32
    steps: Vector[u32]
    def compute(self) -> bool:
        for i in range(len(self.y)):
            self.y[i] = self.x[i] * self.k
        return True

@vertex
class SumRows(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[f32]
    def compute(self) -> bool:
        total = f32(0)
        for r in range(len(self.rows)):
            for i in range(len(self.rows[r])):
                total += self.rows[r][i]
        self.out = total
        return True
"""


def again(text: str, tables: dict[str, Any] | None = None) -> TileText:
    found = parse_tile_module(text, "again.pir", tables)
    assert print_tile_module(found.graph, found.programs, found.names, name=found.name) == text
    return found


def parse_ints(text: str, tables: dict[str, Any]) -> np.ndarray:
    t = Tokens(text, "", lambda key, _: tables[key])
    out = t.ints()
    assert t.kind == "end"
    return out


@pytest.mark.parametrize("seed", range(8))
def test_integer_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(250):
        x = np.zeros(1, np.int64) + int(rng.integers(-5, 99))
        for _ in range(int(rng.integers(0, 4))):
            k = int(rng.integers(1, 9))
            regular = rng.random() < 0.6
            d = np.arange(k) * int(rng.integers(-3, 50))
            x = (x[:, None] + (d if regular else np.cumsum(rng.integers(0, 3, k)) * 8)).ravel()
        if rng.random() < 0.2 and len(x) > 2:
            x[int(rng.integers(len(x)))] += 1
        if rng.random() < 0.1:
            x = rng.integers(-(1 << 40), 1 << 40, int(rng.integers(0, 300)))
        tables: dict[str, Any] = {}
        text = ints_text(x, tables)
        y = parse_ints(text, tables)
        assert np.array_equal(x, y)
        assert ints_text(y, {}) == text


def test_regular_arrays_are_short() -> None:
    k, m, n = (a.ravel() for a in np.indices((4, 16, 23)))
    assert ints_text(k * 6144 + m * 24576, {}) == "0[4x6144,16x24576,23x0]"
    assert ints_text(np.arange(1472), {}) == "0[1472x1]"
    assert ints_text(np.zeros(0, np.int64), {}) == "()"
    assert ints_text(np.array([5, 1, 2, 9]), {}) == "(5[2x-4],2,9)"
    assert n.sum()


def everything(rng: np.random.Generator) -> tuple[Graph, list[prog.Program]]:
    g = Graph(Target.of("m2000", 2, 8), replication_factor=2)
    g.add_codelets(SOURCE, file="scale.py")
    x = g.add_variable(f32, (6, 8), "x", "linear")
    y = g.add_variable(f32, (6, 8), "x", 3)
    z = g.add_variable(f32, (48,), "a long name", Mapping([0, 7, 9, 48], [3, -1, 2]))
    h = g.add_variable(f16, (6, 8), "h", "linear")
    b = g.add_variable(bool_, (), "b", 0)
    i = g.add_variable(i32, (), "i", 0)
    c = g.add_constant(f32, (48,), rng.standard_normal(48).astype(np.float32), "c", 1)
    g.add_constant(f32, (3,), [1, np.nan, np.inf], "small", 0)
    g.add_constant(i32, (100,), 7, "same", 0)
    g.set_initial_value(z.slice(2, 5), [1, 2, 3])
    g.variables[1].always_live = True
    g.add_variable(f32, (0, 3), "nothing")
    fifo = g.add_host_to_device_fifo("in", f32, 48, options={"bufferingDepth": "3"})
    up = g.add_device_to_host_fifo("out", f32, 48)
    remote = g.add_remote_buffer("rows", f32, 48, 5)
    host = g.add_host_function("f", [(f32, 48)], [(f32, 48)])
    g.create_host_write("w", x.transpose())
    g.create_host_read("r", concat([x.flatten().slice(3, 9), z.slice(1, 4)]))
    g.create_host_read("r2", z.take([4, 1, 40, 41, 42]))
    g.create_host_read("none", z.slice(3, 3))

    cs = g.add_compute_set("one at a time")
    for k in range(4):
        v = g.add_vertex(cs, "Scale", {"x": x.slice(k, k + 1).flatten(), "y": y[k]})
        g.set_tile_mapping(v, k)
        g.set_initial_value(v["k"], 0.5 * k)
        g.set_initial_value(v["steps"], list(range(k)))
        if k == 2:
            g.set_perf_estimate(v, 100, 7)
        w = g.add_vertex(cs, "SumRows", {"rows": [x[k], x[5].slice(0, k)], "out": z[k]})
        g.set_tile_mapping(w, k)
    many = g.add_compute_set("many", loc=Location("model.onnx", 0, 0, "conv_1", 3, "y"))
    tiles = np.arange(6)
    flat = y.flatten()
    g.add_vertices(
        many,
        "Scale",
        tiles,
        {
            "x": Edges.boxes(x, np.stack([tiles, tiles % 3], 1), np.full((6, 2), 1) * [1, 4]),
            "y": Edges.flat(flat, tiles * 8, tiles * 8 + 4),
        },
        {"k": rng.standard_normal(6).astype(np.float32), "steps": np.arange(12).reshape(6, 2)},
        order=np.stack([tiles % 2, tiles], 1),
        name="scale all",
        perf=50,
    )
    g.add_vertices(
        many,
        "SumRows",
        [0, 1],
        {
            "rows": Edges.nested(
                [0, 3, 4],
                Edges.boxes(x, [[0, 0], [1, 2], [2, 0], [3, 3]], [[2, 3], [3, 2], [1, 1], [2, 4]]),
            ),
            "out": Edges.elements(z, [20, 30]),
        },
    )
    body = prog.Sequence(prog.Copy(x, y), prog.Execute(many, b), name="body")
    f = g.add_function(prog.Sequence(prog.Copy(z, c.graph.clone(z))), "shared")
    nested = prog.Sequence(
        prog.Repeat(3, body, "three times"),
        prog.Sequence(prog.WriteUndef(y)),
        prog.If(b, prog.Copy(x, y), None),
        prog.Switch(i, [(1, prog.Copy(fifo, z)), (-2, prog.Sequence())], prog.Abort("no case")),
        prog.RepeatWhileTrue(prog.Execute(many, b), b, prog.Call(f)),
        prog.RepeatWhileFalse(prog.Sequence(), b, prog.Sync("global")),
        prog.Copy(z, up),
        prog.Copy(remote, z, i),
        prog.Copy(z, remote),
        prog.Call(host, [z], [y]),
        prog.PrintTensor("title", x.reverse(1).sub_sample(2, 1)),
        prog.PrintTensor(h, fmt=prog.PrintTensorFmt(precision=2)),
        prog.Block(prog.AbortOnCondition(b, 'said "stop"\n')),
        prog.ErrorProgram("bad", z),
        prog.CrossReplicaCopy(x, y, {0: 1, 1: 0}),
        prog.AssumeEqualAcrossReplicas(b),
        prog.CycleCount(prog.Sequence(), g.add_variable(u32, (2,), "t", 0), 1),
        prog.Copy(h.reinterpret(f16).dim_shuffle((1, 0)), g.add_variable(f16, (8, 6))),
    )
    return g, [nested, prog.Loop(prog.Execute(cs))]


@pytest.mark.parametrize("seed", range(3))
def test_everything_round_trips(seed: int) -> None:
    g, programs = everything(np.random.default_rng(seed))
    for inline in (False, True):
        tables: dict[str, Any] = {}
        text = print_tile_module(
            g, programs, ["main", ""], resources=tables, inline_resources=inline, name="a b"
        )
        found = parse_tile_module(text, "x.pir", None if inline else tables)
        more = print_tile_module(
            found.graph, found.programs, found.names, inline_resources=inline, name=found.name
        )
        assert more == text
        new = found.graph
        assert new.target == g.target
        assert new.replication_factor == 2
        for v, w in zip(g.variables, new.variables, strict=True):
            assert (v.name, v.base, v.shape, v.dtype) == (w.name, w.base, w.shape, w.dtype)
            assert v.mapping == w.mapping
            for a, b in ((v.constant, w.constant), (v.initial, w.initial)):
                assert (a is None) == (b is None)
                if a is not None and b is not None:
                    assert a.tobytes() == b.tobytes()
        for cs, other in zip(g.compute_sets, new.compute_sets, strict=True):
            for p, q in zip(cs.groups, other.groups, strict=True):
                assert np.array_equal(p.tiles, q.tiles)
                assert np.array_equal(p.seq, q.seq)
                for name, e in p.edges.items():
                    o = q.edges[name]
                    for at in ("eptr", "start", "length", "count"):
                        assert np.array_equal(getattr(e, at), getattr(o, at))
                assert [p.location(i) for i in range(p.n)] == [q.location(i) for i in range(q.n)]
        assert new.host_reads["r"].addresses().tolist() == g.host_reads["r"].addresses().tolist()
        assert is_tile_text(text)


def test_custom_machine() -> None:
    lab = replace(
        SYSTEMS["pod16"],
        name="lab",
        hop_latency=Figure(1e-6, "s", "measured", "twice"),
        chip=replace(SYSTEMS["pod16"].chip, tiles=Figure(100, "", "chosen")),
        links=((0, 1, 4),),
    )
    for target in (
        Target.of(lab, 3),
        Target.cpu(),
        Target.ipu("bow", 5, 17),
        Target.ipu("gc2"),
        Target.of("pod64", 64),
    ):
        text = print_tile_module(Graph(target), [])
        assert again(text).graph.target == target


def test_without_locations() -> None:
    g, programs = everything(np.random.default_rng(0))
    text = print_tile_module(g, programs, locations=False, resources=(tables := {}))
    assert "loc(" not in text.partition("\ncodelet")[0]
    found = parse_tile_module(text, "x.pir", tables)
    assert print_tile_module(found.graph, found.programs, found.names) == text


GOOD = """tile @t target "gc200" ipus 1 tiles 4 {
  var %x: f32[8] map 0[4x2] on 0[4x1]
  var %y: f32[8] map 0 on 0
  compute_set @c {
    vertices "Copy" 2 tiles 0[2x1] {
      x %x at 0[2x4] len 4[2x0]
      y %y at 0[2x4] len 4[2x0]
    }
  }
  program {
    execute @c
    copy %x -> f32[8] %y + 0 (8x1)
  }
}

codelet "Copy" vertex {
  in x: f32 rank 1
  out y: f32 rank 1
} do {
  return true: bool
}
"""


def test_small_text() -> None:
    found = parse_tile_module(GOOD, "good.pir")
    verify(found.graph, found.programs)
    assert found.graph.compute_sets[0].groups[0].edges["y"].start.tolist() == [9, 13]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("tiles 0[2x1]", "tiles 3[2x1]", "tile the target does not have"),
        ("x %x at 0[2x4]", "x %x at 2[2x4]", "outside their variable"),
        ("x %x at 0[2x4]", "x %x at 0[3x4]", "3 numbers where 2"),
        ("x %x at 0[2x4]", "x %q at 0[2x4]", "%q is not there"),
        ("len 4[2x0]", "len -4[2x0]", "negative size"),
        ("len 4[2x0]", "len 4[2x0] rows 2[2x0] step 4611686018427387904[2x0]", "impossible|within"),
        ('"Copy" 2', '"Cpy" 2', "no codelet"),
        ("execute @c", "execute @d", "@d is not there"),
        ("execute @c", "call 3", "function 3 is called"),
        ("execute @c", "jump @c", "unknown step 'jump'"),
        ("execute @c", "sync sideways", "unknown sync"),
        ("+ 0 (8x1)", "+ 1 (8x1)", "leaves variable 'y'"),
        ("f32[8] %y + 0 (8x1)", "f32[7] %y + 0 (8x1)", "as \\[7\\]"),
        ("f32[8] %y + 0 (8x1)", "f16[8] %y + 0 (8x1)", "read as f16"),
        ("map 0 on 0", "map 0 on 9", "tile 9"),
        ("map 0 on 0", "map 1 on 0", "starts at 0"),
        ("var %y", "var %x", "there twice"),
        ("f32[8] map 0 on 0", "f32[8] const i32[1] dense<1>", "int32"),
        ("f32[8] map 0 on 0", "f32[8] const f32[8] dense<sha256:00>", "not at hand"),
        ("0[4x2]", "0[99999999999x2]", "too large"),
        ("0[4x2]", "0[9999999x2,9999999x3]", "too large"),
        ("tiles 4", "tiles 0", "not within"),
        ('"gc200"', '"gc201"', "unknown system"),
        ("program {", "bogus {", "unknown item"),
        ("  }\n}\n\ncodelet", "  }\n\ncodelet", "codelet|wanted|unknown"),
        ("execute @c", "repeat 2 { " * 300 + "}" * 300, "nested more"),
        ("execute @c", "copy f32[8] " + "cat 0 (" * 300 + "%x + 0 (8x1)", "nested too deeply"),
        ("execute @c", "~", "unexpected character"),
        ("in x: f32 rank 1", "in x: f32 rank 2", "subs"),
        ('codelet "Copy"', 'codelet "Other"', "no codelet"),
        ("tile @t", "module @t", "tile or codelet"),
    ],
)
def test_bad_text(old: str, new: str, match: str) -> None:
    assert old in GOOD
    with pytest.raises(PoplarPyError, match=match) as info:
        parse_tile_module(GOOD.replace(old, new, 1), "bad.pir")
    assert info.value.loc.file == "bad.pir"
    assert "bad.pir:" in str(info.value)


def test_types_are_checked_after_reading() -> None:
    found = parse_tile_module(GOOD.replace("in x: f32", "in x: f16"), "bad.pir")
    with pytest.raises(PoplarPyError, match="holds f16, variable 'x' f32"):
        verify(found.graph, found.programs)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, programs = everything(rng)
    text = print_tile_module(g, programs, inline_resources=True)
    for _ in range(25):
        kind, at = int(rng.integers(3)), int(rng.integers(len(text)))
        if kind == 0:
            bad = text[:at]
        elif kind == 1:
            bad = text[:at] + text[at + int(rng.integers(1, 9)) :]
        else:
            bad = text[:at] + str(rng.choice(list('0123456789x[](){}%@",:-> '))) + text[at + 1 :]
        try:
            found = parse_tile_module(bad, "bad.pir")
            verify(found.graph, found.programs)
        except PoplarPyError as error:
            str(error)
