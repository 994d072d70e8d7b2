"""place: say which IPU computes each op.

Before, for a machine of two IPUs:

    %h: f32[8,512] = nn.matmul(%x, %w1)
    %y: f32[8,10] = nn.matmul(%h, %w2)

After:

    %h: f32[8,512] = nn.matmul(%x, %w1) {ipu=0}
    %y: f32[8,10] = nn.matmul(%h, %w2) {ipu=1}

The ops stay in order and are cut into one run of neighbours per IPU, so a value crosses to a later
IPU only; an element-wise op stays with the op in front that it reads. The cut minimises the largest
stage under the memory cap: an exact chain partition for the cost model below, by bisection on the
bottleneck with a greedy test. Ops that `on ipu N` placed keep their place; then nothing is
balanced, and an op without a place follows its operands.

On one IPU nothing is annotated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poplar_py.diagnostics import OptionError, OutOfTileMemory
from poplar_py.ir import ELEMENTWISE, Graph, Module, Op, Value
from poplar_py.passes.context import PassContext
from poplar_py.passes.registry import Pass, register
from poplar_py.target import Target

__all__ = ["Place", "Stage", "chain_partition", "estimate_bytes", "op_cost"]

MEMORY_SHARE = 0.75
"""Part of an IPU's memory that weights may take; the rest is for activations, code, exchange."""

_STEP_CYCLES = 400.0
"""Cost of any op beyond its arithmetic: a sync and an exchange (a few hundred cycles each)."""


@dataclass(frozen=True)
class Stage:
    """A run of ops [begin, end) on one IPU with its estimated cycles and weight bytes."""

    begin: int
    end: int
    cycles: float
    nbytes: int


@register
@dataclass(frozen=True)
class Place(Pass):
    """Give every op an IPU when the machine has several."""

    name = "place"
    level = "model"
    after = ("infer-shapes",)

    balance: bool = True
    """Cut by estimated cycles; false cuts by weight bytes only."""

    def run(self, module: Module, ctx: PassContext) -> bool:
        target: Target | None = ctx.target
        ipus = 1 if target is None else target.num_ipus
        graph = module.main
        placed = [op for op in graph.walk() if op.ipu is not None]
        if placed:
            check_places(placed, ipus)
            return follow_places(graph)
        if target is None or ipus == 1:
            return False
        return spread(graph, target, self.balance)


def check_places(ops: Iterable[Op], ipus: int) -> None:
    """Raises OptionError for an `on ipu N` the machine does not have."""
    for op in ops:
        if op.ipu is not None and op.ipu >= ipus:
            raise OptionError(
                f"{op.opname} is placed on ipu {op.ipu}, the machine gives each replica {ipus}",
                op.loc,
                remedy=f"use ipu 0 to {ipus - 1}, fewer replicas, or a larger --system",
            )


def follow_places(graph: Graph) -> bool:
    """Ops without a place get the largest IPU among the producers of their operands."""
    changed = False
    for op in graph.ops:
        if op.ipu is None and op.opname != "core.constant":
            op.ipu = max((place_of(v) for v in op.operands()), default=0)
            changed = True
        for region in op.regions():
            changed |= _set_all(region, op.ipu)
    return _place_constants(graph) or changed


def place_of(value: Value) -> int:
    """The IPU that computes a value; inputs and constants have none and count as 0."""
    owner = value.owner
    return 0 if owner is None or owner.ipu is None else owner.ipu


def _set_all(graph: Graph, ipu: int | None) -> bool:
    changed = False
    for op in graph.walk():
        changed = changed or op.ipu != ipu
        op.ipu = ipu
    return changed


def _place_constants(graph: Graph) -> bool:
    """A constant lies on the IPU of its first user."""
    first: dict[Value, int | None] = {}
    for op in graph.ops:
        for value in op.operands():
            first.setdefault(value, op.ipu)
    changed = False
    for op in graph.ops:
        if op.opname == "core.constant" and op.ipu is None:
            op.ipu = first.get(op.results[0], 0)
            changed = True
    return changed


def spread(graph: Graph, target: Target, balance: bool) -> bool:
    """Cuts the ops into one stage per IPU. Raises OutOfTileMemory when no cut fits."""
    ops = [op for op in graph.ops if op.opname != "core.constant"]
    if not ops:
        return False
    units = _units(ops)
    weights = dict(zip(ops, _weight_bytes(ops), strict=True))
    nbytes = [sum(weights[op] for op in unit) for unit in units]
    cycles = [float(b) for b in nbytes]
    if balance:
        cycles = [sum(op_cost(op, target) for op in unit) for unit in units]
    cap = int(target.bytes_per_tile * target.tiles_per_ipu * MEMORY_SHARE)
    stages = chain_partition(cycles, nbytes, target.num_ipus, cap)
    if stages is None:
        total = sum(nbytes)
        constants = [op for op in graph.ops if op.opname == "core.constant"]
        largest = max(constants, key=lambda op: op.results[0].type.nbytes)
        raise OutOfTileMemory(
            f"{total:,} bytes of weights do not fit {target.num_ipus} IPUs, {cap:,} bytes of each; "
            f"the largest is {largest.results[0].name or 'a constant'} ({largest.results[0].type})",
            largest.loc,
            remedy="use a larger --system, fewer replicas, or f16 weights",
        )
    for ipu, stage in enumerate(stages):
        for op in (op for unit in units[stage.begin : stage.end] for op in unit):
            op.ipu = ipu
            for region in op.regions():
                _set_all(region, ipu)
    _place_constants(graph)
    return True


