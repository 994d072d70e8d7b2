"""Static cycles of one run of each step, from the exchange plan and the codelets' cycle functions.

A vertex goes to the worker lane of its tile that is free first, in order of addition; a tile takes
as many cycles as it has workers times its longest lane (workers take turns). A MultiVertex's figure
is tile cycles already and adds to them. A superstep waits for its slowest tile. Phases add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.diagnostics import Location
from poplar_py.executable.executable import StepInfo
from poplar_py.executable.schedule import MAX_MESSAGES, schedule
from poplar_py.passes.exchange_messages import (
    Messages,
    fetch_messages,
    make_messages,
    store_messages,
)
from poplar_py.passes.exchange_traffic import Traffic, copy_traffic
from poplar_py.passes.plan_exchange import ComputePlan
from poplar_py.passes.steps import Step, edge_fields
from poplar_py.passes.tile_module import Places
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.groups import ComputeSet, StateVectors, VertexGroup
from poplar_py.poplar.tensor import Tensor
from poplar_py.target.cycles import CycleModel
from poplar_py.target.target import Target


def vertex_cycles(g: VertexGroup) -> Ints:
    """Worker cycles (tile cycles of a MultiVertex) of every vertex, int64[n]."""
    own = _codelet_cycles(g)
    given = g.compute_set.graph.given_cycles(g)
    return own if given is None else np.where(given >= 0, given, own)


def _codelet_cycles(g: VertexGroup) -> Ints:
    sizes: dict[str, Ints] = {}
    for f, e in edge_fields(g):
        elements = e.sizes()
        if e.vptr is None:
            sizes[f.name] = elements if f.rank else np.ones(g.n, I8)
            continue
        total = np.zeros(len(elements) + 1, I8)
        np.cumsum(elements, out=total[1:])
        sizes[f.name] = np.diff(e.vptr)
        sizes[f"{f.name}[]"] = total[e.vptr[1:]] - total[e.vptr[:-1]]
    state: dict[str, Any] = {}
    for f in g.codelet.fields:
        if f.kind != "state":
            continue
        value = g.state.get(f.name)
        if f.rank:
            sizes[f.name] = (
                np.diff(value.ptr) if isinstance(value, StateVectors) else np.zeros(g.n, I8)
            )
        elif value is None:
            state[f.name] = np.zeros(g.n, f.dtype.numpy)
        else:
            state[f.name] = value
    cycles = np.asarray(g.codelet.cycles(sizes, state))
    return np.broadcast_to(cycles, (g.n,)).astype(I8)


def tile_cycles(cs: ComputeSet, cost: list[Ints], model: CycleModel) -> Ints:
    """Compute cycles of every tile, int64[tiles]."""
    groups = [(g, c) for g, c in zip(cs.groups, cost, strict=True) if g.n]
    if not groups:
        return np.zeros(model.target.num_tiles, I8)
    tile = np.concatenate([g.tiles for g, _ in groups])
    seq = np.concatenate([g.seq for g, _ in groups])
    cycles = np.concatenate([c for _, c in groups])
    multi = np.concatenate([np.full(g.n, g.codelet.whole_tile, np.bool_) for g, _ in groups])
    if len(groups) > 1:
        order = np.argsort(seq, kind="stable")
        tile, cycles, multi = tile[order], cycles[order], multi[order]
    return model.compute_cycles(tile, cycles, multi)


@dataclass(frozen=True)
class PhaseCycles:
    """One exchange phase: its cycles, the sync before it, and the least it could take (the busiest
    port), in cycles. Parts of its cycles: the busiest tile's bytes, links between IPUs, copies
    within tiles; the rest is fragments and waiting of ports for each other."""

    cycles: int
    sync: int
    bound: int
    data: int = 0
    links: int = 0
    local: int = 0


def exchange_cycles(model: CycleModel, t: Traffic, messages: Messages) -> PhaseCycles:
    """What a phase costs: the makespan of its schedule, on-tile copies, links between IPUs."""
    local = int(model.copy_cycles(t.local).max(initial=0))
    if not t.received.any():
        return PhaseCycles(local, 0, local, local=local)
    extra = np.maximum(t.fragments - 1, 0)
    cost = model.exchange(t.received, t.sent, fragments=extra, traffic=t.between)
    span = bound = cost.data + cost.fragments
    if 0 < len(messages) <= MAX_MESSAGES:
        rate = model.target.exchange_bytes_per_cycle
        each = -(-messages.nbytes // rate) + int(model.target.chip.fragment_cycles.value)
        found = schedule(messages, each, model.target.num_tiles)
        span, bound = found.makespan, found.bound
    rest = cost.links + local
    return PhaseCycles(span + rest, cost.sync, bound + rest, cost.data, cost.links, local)


def compute_step(
    target: Target, cs: ComputeSet, places: Places, plan: ComputePlan, cost: list[Ints]
) -> StepInfo:
    """Cycles of a compute set: exchange before, compute, exchange after."""
    model = cycle_model(target)
    compute = tile_cycles(cs, cost, model)
    fetch = fetch_messages(places, plan.item_tile, plan.fetch)
    store = store_messages(places, plan.item_tile, plan.store)
    before = exchange_cycles(model, plan.before, fetch)
    after = exchange_cycles(model, plan.after, store)
    sync = before.sync + after.sync + model.sync_cycles(1)
    slowest = int(compute.max()) if len(compute) else 0
    busy = int((compute > 0).sum())
    worked = sum(int(c.sum()) for c in cost)
    ipus = compute.reshape(target.num_ipus, -1).max(axis=1)
    return StepInfo(
        cs.name,
        "execute",
        cs.loc,
        compute=slowest,
        exchange=before.cycles + after.cycles,
        exchange_bound=before.bound + after.bound,
        sync=sync,
        ipu_compute=ipus,
        ipu_exchange=_per_ipu(target, plan.before) + _per_ipu(target, plan.after),
        balance=float(compute.sum() / (slowest * busy)) if slowest else 0.0,
        tiles=busy,
        vertices=sum(g.n for g in cs.groups),
        bytes_exchanged=int(plan.before.received.sum() + plan.after.received.sum()),
        bytes_between=int(plan.before.between.sum() + plan.after.between.sum()),
        exchange_data=before.data + after.data,
        exchange_links=before.links + after.links,
        exchange_local=before.local + after.local,
        tile_compute=float(compute.sum()) / target.num_tiles,
        thread_compute=worked / target.num_tiles,
    )


def _per_ipu(target: Target, t: Traffic) -> Ints:
    """Bytes the tiles of each IPU receive."""
    return t.received.reshape(target.num_ipus, -1).sum(axis=1)


def copy_step(target: Target, s: Step, places: Places, src: Tensor, dst: Tensor) -> StepInfo:
    """Cycles of a copy between tensors: one exchange phase."""
    t, moves = copy_traffic(places, src.runs(), dst.runs(), target.tiles_per_ipu)
    phase = exchange_cycles(cycle_model(target), t, make_messages(*moves))
    return StepInfo(
        s.name,
        s.kind,
        s.loc,
        exchange=phase.cycles,
        exchange_bound=phase.bound,
        sync=phase.sync,
        ipu_exchange=_per_ipu(target, t),
        tiles=int(((t.received > 0) | (t.sent > 0) | (t.local > 0)).sum()),
        bytes_exchanged=int(t.received.sum()),
        bytes_between=int(t.between.sum()),
        exchange_data=phase.data,
        exchange_links=phase.links,
        exchange_local=phase.local,
    )


def host_step(
    target: Target,
    name: str,
    kind: str,
    loc: Location,
    tensor: Tensor | None = None,
    places: Places | None = None,
    *,
    out: bool = False,
) -> StepInfo:
    """Cycles of a step with the host (kind stream, remote, ...): its bytes, and the handshake; of
    one without data (a branch): a sync."""
    info = StepInfo(name, kind, loc)
    model = cycle_model(target)
    if tensor is None or places is None:
        info.sync = model.sync_cycles(target.num_ipus)
        return info
    start, length = tensor.runs()
    _, iv, _, n = places.atlas.split(start, length)
    moved = n * places.width[iv]
    ipu = places.atlas.tile[iv] // target.tiles_per_ipu
    per_ipu = np.bincount(ipu, moved, target.num_ipus)
    nothing = np.zeros_like(per_ipu)
    ways = (nothing, per_ipu) if out else (per_ipu, nothing)
    info.bytes_exchanged = int(moved.sum())
    info.host = model.remote_cycles(*ways) if kind == "remote" else model.host_cycles(*ways)
    info.sync = model.host_sync_cycles()
    return info


_models: dict[int, CycleModel] = {}


def cycle_model(target: Target) -> CycleModel:
    """The cycle model of a target (kept by identity: hashing all its figures takes longer)."""
    found = _models.get(id(target))
    if found is None or found.target is not target:
        if len(_models) >= 16:
            _models.clear()
        found = _models[id(target)] = CycleModel(target)
    return found
