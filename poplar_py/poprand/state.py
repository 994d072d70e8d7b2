"""The generator of a graph: what draws without a seed use, and what get and set_hw_seeds move.

PopLibs keeps a state in registers of every worker. Here it is one variable of two words, the key of
the next draw; every draw without a seed adds one to it. Saving and restoring it gives the same
numbers again, on any mapping. Random intrinsics of codelets have states of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from poplar_py.diagnostics import OptionError
from poplar_py.poplar import Tensor, program
from poplar_py.poplar.faults import fail
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.elementwise import map_in_place
from poplar_py.types import u32

if TYPE_CHECKING:
    from poplar_py.poplar import Graph
    from poplar_py.poplar.view_core import View

__all__ = ["advance", "generator", "get_hw_seeds", "set_hw_seeds", "set_seed"]

# Views only: a tensor holds its graph, and a value that holds its key is never let go.
_GENERATORS: WeakKeyDictionary[Graph, View] = WeakKeyDictionary()
_START = (0x243F6A88, 0x85A308D3)  # the first digits of pi


def generator(graph: Graph) -> Tensor:
    """The state of the graph's generator, u32[2], made when it is first wanted."""
    top = graph.get_top_level_graph()
    if top not in _GENERATORS:
        state = top.add_variable(u32, (2,), "poprand/generator", mapping=0)
        top.set_initial_value(state, np.array(_START, np.uint32))
        _GENERATORS[top] = state.view
    return Tensor(top, _GENERATORS[top], u32)


def advance(graph: Graph, prog: program.Sequence, name: str) -> None:
    """Move the generator on after a draw."""
    first = generator(graph).slice(0, 1)
    map_in_place(graph, "add($0,cast(c(1),u32))", [first], prog, f"{name}/advance")


def get_hw_seeds(graph: Graph, prog: program.Sequence, name: str = "get_hw_seeds") -> Tensor:
    """A copy of the generator's state, u32[2], made when `prog` gets there."""
    saved = graph.add_variable(u32, (2,), name, mapping=0)
    prog.add(program.Copy(generator(graph), saved))
    return saved


def set_hw_seeds(
    graph: Graph, seeds: Tensor, prog: program.Sequence, name: str = "set_hw_seeds"
) -> None:
    """Continue from a state that `get_hw_seeds` gave. Raises OptionError for other tensors."""
    if seeds.dtype is not u32 or seeds.numel != 2:
        fail(OptionError, f"{name}: the state is a tensor of two unsigned ints")
    prog.add(program.Copy(seeds.flatten(), generator(graph)))


def set_seed(
    graph: Graph,
    master: Tensor,
    modifier: int,
    prog: program.Sequence,
    name: str = "set_seed",
    *,
    out: Tensor | None = None,
) -> None:
    """Seed the graph's generator, or the seed tensor `out`, from a master seed (u32[2]).

    A modifier other than 0 makes another pair of words of the same master seed.
    """
    words = [modifier * 0x9E3779B9 & 0xFFFFFFFF, modifier & 0xFFFFFFFF]
    spread = graph.add_constant(u32, (2,), words, name, 0)
    mixed = map_expr(graph, "bitwise_xor($0,$1)", [master.flatten(), spread], prog, name)
    prog.add(program.Copy(mixed, generator(graph) if out is None else out.flatten()))
