"""Exchange plans: delivery, schedules, bytes; the memory plan keeps live things apart."""

from __future__ import annotations

import numpy as np
import pytest
from tests_runtime import RandomProgram, new_graph

from poplar_py.diagnostics import InternalError
from poplar_py.executable.schedule import schedule
from poplar_py.passes.context import PassContext
from poplar_py.passes.exchange_messages import (
    check_delivery,
    check_schedule,
    fetch_messages,
    make_messages,
    store_messages,
)
from poplar_py.passes.memory_plan import Items
from poplar_py.passes.plan_exchange import ExchangePlan
from poplar_py.passes.plan_memory import PlacedMemory, plan_memory
from poplar_py.passes.plan_tiles import plan_tiles
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar.edges import Edges
from poplar_py.poplar.program import Execute
from poplar_py.types import f32


def planned(module: TileModule) -> ExchangePlan:
    plan_tiles(module)
    return module.results["plan-exchange"]


@pytest.mark.parametrize("seed", range(25))
def test_delivery_and_schedule(seed: int) -> None:
    p = RandomProgram(seed, steps=10)
    plan = planned(TileModule(p.graph, [p.prog], ["main"]))
    tiles = p.graph.target.num_tiles
    for cs in plan.used:
        c = plan.sets[cs.id]
        for pieces, make, fetch in (
            (c.fetch, fetch_messages, True),
            (c.store, store_messages, False),
        ):
            m = make(plan.places, c.item_tile, pieces)
            check_delivery(plan.places, c.item_tile, c.item_bytes, pieces, m, fetch=fetch)
            cycles = -(-m.nbytes // 4)
            found = schedule(m, cycles, tiles)
            assert check_schedule(m, found.start, cycles) == found.makespan
            assert found.bound <= found.makespan
        # received bytes, counted from the pieces
        owner, here = plan.places.share_tile[c.fetch.share], c.item_tile[c.fetch.item]
        far = owner != here
        want = np.bincount(here[far], c.fetch.nbytes[far], tiles)
        assert np.array_equal(c.before.received, want)


def test_multicast_is_sent_once_and_halos_are_received_once() -> None:
    g = new_graph()
    x = g.add_variable(f32, (64,), "x", mapping=0)
    y = g.add_variable(f32, (12,), "y", mapping="linear")
    cs = g.add_compute_set("halo")
    begin = [0, 8, 16, 0]  # three overlapping windows on tile 3, the first of them on tile 5 too
    rows = Edges.nested([0, 3, 4], Edges.flat(x, begin, [b + 16 for b in begin]))
    out = Edges.flat(y, [0, 4], [4, 8])
    g.add_vertices(cs, "SumRows", [3, 5], {"rows": rows, "out": out})
    plan = planned(TileModule(g, [Execute(cs)], ["main"])).sets[cs.id]
    assert plan.before.received[3] == 32 * 4
    assert plan.before.received[5] == 16 * 4
    assert plan.before.sent[0] == 32 * 4
    assert plan.block[3] == 128 + 16  # and the output, whose owner is tile 0


def test_a_matrix_is_rearranged_near_the_bound() -> None:
    """Rows spread over all tiles go to tiles that hold parts of the columns: no port is left with
    its messages when the others are done."""
    tiles, rows, parts = 736, 5000, 7
    row, part = (v.ravel() for v in np.indices((rows, parts)))
    source = (row * parts + part) * tiles // (rows * parts)
    first, last = part * tiles // parts, (part + 1) * tiles // parts
    target = first + row * (last - first) // rows
    far = np.flatnonzero(source != target)
    m = make_messages(source[far], target[far], far * 572, np.full(len(far), 572))
    cycles = -(-m.nbytes // 4) + 1
    found = schedule(m, cycles, tiles)
    assert check_schedule(m, found.start, cycles) == found.makespan
    assert found.makespan <= 1.1 * found.bound


def test_check_schedule_finds_faults() -> None:
    one = np.array([1, 1], np.int64)
    m = make_messages(one, np.array([2, 3]), np.array([0, 64]), np.array([8, 8]))
    with pytest.raises(InternalError, match="sends two"):
        check_schedule(m, np.array([0, 1]), np.array([2, 2]))
    m = make_messages(np.array([1, 4]), np.array([2, 2]), np.array([0, 64]), np.array([8, 8]))
    with pytest.raises(InternalError, match="receives two"):
        check_schedule(m, np.array([0, 1]), np.array([2, 2]))
    assert check_schedule(m, np.array([0, 2]), np.array([2, 2])) == 4


@pytest.mark.parametrize("seed", range(20))
def test_memory_plan_keeps_live_things_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, steps, tiles = 30, 20, 12
    live = np.zeros((count, steps + 1), np.bool_)
    for row in live:
        a, b = np.sort(rng.integers(0, steps, 2))
        row[a : b + 1] = True
    always = rng.random(count) < 0.2
    live[always] = True
    pairs = np.argwhere(rng.random((count, tiles)) < 0.6)
    nbytes = rng.integers(1, 400, len(pairs)) * 4
    names = [f"v{k}" for k in range(count)]
    items = Items(pairs[:, 0], pairs[:, 1], nbytes, live, always, names, [])
    zero = np.zeros(tiles, np.int64)
    plan = plan_memory(items, tiles, zero, zero)
    for t in range(tiles):
        mine = np.flatnonzero(pairs[:, 1] == t)
        for i in mine:
            assert plan.at[i] % 8 == 0
            assert plan.at[i] + nbytes[i] <= plan.data[t]
            for j in mine[mine > i]:
                if (live[pairs[i, 0]] & live[pairs[j, 0]]).any():
                    apart = (
                        plan.at[i] + nbytes[i] <= plan.at[j] or plan.at[j] + nbytes[j] <= plan.at[i]
                    )
                    assert apart
    gap = plan.data.sum() / plan.bound.sum()
    assert gap < 1.3


def test_real_memory_plans_keep_live_variables_apart() -> None:
    for seed in range(8):
        p = RandomProgram(seed, steps=12)
        module = TileModule(p.graph, [p.prog], ["main"])
        plan_tiles(module)
        placed: PlacedMemory = module.results["plan-memory"]
        items, plan = placed.items, placed.plan
        begin = plan.base[items.tile] + plan.at
        end = begin + items.nbytes
        order = np.argsort(begin, kind="stable")
        for k, i in enumerate(order):
            for j in order[k + 1 :]:
                if begin[j] >= end[i]:
                    break
                assert not (items.live[items.item[i]] & items.live[items.item[j]]).any()


def test_passes_are_registered() -> None:
    from poplar_py.passes.registry import make_pass

    p = RandomProgram(1)
    module = TileModule(p.graph, [p.prog], ["main"])
    for name in ("map-tiles", "plan-exchange", "liveness", "plan-memory"):
        make_pass(name, {}).run(module, PassContext())
    assert "plan-memory" in module.results


def test_unused_variables_take_no_memory() -> None:
    g = new_graph()
    g.add_variable(f32, (1_000_000,), "unused", mapping=3)
    x = g.add_variable(f32, (16,), "x", mapping=3)
    cs = g.add_compute_set("scale")
    g.add_vertices(cs, "Scale", [3], {"x": Edges.flat(x, [0], [16])}, {"by": 2.0})
    module = TileModule(g, [Execute(cs)], ["main"])
    plan_tiles(module)
    assert module.results["plan-memory"].plan.data[3] == 64
