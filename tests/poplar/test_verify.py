"""Every wrong graph gets an error that names the place and the parts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Edges, Graph, Mapping, Target, concat, errors
from poplar_py.poplar.arrays import offsets_of
from poplar_py.poplar.program import (
    Call,
    Copy,
    Execute,
    If,
    Program,
    Repeat,
    Sequence,
    Switch,
)
from poplar_py.poplar.verify import find_conflict, verify
from poplar_py.types import DType, bool_, f16, f32, i32


@dataclass(frozen=True)
class FakeField:
    name: str
    kind: str
    dtype: DType
    rank: int


@dataclass
class FakeCodelet:
    name: str
    fields: tuple[FakeField, ...]
    multi: bool = False
    used: int = field(default=0)


MOVE = FakeCodelet(
    "Move",
    (
        FakeField("x", "in", f32, 1),
        FakeField("y", "out", f32, 1),
        FakeField("k", "state", f32, 0),
    ),
)
LISTS = FakeCodelet("Lists", (FakeField("rows", "in", f32, 2), FakeField("sum", "out", f32, 0)))


def new_graph() -> Graph:
    g = Graph(Target.ipu("gc200", 1, 8))
    g.codelets.add_codelet(MOVE)  # type: ignore[arg-type]
    g.codelets.add_codelet(LISTS)  # type: ignore[arg-type]
    return g


def random_edges(rng: np.random.Generator, base: int, size: int, n: int) -> Edges:
    per = rng.integers(0, 3, n)
    total = int(per.sum())
    length = rng.integers(1, 4, total)
    count = rng.integers(1, 4, total)
    stride = length + rng.integers(0, 5, total)
    extent = length + (count - 1) * stride
    start = base + rng.integers(0, np.maximum(size - extent, 1))
    return Edges.from_records(offsets_of(per), start, length, count, stride, f32)


def touched(edges: Edges) -> list[set[int]]:
    out: list[set[int]] = [set() for _ in range(edges.num_edges)]
    edge, start, length = edges.runs()
    for e, s, n in zip(edge.tolist(), start.tolist(), length.tolist(), strict=True):
        out[e].update(range(s, s + n))
    return out


@pytest.mark.parametrize("seed", range(12))
def test_conflicts_against_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = {True: 0, False: 0}
    for _ in range(60):
        g = new_graph()
        size = int(rng.choice([40, 400, 3000]))
        x = g.add_variable(f32, (size,), "x", 0)
        cs = g.add_compute_set("cs")
        reads: list[set[int]] = []
        writes: list[set[int]] = []
        for _ in range(2):
            n = int(rng.integers(1, 6))
            base = g.get_variable(x).base
            e, f = (random_edges(rng, base, size, n) for _ in range(2))
            g.add_vertices(cs, MOVE, rng.integers(0, 8, n), {"x": e, "y": f})
            reads += touched(e)
            writes += touched(f)
        m = len(reads)
        double = any(writes[a] & writes[b] for a in range(m) for b in range(a))
        mixed = any(writes[a] & reads[b] for a in range(m) for b in range(m) if a != b)
        found = find_conflict(cs.groups)
        assert (found is not None) == (double or mixed)
        if found is None:
            continue
        a, b, address, both = found
        kinds[both] += 1
        assert both == double
        assert a != b
        assert address in writes[a]
        assert address in (writes[b] if both else reads[b])
    assert min(kinds.values()) > 2


def lines_of(error: PoplarPyError) -> str:
    return str(error)


def test_conflict_names_both_vertices() -> None:
    g = new_graph()
    x = g.add_variable(f32, (16,), "x", 0)
    y = g.add_variable(f32, (16,), "total", 0)
    cs = g.add_compute_set("step one")
    for i in range(2):
        v = g.add_vertex(cs, "Move", {"x": x.slice(0, 4), "y": y.slice(3 * i, 3 * i + 4)})
        g.set_tile_mapping(v, i + 1)
    with pytest.raises(errors.WriteConflict) as info:
        verify(g, [Execute(cs)])
    text = lines_of(info.value)
    assert "element 3 of variable 'total'" in text
    assert "vertex 0 of Move" in text
    assert "vertex 1 of Move" in text
    assert "'step one' on tile 2" in text
    assert info.value.loc.file == __file__


def test_read_of_a_write() -> None:
    g = new_graph()
    x = g.add_variable(f32, (16,), "x", 0)
    cs = g.add_compute_set()
    for i in range(2):
        v = g.add_vertex(cs, "Move", {"x": x.slice(4 * i, 4 * i + 4), "y": x.slice(8, 12 + i)})
        g.set_tile_mapping(v, 0)
    with pytest.raises(errors.WriteConflict, match="written by"):
        verify(g, [Execute(cs)])


def test_own_overlap_is_allowed() -> None:
    g = new_graph()
    x = g.add_variable(f32, (16,), "x", 0)
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Move", {"x": x, "y": x})
    g.set_tile_mapping(v, 0)
    verify(g, [Execute(cs)])


def test_unmapped() -> None:
    g = new_graph()
    x = g.add_variable(f32, (16,), "x")
    y = g.add_variable(f32, (16,), "y", 1)
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Move", {"x": x, "y": y})
    with pytest.raises(errors.InvalidTileMapping, match="is on no tile"):
        verify(g, [Execute(cs)])
    g.set_tile_mapping(v, 3)
    with pytest.raises(errors.InvalidTileMapping, match="element 0 of variable 'x'"):
        verify(g, [Execute(cs)])
    g.set_tile_mapping(x.slice(0, 7), 3)
    with pytest.raises(errors.InvalidTileMapping, match="element 7 of variable 'x'"):
        verify(g, [Execute(cs)])
    with pytest.raises(errors.InvalidTileMapping, match=r"element 7 .* copy"):
        verify(g, [Copy(x, y)])
    g.set_tile_mapping(x.slice(7, 16), 3)
    verify(g, [Execute(cs)])
    unused = g.add_variable(f32, (4,), "unused")
    verify(g, [Execute(cs)])
    g.create_host_read("out", unused)
    with pytest.raises(errors.InvalidTileMapping, match="host handle 'out'"):
        verify(g, [Execute(cs)])


def test_tiles_out_of_range() -> None:
    g = new_graph()
    x = g.add_variable(f32, (16,), "x")
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Move", {"x": x, "y": x})
    for call in (
        lambda: g.set_tile_mapping(v, 8),
        lambda: g.set_tile_mapping(x, -1),
        lambda: g.set_tile_mapping(x, [[]] * 9),
        lambda: g.set_tile_mapping(x, [[(0, 17)]]),
        lambda: g.add_variable(f32, (4,), "z", 8),
        lambda: g.add_variable(f32, (4,), "z", "round robin"),
        lambda: g.add_variable(f32, (4,), "z", Mapping([0, 3], [1])),
        lambda: g.add_variable(f32, (4,), "z", Mapping([0, 4], [9])),
        lambda: g.add_vertices(cs, MOVE, [9], {"x": Edges.whole(x, 1), "y": Edges.whole(x, 1)}),
    ):
        with pytest.raises(errors.InvalidTileMapping) as info:
            call()
        assert info.value.loc.file == __file__


def test_connections() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4, 4), "x", 0)
    h = g.add_variable(f16, (4,), "h", 0)
    cs = g.add_compute_set()
    flat = x.flatten()
    for edges, kind, match in (
        ({"x": x}, errors.GraphConnectionError, "rank 1, the tensor 2"),
        ({"x": h}, errors.TensorTypeError, "f32, the tensor f16"),
        ({"z": flat}, errors.UnknownField, "its fields: x, y, k"),
        ({"k": flat}, errors.GraphConnectionError, "is state"),
        ({"x": [flat]}, errors.GraphConnectionError, "rank 1"),
    ):
        with pytest.raises(kind, match=match) as info:
            g.add_vertex(cs, "Move", edges)
        assert info.value.loc.file == __file__
    with pytest.raises(errors.UnknownVertexType, match="Mov"):
        g.add_vertex(cs, "Mov")
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Move", {"x": flat})
    with pytest.raises(errors.GraphConnectionError, match=r"'y' of vertex 0 .* not connected"):
        verify(g, [Execute(cs)])
    g.connect(v["y"], flat.slice(0, 4))
    g.connect(v["y"], flat.slice(4, 8))
    with pytest.raises(errors.UnknownField):
        g.set_initial_value(v["q"], 1)
    with pytest.raises(errors.GraphConnectionError, match="is an edge"):
        g.set_initial_value(v["x"], 1)


def test_jagged_fields() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4, 6), "x", 0)
    s = g.add_variable(f32, (4,), "s", 0)
    cs = g.add_compute_set()
    a = g.add_vertex(cs, "Lists", {"rows": [x[0], x[1].slice(2, 4)], "sum": s[0]})
    b = g.add_vertex(cs, "Lists", {"sum": s[1]})
    g.set_field_size(b["rows"], 3)
    g.connect(b["rows"][2], x[3])
    g.connect(b["rows"][0], x[2].slice(1, 2))
    c = g.add_vertex(cs, "Lists", {"rows": x, "sum": s[2]})
    for i, v in enumerate((a, b, c)):
        g.set_tile_mapping(v, i)
    (group,) = cs.groups
    rows = group.edges["rows"]
    assert rows.rank == 2
    assert rows.vptr is not None
    assert rows.vptr.tolist() == [0, 2, 5, 9]
    assert rows.sizes().tolist() == [6, 2, 1, 0, 6, 6, 6, 6, 6]
    assert rows.start.tolist() == [0, 8, 13, 18, 0, 6, 12, 18]
    assert group.edges["sum"].start.tolist() == [25, 26, 27]
    verify(g, [Execute(cs)])
    g.add_vertex(cs, "Lists", {"sum": s[3]})
    with pytest.raises(errors.GraphConnectionError, match="'rows' of vertex 3"):
        verify(g, [Execute(cs)])


def test_groups_of_arrays() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4, 8), "x", 0)
    h = g.add_variable(f16, (4, 8), "h", 0)
    cs = g.add_compute_set()
    whole = Edges.whole(x, 2)
    for edges, state, kind in (
        ({"x": whole}, {}, errors.GraphConnectionError),
        ({"x": whole, "y": Edges.whole(x, 3)}, {}, errors.GraphConnectionError),
        ({"x": whole, "y": Edges.whole(h, 2)}, {}, errors.TensorTypeError),
        ({"x": whole, "y": whole, "z": whole}, {}, errors.UnknownField),
        ({"x": whole, "y": Edges.nested([0, 1, 2], whole)}, {}, errors.GraphConnectionError),
        ({"x": whole, "y": whole}, {"q": 1}, errors.UnknownField),
        ({"x": whole, "y": whole}, {"k": [1, 2, 3]}, errors.TensorCreationError),
    ):
        with pytest.raises(kind) as info:
            g.add_vertices(cs, MOVE, [0, 1], edges, state)
        assert info.value.loc.file == __file__
    for lo, size in (([[0, 4]], [[1, 5]]), ([[-1, 0]], [[1, 1]]), ([[0]], [[1]])):
        with pytest.raises(errors.TensorIndexError):
            Edges.boxes(x, lo, size)
    with pytest.raises(errors.TensorIndexError):
        Edges.elements(x, [32])
    with pytest.raises(errors.TensorIndexError):
        Edges.flat(x.flatten(), [3], [2])
    outside = Edges.from_runs([0, 1, 2], [0, 30], [4, 4])
    g.add_vertices(cs, MOVE, [0, 1], {"x": outside, "y": Edges.flat(x.flatten(), [0, 4], [4, 8])})
    with pytest.raises(errors.TensorIndexError, match="leaves its variable"):
        verify(g, [Execute(cs)])


def test_constants_and_aliases_are_not_written() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", 0)
    c = g.add_constant(f32, (4,), 1.5, "one and a half", 0)
    with pytest.raises(errors.AliasedWrite, match="constant"):
        Copy(x, c)
    with pytest.raises(errors.AliasedWrite, match="more than once"):
        Copy(g.add_variable(f32, (8,)), x.broadcast(2))
    cs = g.add_compute_set()
    v = g.add_vertex(cs, "Move", {"x": x, "y": c})
    g.set_tile_mapping(v, 0)
    with pytest.raises(errors.GraphConnectionError, match="one and a half"):
        verify(g, [Execute(cs)])
    with pytest.raises(errors.TensorTypeError):
        g.set_initial_value(c, 1)


def test_program_arguments() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4,), "x", 0)
    n = g.add_variable(i32, (), "n", 0)
    b = g.add_variable(bool_, (), "b", 0)
    fifo = g.add_host_to_device_fifo("in", f32, 4)
    up = g.add_device_to_host_fifo("out", f32, 4)
    rows = g.add_remote_buffer("rows", f32, 2, 10)
    Copy(fifo, x)
    Copy(x, up)
    Copy(rows, x.slice(0, 2))
    Copy(rows, x, g.add_variable(i32, (2,)))
    for call in (
        lambda: Copy(x, n),
        lambda: Copy(x, x.slice(0, 2)),
        lambda: Copy(up, x),
        lambda: Copy(x, fifo),
        lambda: Copy(fifo, up),
        lambda: Copy(rows, x),
        lambda: Execute(g.add_compute_set(), x),
        lambda: If(x, Sequence()),
        lambda: Repeat(-1, Sequence()),
        lambda: Switch(n, [(1, Sequence()), (1, Sequence())]),
        lambda: g.add_host_to_device_fifo("in", f32, 4),
        lambda: g.create_host_read("h", x) or g.create_host_read("h", x),
    ):
        with pytest.raises(errors.GraphError) as info:
            call()
        assert info.value.loc.file == __file__
    If(b, Sequence())


def test_programs_do_not_contain_themselves() -> None:
    g = new_graph()
    a, b = Sequence(), Sequence()
    a.add(Repeat(2, b))
    b.add(Repeat(2, a))
    with pytest.raises(errors.GraphError, match="contains itself"):
        verify(g, [a])
    body = Sequence()
    f = g.add_function(body, "f")
    body.add(Call(f))
    with pytest.raises(errors.GraphError, match="'f' calls itself"):
        verify(g, [Call(f)])


def test_tensor_errors() -> None:
    g = new_graph()
    x = g.add_variable(f32, (4, 6), "x", 0)
    h = g.add_variable(f16, (4, 6), "h", 0)
    calls: list[object] = [
        lambda: x.slice(0, 5),
        lambda: x.slice(3, 2),
        lambda: x.slice(0, 1, 2),
        lambda: x[4],
        lambda: x[0, 0, 0],
        lambda: x.reshape((5, 5)),
        lambda: x.reshape((-1, -1)),
        lambda: x.dim_shuffle((0, 0)),
        lambda: x.squeeze([0]),
        lambda: x.take([4]),
        lambda: x.sub_sample(0),
        lambda: x.broadcast(-1),
        lambda: x.upsample(2, 0, "linear"),
        lambda: x.broadcast_to((3, 6)),
        lambda: x.reinterpret(f16),
        lambda: concat([x, h]),
        lambda: concat([x, x.slice(0, 3, 1)]),
        lambda: concat([]),
        lambda: bool(x),
        lambda: x.flatten(1, 4),
        lambda: x.expand([3]),
        lambda: x.reshape_partial(1, 3, (6,)),
        lambda: x.dim_roll(2, 0),
        lambda: g.add_variable(f32, (-1,)),
        lambda: g.add_variable(f32, (1 << 21, 1 << 21)),
        lambda: g.add_constant(f32, (3,), [1, 2]),
        lambda: g.clone(x, method="quickly"),
    ]
    for call in calls:
        with pytest.raises(errors.GraphError) as info:
            call()  # type: ignore[operator]
        assert info.value.loc.file == __file__
        assert "-->" in str(info.value)


def test_programs_are_walked_in_order() -> None:
    a, b, c = Sequence(name="a"), Sequence(name="b"), Sequence(name="c")
    names = [p.name for p in Sequence(a, Repeat(2, b, "r"), c, name="top").walk()]
    assert names == ["top", "a", "r", "b", "c"]
    assert isinstance(a, Program)
