"""Random chains of views against one address per element."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from poplar_py.poplar import Edges, Graph, Target, Tensor, align_views, concat
from poplar_py.poplar.enums import TensorCloneMethod
from poplar_py.poplar.layout import memory_order, reorder_to_simplify, sorted_contiguous_regions
from poplar_py.types import f32

Pair = tuple[Tensor, np.ndarray]


def new_graph(tiles: int = 16) -> Graph:
    return Graph(Target.ipu("gc200", 1, tiles))


def fresh(graph: Graph, rng: np.random.Generator, shape: tuple[int, ...]) -> Pair:
    t = graph.add_variable(f32, shape)
    var = graph.variables[-1]
    for _ in range(int(rng.integers(1, 5))):
        a, b = sorted(rng.integers(0, t.numel + 1, 2).tolist())
        part = t.flatten().slice(a, b)
        if rng.random() < 0.5:
            part = part.sub_sample(2) if rng.random() < 0.5 else part.reverse()
        graph.set_tile_mapping(part, int(rng.integers(16)))
    return t, var.base + np.arange(t.numel).reshape(shape)


def factor(rng: np.random.Generator, n: int) -> list[int]:
    out: list[int] = []
    while n > 1 and len(out) < 4:
        d = int(rng.choice([k for k in range(1, n + 1) if n % k == 0]))
        out.append(d)
        n //= d
    return [*out, n]


def step(graph: Graph, rng: np.random.Generator, pair: Pair) -> Pair:
    t, a = pair
    if t.rank == 0 or t.numel == 0:
        return t.reshape([1]) if t.numel else t.flatten(), a.reshape(-1)
    d = int(rng.integers(t.rank))
    n = t.shape[d]
    kind = int(rng.integers(12))
    if kind == 0:
        b, e = sorted(rng.integers(0, n + 1, 2).tolist())
        return t.slice(b, e, d), a[(slice(None),) * d + (slice(b, e),)]
    if kind == 1:
        p = rng.permutation(t.rank).tolist()
        return t.dim_shuffle(p), a.transpose(p)
    if kind in (2, 3):
        s = factor(rng, t.numel)
        rng.shuffle(s)
        return t.reshape(s), a.reshape(s)
    if kind == 4 and t.numel < 400:
        k = int(rng.integers(1, 4))
        return t.broadcast(k, d), np.concatenate([a] * k, axis=d)
    if kind == 5 and t.numel < 400:
        k = int(rng.integers(1, 4))
        return t.upsample(k, d), np.repeat(a, k, axis=d)
    if kind == 6:
        return t.reverse(d), np.flip(a, d)
    if kind == 7:
        k = int(rng.integers(1, 4))
        return t.sub_sample(k, d), a[(slice(None),) * d + (slice(None, None, k),)]
    if kind == 8 and t.numel < 400:
        i = rng.integers(0, n, int(rng.integers(1, 5)))
        return t.take(i, d), np.take(a, i, axis=d)
    if kind == 9 and t.numel < 400:
        shape = list(t.shape)
        shape[d] = int(rng.integers(1, 4))
        u, b = fresh(graph, rng, tuple(shape))
        return concat([t, u], d), np.concatenate([a, b], axis=d)
    if kind == 10:
        i = int(rng.integers(n))
        return t.index(i, d), np.take(a, i, axis=d)
    b = int(rng.integers(0, n + 1))
    parts = [t.slice(b, n, d), t.slice(0, b, d)]
    return concat(parts, d), np.concatenate(
        [a[(slice(None),) * d + (slice(b, n),)], a[(slice(None),) * d + (slice(0, b),)]], axis=d
    )


def chain(graph: Graph, rng: np.random.Generator) -> Pair:
    shape = tuple(rng.integers(1, 9, int(rng.integers(1, 4))).tolist())
    pair = fresh(graph, rng, shape)
    for _ in range(int(rng.integers(0, 8))):
        pair = step(graph, rng, pair)
    return pair


def addresses_of(edges: Edges) -> list[list[int]]:
    edge, start, length = edges.runs()
    out: list[list[int]] = [[] for _ in range(edges.num_edges)]
    for e, s, n in zip(edge.tolist(), start.tolist(), length.tolist(), strict=True):
        out[e] += range(s, s + n)
    return out


@pytest.mark.parametrize("seed", range(12))
def test_chains_equal_dense_addresses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(120):
        g = new_graph()
        t, a = chain(g, rng)
        assert t.shape == a.shape
        assert np.array_equal(t.addresses(), a)
        owners = {v.id for v in g.variables if np.any((a >= v.base) & (a < v.base + v.size))}
        assert {v.id for v in t.variables()} == owners
        assert t.contains_aliases() == (len(np.unique(a)) < a.size)
        assert t.is_contiguous() == bool((np.diff(a.ravel()) == 1).all())
        _, length = t.runs()
        assert (length > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_mapping_and_clone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        g = new_graph()
        t, a = chain(g, rng)
        tile_of = np.full(g.variables[-1].base + g.variables[-1].size + 1, -1)
        for v in g.variables:
            tile_of[v.base : v.base + v.size] = np.repeat(v.mapping.tile, np.diff(v.mapping.bounds))
        m = g.get_tile_mapping(t, require_complete=False)
        got = np.full(t.numel, -1)
        for b, e, k in zip(m.begin, m.end, m.tile, strict=True):
            got[b:e] = k
        assert np.array_equal(got, tile_of[a.ravel()])
        for method in list(TensorCloneMethod):
            c = g.clone(t, method=method)
            assert c.shape == t.shape
            m = g.get_tile_mapping(c, require_complete=False)
            again = np.full(t.numel, -1)
            for b, e, k in zip(m.begin, m.end, m.tile, strict=True):
                again[b:e] = k
            assert np.array_equal(again, got), method
            new = c.addresses().ravel()
            aliased = len(np.unique(a)) < a.size
            if "aliases" in method and not (aliased and "unless" in method):
                assert len(np.unique(new)) == len(np.unique(a))
            else:
                assert len(np.unique(new)) == a.size
            if method == "preserve_order_unless_aliases" and not aliased:
                assert np.array_equal(np.argsort(new), np.argsort(a.ravel()))
            var = g.variables[-1]
            if t.numel:
                assert var.base <= new.min()
                assert new.max() < var.base + var.size


@pytest.mark.parametrize("seed", range(4))
def test_edges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(80):
        g = new_graph()
        t, a = chain(g, rng)
        flat = a.ravel()
        n = int(rng.integers(1, 6))
        assert addresses_of(Edges.whole(t, n)) == [flat.tolist()] * n
        be = np.sort(rng.integers(0, a.size + 1, (n, 2)), axis=1)
        got = addresses_of(Edges.flat(t.flatten(), be[:, 0], be[:, 1]))
        assert got == [flat[b:e].tolist() for b, e in be]
        if t.rank and t.numel:
            lo = np.stack([rng.integers(0, s + 1, n) for s in t.shape], 1)
            size = np.stack([rng.integers(0, s - lo[:, i] + 1) for i, s in enumerate(t.shape)], 1)
            boxes = Edges.boxes(t, lo, size)
            want = [
                a[tuple(slice(x, x + y) for x, y in zip(lo[v], size[v], strict=True))].ravel()
                for v in range(n)
            ]
            assert addresses_of(boxes) == [w.tolist() for w in want]
            assert boxes.sizes().tolist() == [w.size for w in want]
            assert (boxes.stride >= 0).all()
            pick = rng.integers(0, n, 4)
            assert addresses_of(boxes.take(pick)) == [want[i].tolist() for i in pick]
            idx = rng.integers(0, a.size, n)
            assert addresses_of(Edges.elements(t, idx)) == [[int(flat[i])] for i in idx]
            both = Edges.stack([boxes, Edges.elements(t, idx)])
            assert both.sizes().tolist() == [w.size for w in want] + [1] * n


@pytest.mark.parametrize("seed", range(6))
def test_align_views(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    aligned = 0
    for _ in range(80):
        g = new_graph()
        out, a = chain(g, rng)
        others: list[Pair] = []
        for _ in range(2):
            shape = [n if rng.random() < 0.6 else 1 for n in out.shape]
            perm = rng.permutation(out.rank)
            u, b = fresh(g, rng, tuple(shape[p] for p in perm))
            back = np.argsort(perm).tolist()
            u, b = u.dim_shuffle(back), b.transpose(back)
            others.append((u.broadcast_to(out.shape), np.broadcast_to(b, out.shape)))
        blocks = align_views(out, [u for u, _ in others])
        if blocks is None:
            continue
        aligned += 1
        flats = [a.ravel(), *(b.ravel() for _, b in others)]
        want = sorted(zip(*(f.tolist() for f in flats), strict=True))
        got: list[tuple[int, ...]] = []
        for blk in blocks:
            views = [blk.tensor(i).addresses().ravel().tolist() for i in range(3)]
            assert views[0] == sorted(views[0])
            got += zip(*views, strict=True)
        assert sorted(got) == want
    assert aligned > 20


@pytest.mark.parametrize("seed", range(3))
def test_memory_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(80):
        g = new_graph()
        t, a = chain(g, rng)
        assert np.array_equal(memory_order(t).addresses(), np.unique(a))
        other = g.add_variable(f32, t.shape)
        ref, (moved,) = reorder_to_simplify(t, [other])
        assert t.contains_aliases() or (np.diff(ref.addresses()) > 0).all()
        pairs = set(zip(a.ravel().tolist(), other.addresses().ravel().tolist(), strict=True))
        assert set(zip(ref.addresses().tolist(), moved.addresses().tolist(), strict=True)) == pairs
        cuts = np.unique(rng.integers(0, t.numel + 1, 4)).tolist()
        regions = list(zip(cuts[:-1:2], cuts[1::2], strict=False))
        groups = sorted_contiguous_regions(t, regions)
        flat = a.ravel()
        listed: list[int] = []
        for group in groups:
            here = [int(x) for b, e in group for x in flat[b:e]]
            assert here == list(range(here[0], here[0] + len(here)))
            listed += here
        assert sorted(listed) == sorted(int(x) for b, e in regions for x in flat[b:e])


def test_joined_parts_stay_in_their_variables() -> None:
    g = new_graph()
    parts = [g.add_variable(f32, (5, 1)) for _ in range(3)]
    for joined in (concat(parts, 1), concat([p.sub_sample(4) for p in parts])):
        assert [v.id for v in joined.variables()] == [0, 1, 2]
    a, b = g.add_variable(f32, (8,)), g.add_variable(f32, (1,))
    joined = concat([a.sub_sample(3), b])
    assert len(joined.variables()) == 2
    assert concat([a.slice(0, 3), a.slice(3, 8)]).is_contiguous()


def test_blocked_activation_stays_affine() -> None:
    g = new_graph()
    x = g.add_variable(f32, (2, 4, 7, 7, 16))
    nchw = x.dim_shuffle((0, 1, 4, 2, 3)).reshape((2, 64, 7, 7))
    bias = g.add_variable(f32, (64,)).reshape((1, 64, 1, 1)).broadcast_to(nchw.shape)
    blocks = align_views(nchw, [bias])
    assert blocks is not None
    assert len(blocks) == 1
    assert blocks[0].dims == (2, 4, 49, 16)
    assert blocks[0].strides[1] == (0, 16, 0, 1)
    assert [blocks[0].mode(t) for t in range(2)] == ["full", "row"]
    copy = g.clone(nchw)
    again = align_views(nchw, [copy])
    assert again is not None
    assert again[0].dims == (prod(nchw.shape),)