def _units(ops: Sequence[Op]) -> list[list[Op]]:
    """Runs of ops that stay together: an element-wise op with the op in front that it reads.

    Lowering puts such an op into the vertices of a product when both are on one IPU.
    """
    units: list[list[Op]] = []
    for op in ops:
        reads = bool(units) and not set(units[-1][-1].results).isdisjoint(op.operands())
        if reads and op.has(ELEMENTWISE):
            units[-1].append(op)
        else:
            units.append([op])
    return units


def _is_constant(value: Value) -> bool:
    return value.owner is not None and value.owner.opname == "core.constant"


def _weight_bytes(ops: Sequence[Op]) -> list[int]:
    """Bytes of constants each op is the first to use."""
    seen: set[Value] = set()
    out: list[int] = []
    for op in ops:
        new = {v for v in _all_operands(op) if _is_constant(v)} - seen
        seen |= new
        out.append(sum(v.type.nbytes for v in new))
    return out


def _all_operands(op: Op) -> Iterable[Value]:
    yield from op.operands()
    for region in op.regions():
        for inner in region.walk():
            yield from inner.operands()


def estimate_bytes(graph: Graph) -> int:
    """Lower estimate of the device memory a graph needs: weights and the largest op's tensors."""
    ops = [op for op in graph.ops if op.opname != "core.constant"]
    weights = sum(_weight_bytes(ops))
    largest = max((_live_bytes(op) for op in ops), default=0)
    return weights + largest


def _live_bytes(op: Op) -> int:
    values = [*op.operands(), *op.results]
    kept = [v for v in values if v.owner is None or v.owner.opname != "core.constant"]
    return sum(v.type.nbytes for v in kept if v.type.is_static)


def op_cost(op: Op, target: Target) -> float:
    """Estimated cycles of an op on all tiles of one IPU."""
    inside = [inner for region in op.regions() for inner in region.walk()]
    if inside:
        return sum(op_cost(inner, target) for inner in inside) + _STEP_CYCLES
    if op.opname == "core.constant":
        return 0.0
    tiles = target.tiles_per_ipu
    macs = _macs(op)
    moved = sum(v.type.nbytes for v in (*op.operands(), *op.results) if v.type.is_static)
    rate = target.chip.mac_f32.value
    return _STEP_CYCLES + macs / (rate * tiles) + moved / (8.0 * tiles)


def _macs(op: Op) -> float:
    """Multiply-accumulates of products, convolutions and recurrences; one per element otherwise."""
    out = float(sum(v.type.numel for v in op.results if v.type.is_static))
    operands = [v.type for v in op.operands() if v.type.is_static]
    if op.opname.startswith("nn.matmul") and operands:
        return out * (operands[0].static_shape[-1] if operands[0].rank else 1)
    if op.opname.startswith("nn.conv") and len(operands) > 1:
        weights = operands[1].static_shape
        return out * math.prod(weights[1:])
    if op.opname in ("nn.lstm", "nn.gru", "nn.rnn") and len(operands) > 1:
        steps = operands[0].static_shape[0]
        return float(steps * sum(t.numel for t in operands[1:3]))
    return out


def chain_partition(
    cycles: Sequence[float], nbytes: Sequence[int], stages: int, cap: int
) -> list[Stage] | None:
    """Cuts a chain into at most `stages` runs whose largest cycle sum is minimal.

    Every run's bytes stay within `cap`; None when that is impossible. Exact up to a relative
    error of 1e-9 in the bottleneck.
    """
    low = max(cycles, default=0.0)
    high = sum(cycles)
    best = _greedy(cycles, nbytes, stages, cap, high)
    if best is None:
        return None
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        found = _greedy(cycles, nbytes, stages, cap, middle)
        if found is None:
            low = middle
        else:
            best, high = found, max(stage.cycles for stage in found)
            low = min(low, high)
    return best


def _greedy(
    cycles: Sequence[float], nbytes: Sequence[int], stages: int, cap: int, limit: float
) -> list[Stage] | None:
    """The fewest runs within both limits, filled from the left; None when more are needed."""
    found: list[Stage] = []
    begin, work, held = 0, 0.0, 0
    tolerance = limit * (1 + 1e-12)
    for k, (c, b) in enumerate(zip(cycles, nbytes, strict=True)):
        if c > tolerance or b > cap:
            return None
        if k > begin and (work + c > tolerance or held + b > cap):
            found.append(Stage(begin, k, work, held))
            begin, work, held = k, 0.0, 0
        work += c
        held += b
    found.append(Stage(begin, len(cycles), work, held))
    return found if len(found) <= stages else None
