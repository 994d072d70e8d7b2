"""liveness: which variables hold a value that is still needed, at every step of every program.

Level: tile. A backward walk over the step tree; variables are bits of Python ints. Loop bodies are
walked to their fixed point, function bodies once per call (their steps collect all calls). Programs
may follow one another in any order, so what any of them reads before writing it is live at all
their ends: weights written by one program and read by another stay, and so do initial values.
"""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.passes.context import PassContext
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.steps import (
    CallNode,
    LoopNode,
    Node,
    Seq,
    Step,
    StepTree,
    SwitchNode,
    WhileNode,
    build_steps,
)
from poplar_py.passes.tile_module import Places, TileModule, find_places


@register
@dataclass(frozen=True)
class FindLiveness(Pass):
    """Which variables hold a value that is still needed, at every step."""

    name = "liveness"
    level = "tile"
    after = ("plan-exchange",)

    def run(self, module: TileModule, ctx: PassContext) -> bool:
        module.results[self.name] = known_of(module).liveness
        return True


@dataclass
class Liveness:
    """``live[s]``: variables whose memory step s needs (live into it, out of it, or touched by it);
    ``between``: live between programs; ``after[s]``: live out of the step."""

    live: list[int]
    after: list[int]
    between: int


class _Walk:
    def __init__(self, tree: StepTree) -> None:
        self.tree = tree
        self.live = [0] * len(tree.steps)
        self.out = [0] * len(tree.steps)

    def node(self, n: Node, after: int) -> int:
        """Live-in of a node, given what is live after it."""
        if isinstance(n, Step):
            self.live[n.id] |= after | n.reads | n.writes
            self.out[n.id] |= after
            return (after & ~n.kills) | n.reads
        if isinstance(n, Seq):
            for child in reversed(n.nodes):
                after = self.node(child, after)
            return after
        if isinstance(n, LoopNode):
            return self.loop(n, after)
        if isinstance(n, WhileNode):
            return self.while_(n, after)
        if isinstance(n, SwitchNode):
            live = self.node(n.default, after)
            for _, case in n.cases:
                live |= self.node(case, after)
            return self.node(n.test, live)
        assert isinstance(n, CallNode)
        return self.node(self.tree.functions[n.function], after)

    def loop(self, n: LoopNode, after: int) -> int:
        start = self.node(n.body, after)
        while True:
            again = self.node(n.body, after | start)
            if again == start:
                return start
            start = again

    def while_(self, n: WhileNode, after: int) -> int:
        head = 0
        while True:
            body = self.node(n.body, head)
            again = self.node(n.condition, self.node(n.test, after | body))
            if again == head:
                return head
            head = again


def find_liveness(tree: StepTree, always: int = 0) -> Liveness:
    """Liveness of all programs together; ``always``: variables that must keep their memory."""
    between = always
    while True:
        walk = _Walk(tree)
        wider = between
        for program in tree.programs:
            wider |= walk.node(program, between)
        if wider == between:
            return Liveness([m | always for m in walk.live], walk.out, between)
        between = wider


@dataclass(frozen=True)
class Known:
    """What a mapped program tells before anything is planned."""

    places: Places
    tree: StepTree
    liveness: Liveness


def known_of(module: TileModule) -> Known:
    """Worked out by the first pass that asks; map-tiles forgets it."""
    held: Known | None = module.results.get("known")
    if held is not None:
        return held
    graph = module.graph
    places = find_places(graph.variables, graph.atlas(), graph.target.num_tiles)
    tree = build_steps(graph.variables, module.programs, graph.host_writes, graph.host_reads)
    always = sum(1 << v.id for v in graph.variables if v.always_live)
    known = Known(places, tree, find_liveness(tree, always))
    module.results["known"] = known
    return known
