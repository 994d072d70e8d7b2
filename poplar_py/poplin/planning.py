"""Plans ahead of their products: a cache of them, and reports of what a product will cost."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poplar_py.poplar import Graph
from poplar_py.poplar.program import Sequence
from poplar_py.poplin.convolution import convolution
from poplar_py.poplin.matmul import mat_mul
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import Plan, plan_report, plans

if TYPE_CHECKING:
    from collections.abc import Callable

    from poplar_py.poplar import Target
    from poplar_py.poplin.conv_params import ConvParams
    from poplar_py.types import DType

__all__ = [
    "MatMulParams",
    "PlanningCache",
    "mat_mul_report_plan",
    "preplan",
    "preplan_mat_muls",
    "report_plan_estimated_costs",
    "report_plan_info",
]


@dataclass(frozen=True)
class MatMulParams:
    """A product of shapes a [.., M, K] and b [.., K, N]."""

    dtype: DType
    a: tuple[int, ...]
    b: tuple[int, ...]


@dataclass
class PlanningCache:
    """Plans by machine and product. A plan depends on nothing else, so one cache serves many
    graphs. `hits` and `misses` count what was asked for.

    The planner keeps the plans it made last in the process anyhow; a cache keeps all of its own.
    """

    kept: dict[tuple[str, str], tuple[Plan, ...]] = field(
        default_factory=dict[tuple[str, str], tuple[Plan, ...]]
    )
    hits: int = 0
    misses: int = 0

    def __len__(self) -> int:
        return len(self.kept)

    def mat_mul(self, target: Target, params: MatMulParams) -> tuple[Plan, ...]:
        """The plan of a product; none where the simple kernels do it."""

        def build(trial: Graph, tiles: TileRange) -> None:
            a, b = (trial.add_variable(params.dtype, s, mapping=0) for s in (params.a, params.b))
            mat_mul(trial, a, b, Sequence(), tiles=tiles)

        return self._plans(target, repr(params), build)

    def convolution(self, target: Target, params: ConvParams) -> tuple[Plan, ...]:
        """The plan of a convolution with weights that are computed; none as in `mat_mul`."""

        def build(trial: Graph, tiles: TileRange) -> None:
            full = params.validate()
            x = trial.add_variable(full.input_type, full.input_shape(), mapping=0)
            w = trial.add_variable(full.input_type, full.weights_shape(), mapping=0)
            convolution(trial, x, w, None, full, Sequence(), tiles=tiles)

        return self._plans(target, repr(params.validate()), build)

    def _plans(
        self, target: Target, product: str, build: Callable[[Graph, TileRange], None]
    ) -> tuple[Plan, ...]:
        """The kept plans, or those that lowering the product on a graph of its own makes."""
        key = (repr(target), product)
        found = self.kept.get(key)
        if found is not None:
            self.hits += 1
            return found
        self.misses += 1
        trial = Graph(target)
        build(trial, TileRange(0, target.num_tiles))
        self.kept[key] = tuple(plans(trial).values())
        return self.kept[key]


def preplan(
    convolutions: Items[ConvParams],
    mat_muls: Items[MatMulParams],
    target: Target,
    cache: PlanningCache,
) -> None:
    """Put the plans of products to come into the cache. Raises ShapeError."""
    for params in convolutions:
        cache.convolution(target, params)
    for product in mat_muls:
        cache.mat_mul(target, product)


def preplan_mat_muls(mat_muls: Items[MatMulParams], target: Target, cache: PlanningCache) -> None:
    """As `preplan`, for matrix products alone."""
    preplan((), mat_muls, target, cache)


def _text(found: tuple[Plan, ...]) -> str:
    return "\n".join(p.report() for p in found) if found else "simple kernels, not planned"


def mat_mul_report_plan(
    graph: Graph, product: MatMulParams | None = None, cache: PlanningCache | None = None
) -> str:
    """The plan of a product on the graph's machine, as text; without one the plans of all products
    and convolutions of the graph so far."""
    if product is None:
        return plan_report(graph)
    kept = PlanningCache() if cache is None else cache
    return _text(kept.mat_mul(graph.target, product))


def report_plan_info(graph: Graph, params: ConvParams, cache: PlanningCache | None = None) -> str:
    """The plan of a convolution on the graph's machine, as text."""
    kept = PlanningCache() if cache is None else cache
    return _text(kept.convolution(graph.target, params))


def report_plan_estimated_costs(
    graph: Graph, params: ConvParams, cache: PlanningCache | None = None
) -> int:
    """Cycles the plan of a convolution is estimated at, for its worst tile; 0 without a plan."""
    kept = PlanningCache() if cache is None else cache
    return sum(p.cycles for p in kept.convolution(graph.target, params))
