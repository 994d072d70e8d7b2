"""How tiles round and trap, as programs for Poplar set it.

The simulated tiles round to nearest even and never trap: NaN and infinity are values. Programs may
ask for exactly that; a request for traps or stochastic rounding is refused, so that nobody takes
the results for something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from poplar_py.diagnostics import OptionError
from poplar_py.poplar.errors import GraphError
from poplar_py.poplar.faults import an_instance
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.program import Program, Sequence
from poplar_py.poplar.where import caller

__all__ = ["FloatingPointBehaviour", "set_floating_point_behaviour", "set_stochastic_rounding"]


@dataclass(frozen=True, slots=True)
class FloatingPointBehaviour:
    """Traps on invalid operations, division by zero and overflow; stochastic rounding; NaN on
    overflow. All are off here, also by default."""

    inv: bool = False
    div0: bool = False
    oflo: bool = False
    esr: bool = False
    nanoo: bool = False


def set_floating_point_behaviour(
    graph: Graph, prog: Sequence, behaviour: FloatingPointBehaviour, name: str = ""
) -> None:
    """Accept what the tiles do anyway. Raises OptionError for traps and stochastic rounding."""
    del name
    an_instance(graph, Graph, "the graph", "give a Graph", GraphError)
    an_instance(prog, Program, "the program", "give a Sequence", GraphError)
    if not isinstance(cast("object", behaviour), FloatingPointBehaviour):
        remedy = "give a FloatingPointBehaviour"
        raise OptionError(f"floating point behaviour {behaviour!r}", caller(), remedy)
    asked = [n for n in FloatingPointBehaviour.__slots__ if getattr(behaviour, n)]
    if asked:
        raise OptionError(
            f"floating point behaviour {', '.join(asked)}",
            caller(),
            remedy="tiles round to nearest even without traps; use popops.has_nan_or_inf to check",
        )


def set_stochastic_rounding(graph: Graph, prog: Sequence, enable: bool, name: str = "") -> None:
    """Accept that it is off. Raises OptionError to turn it on."""
    set_floating_point_behaviour(graph, prog, FloatingPointBehaviour(esr=bool(enable)), name)
