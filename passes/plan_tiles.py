"""All tile passes in order, those that did not run yet: map-tiles to plan-memory.

Level: tile. `plan_tiles` is what building an executable starts with; a pipeline may have run some
or all of the passes before, with options of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.passes.check_memory import CheckMemory
from poplar_py.passes.context import PassContext
from poplar_py.passes.liveness import FindLiveness, Liveness
from poplar_py.passes.map_tiles import MapTiles
from poplar_py.passes.memory_plan import Items
from poplar_py.passes.plan_exchange import ComputePlan, PlanExchange
from poplar_py.passes.plan_memory import MemoryPlan, PlacedMemory, PlanMemory
from poplar_py.passes.registry import Pass
from poplar_py.passes.steps import StepTree
from poplar_py.passes.tile_module import Places, TileModule


@dataclass
class TilePlan:
    """Results of the tile passes together; see ExchangePlan, Liveness, PlacedMemory."""

    places: Places
    tree: StepTree
    liveness: Liveness
    exchange: dict[int, ComputePlan]
    items: Items
    memory: MemoryPlan
    blocks: dict[int, int]
    states: dict[tuple[int, int], int]


def plan_tiles(module: TileModule, *, allow_out_of_memory: bool = False) -> TilePlan:
    """Run the passes that are missing. Raises OutOfTileMemory unless that is allowed."""
    ctx = PassContext(target=module.graph.target)
    steps: list[Pass] = [
        MapTiles(),
        PlanExchange(),
        FindLiveness(),
        PlanMemory(allow_out_of_memory),
    ]
    if not allow_out_of_memory and "plan-exchange" not in module.results:
        steps.insert(1, CheckMemory())
    for step in steps:
        if step.name not in module.results:
            step.run(module, ctx)
    exchange = module.results["plan-exchange"]
    placed: PlacedMemory = module.results["plan-memory"]
    return TilePlan(
        exchange.places,
        exchange.tree,
        module.results["liveness"],
        exchange.sets,
        placed.items,
        placed.plan,
        placed.blocks,
        placed.states,
    )
