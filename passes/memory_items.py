"""What plan-memory places: shares of variables, receive blocks, stored vertex state; and
charges."""

from __future__ import annotations

import numpy as np

from poplar_py.passes.liveness import Liveness
from poplar_py.passes.plan_exchange import ExchangePlan
from poplar_py.passes.steps import Step
from poplar_py.passes.tile_module import Items, TileModule
from poplar_py.poplar.arrays import I8, Ints
from poplar_py.poplar.groups import StateVectors, VertexGroup
from poplar_py.poplar.program import Execute

CONTROL_BYTES = 24
"""Code charged on every tile for one step of the program: a chosen figure."""
EXCHANGE_BYTES = 8
"""Exchange code charged per piece a tile sends or receives: a chosen figure."""


def collect_items(
    module: TileModule, plan: ExchangePlan, liveness: Liveness
) -> tuple[Items, dict[int, int], dict[tuple[int, int], int]]:
    """Variables first (item v = variable v), then receive blocks, then stored vertex state."""
    places, tree, used, exchange = plan.places, plan.tree, plan.used, plan.sets
    variables = module.graph.variables
    count, steps = len(variables), len(tree.steps)
    live = live_matrix(liveness, count, steps)
    item, tile, nbytes = [places.share_var], [places.share_tile], [places.share_bytes]
    names = [v.name for v in variables]
    locs = [v.loc for v in variables]
    rows = [live]
    always = live.all(axis=1)
    blocks: dict[int, int] = {}
    by_cs: dict[int, list[Step]] = {}
    for s in tree.steps:
        if isinstance(s.program, Execute):
            by_cs.setdefault(s.program.compute_set.id, []).append(s)
    extra: list[np.ndarray] = []
    for cs in used:
        block = exchange[cs.id].block
        tiles = np.flatnonzero(block)
        if len(tiles) == 0:
            continue
        blocks[cs.id] = len(names)
        add_item(item, tile, nbytes, len(names), tiles, block[tiles])
        names.append(f"receive buffer of {cs.name}")
        locs.append(cs.loc)
        row = np.zeros(steps + 1, np.bool_)
        row[[s.id for s in by_cs[cs.id]]] = True
        extra.append(row)
    states: dict[tuple[int, int], int] = {}
    stored = 0
    for cs in used:
        for k, g in enumerate(cs.groups):
            sizes = stored_bytes(g)
            if sizes is None:
                continue
            states[cs.id, k] = len(names)
            total = np.bincount(g.tiles, sizes, module.graph.target.num_tiles).astype(I8)
            tiles = np.flatnonzero(total)
            add_item(item, tile, nbytes, len(names), tiles, total[tiles])
            names.append(f"state of {g.codelet.name}")
            locs.append(g.loc)
            extra.append(np.ones(steps + 1, np.bool_))
            stored += 1
    if extra:
        rows.append(np.array(extra))
    all_live = np.concatenate(rows)
    fixed = np.concatenate(
        [always, np.zeros(len(extra) - stored, np.bool_), np.ones(stored, np.bool_)]
    )
    items = Items(
        np.concatenate(item),
        np.concatenate(tile),
        np.concatenate(nbytes),
        all_live,
        fixed,
        names,
        locs,
    )
    return items, blocks, states


def add_item(
    item: list[Ints], tile: list[Ints], nbytes: list[Ints], number: int, tiles: Ints, sizes: Ints
) -> None:
    """Append the entries of one more item."""
    item.append(np.full(len(tiles), number, I8))
    tile.append(tiles.astype(I8))
    nbytes.append(sizes)


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


def charged_bytes(exchange: ExchangePlan, num_tiles: int) -> tuple[Ints, Ints]:
    """(code, vertex state) bytes per tile: each codelet once per tile, exchange code by pieces,
    control code by steps; a vertex's descriptor by its codelet's ``state_bytes``."""
    code, state = np.zeros(num_tiles, I8), np.zeros(num_tiles, I8)
    on_tile: dict[str, tuple[int, np.ndarray]] = {}
    for cs in exchange.used:
        plan = exchange.sets[cs.id]
        code += EXCHANGE_BYTES * (plan.before.fragments + plan.after.fragments)
        for g in cs.groups:
            size, mask = on_tile.setdefault(
                g.codelet.digest,
                (int(getattr(g.codelet, "code_bytes", 0)), np.zeros(num_tiles, np.bool_)),
            )
            mask[g.tiles] = True
            each = int(getattr(g.codelet, "state_bytes", 0))
            state += each * np.bincount(g.tiles, minlength=num_tiles)
            on_tile[g.codelet.digest] = (size, mask)
    for size, mask in on_tile.values():
        code[mask] += size
    busy = code > 0
    code[busy] += CONTROL_BYTES * len(exchange.tree.steps)
    return code, state
