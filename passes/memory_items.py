"""What plan-memory places: shares of variables, receive blocks, stored vertex state; and
charges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.diagnostics import Location
from poplar_py.passes.liveness import Liveness
from poplar_py.passes.memory_plan import Items
from poplar_py.passes.plan_exchange import ExchangePlan
from poplar_py.passes.steps import edge_fields
from poplar_py.passes.tile_module import Places, TileModule
from poplar_py.poplar.arrays import I8, Bools, Ints
from poplar_py.poplar.groups import StateVectors, VertexGroup
from poplar_py.poplar.program import Execute

CONTROL_BYTES = 24
"""Code charged on every tile for one step of the program: a chosen figure."""
EXCHANGE_BYTES = 8
"""Exchange code charged per piece a tile sends or receives: a chosen figure."""


class _Growing:
    """Items while they are collected: the variables, then what is added."""

    def __init__(self, module: TileModule, places: Places, live: np.ndarray) -> None:
        variables = module.graph.variables
        self.item, self.tile = [places.share_var], [places.share_tile]
        self.nbytes = [places.share_bytes]
        self.names = [v.name for v in variables]
        self.locs = [v.loc for v in variables]
        self.live = [live]
        self.always = [live.all(axis=1)]

    def add(self, name: str, loc: Location, on_tile: Ints, row: np.ndarray, *, always: bool) -> int:
        """One more item of `on_tile` int64[tiles] bytes, alive as `row` bool[steps + 1] says."""
        number = len(self.names)
        tiles = np.flatnonzero(on_tile)
        self.item.append(np.full(len(tiles), number, I8))
        self.tile.append(tiles.astype(I8))
        self.nbytes.append(on_tile[tiles])
        self.names.append(name)
        self.locs.append(loc)
        self.live.append(row[None])
        self.always.append(np.array([always]))
        return number

    def items(self) -> Items:
        return Items(
            np.concatenate(self.item),
            np.concatenate(self.tile),
            np.concatenate(self.nbytes),
            np.concatenate(self.live),
            np.concatenate(self.always),
            self.names,
            self.locs,
        )


def collect_items(
    module: TileModule, plan: ExchangePlan, liveness: Liveness
) -> tuple[Items, dict[int, int], dict[tuple[int, int], int]]:
    """Variables first (item v = variable v), then receive blocks, then stored vertex state.

    Also the item of the receive block by compute set, and that of the state by (set, group).
    """
    columns = len(plan.tree.steps) + 1
    growing = _Growing(
        module, plan.places, live_matrix(liveness, len(module.graph.variables), columns - 1)
    )
    executes: dict[int, list[int]] = {}
    for s in plan.tree.steps:
        if isinstance(s.program, Execute):
            executes.setdefault(s.program.compute_set.id, []).append(s.id)
    blocks: dict[int, int] = {}
    for cs in plan.used:
        block = plan.sets[cs.id].block
        if block.any():
            row = np.zeros(columns, np.bool_)
            row[executes[cs.id]] = True
            name = f"receive buffer of {cs.name}"
            blocks[cs.id] = growing.add(name, cs.loc, block, row, always=False)
    states: dict[tuple[int, int], int] = {}
    groups = [((cs.id, k), g) for cs in plan.used for k, g in enumerate(cs.groups)]
    for key, g in groups:
        sizes = stored_bytes(g)
        if sizes is not None:
            total = np.bincount(g.tiles, sizes, module.graph.target.num_tiles).astype(I8)
            name, row = f"state of {g.codelet.name}", np.ones(columns, np.bool_)
            states[key] = growing.add(name, g.loc, total, row, always=True)
    return growing.items(), blocks, states


def stored_bytes(group: VertexGroup) -> Ints | None:
    """Bytes of stored state per vertex of a group, or None."""
    fields = [f for f in group.codelet.fields if f.kind == "state" and not f.literal]
    if not fields:
        return None
    total = np.zeros(group.n, I8)
    for f in fields:
        value = group.state.get(f.name)
        elements = np.ones(group.n, I8)
        if f.rank:
            elements = np.diff(value.ptr) if isinstance(value, StateVectors) else 0 * elements
        total = total + -(-elements * f.dtype.size // 8) * 8
    return total if total.any() else None


def live_matrix(liveness: Liveness, variables: int, steps: int) -> np.ndarray:
    """bool[variables, steps + 1]; the last column is the time between programs."""
    out = np.zeros((steps + 1, variables), np.bool_)
    nbytes = (variables + 7) // 8
    for s, mask in enumerate([*liveness.live, liveness.between]):
        raw = np.frombuffer(mask.to_bytes(nbytes, "little"), np.uint8)
        out[s] = np.unpackbits(raw, count=variables, bitorder="little").astype(np.bool_)
    return np.ascontiguousarray(out.T)


def _state_bytes(g: VertexGroup) -> Ints:
    """Bytes of every vertex's descriptor, int64[n]: its fields and the lists of rank-2 fields."""
    counts = {f.name: np.diff(e.vptr) for f, e in edge_fields(g) if e.vptr is not None}
    return np.broadcast_to(g.codelet.state_bytes_of(counts), (g.n,))


@dataclass
class Charges:
    """What is charged and not stored on the host: ``code``, ``state`` bytes int64[tiles];
    ``kinds``: (name, bytes, bool[tiles] where it is) of every codelet; ``exchange`` int64[tiles]:
    of ``code``, the exchange's."""

    code: Ints
    state: Ints
    kinds: list[tuple[str, int, Bools]]
    exchange: Ints

    def code_on(self, tile: int) -> list[tuple[str, int]]:
        """(name, bytes) of the code of a tile, largest first."""
        found = [(name, size) for name, size, mask in self.kinds if mask[tile]]
        exchange = int(self.exchange[tile])
        control = int(self.code[tile]) - exchange - sum(size for _, size in found)
        found += [("exchange code", exchange), ("control code", control)]
        return sorted(((n, b) for n, b in found if b), key=lambda part: -part[1])


def charged_bytes(plan: ExchangePlan, num_tiles: int) -> Charges:
    """Code and vertex state of every tile: each codelet once per tile, exchange code by pieces,
    control code by steps; a vertex's descriptor with its lists of pointers."""
    exchange, state = np.zeros(num_tiles, I8), np.zeros(num_tiles, I8)
    on_tile: dict[str, tuple[str, int, Bools]] = {}
    for cs in plan.used:
        traffic = plan.sets[cs.id]
        exchange += EXCHANGE_BYTES * (traffic.before.fragments + traffic.after.fragments)
        for g in cs.groups:
            kind = on_tile.get(g.codelet.digest)
            if kind is None:
                kind = (g.codelet.name, int(g.codelet.code_bytes), np.zeros(num_tiles, np.bool_))
                on_tile[g.codelet.digest] = kind
            kind[2][g.tiles] = True
            weights = _state_bytes(g).astype(np.float64)
            state += np.bincount(g.tiles, weights, minlength=num_tiles).astype(I8)
    code = exchange.copy()
    for _, size, mask in on_tile.values():
        code[mask] += size
    code[code > 0] += CONTROL_BYTES * len(plan.tree.steps)
    return Charges(code, state, list(on_tile.values()), exchange)
