"""compile_graph: from a graph and its programs to an executable, under Poplar's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from poplar_py.diagnostics import InputError
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.executable.executable import Executable
from poplar_py.poplar.errors import GraphError
from poplar_py.poplar.faults import an_instance
from poplar_py.poplar.graph import Graph
from poplar_py.poplar.options import engine_options, flag
from poplar_py.poplar.program import Copy, Program
from poplar_py.poplar.streams import DataStream
from poplar_py.poplar.verify import check_all_mapped, check_programs, steps
from poplar_py.poplar.where import caller
from poplar_py.profile.auto_report import AutoReport

__all__ = ["Progress", "compile_graph", "streams_of"]

Progress = Callable[[int, int], None]
"""Called with the steps of the compilation that are done, and how many there are."""


def compile_graph(
    graph: Graph,
    programs: Program | Sequence[Program],
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    name: str = "",
    *,
    allow_out_of_memory: bool = False,
) -> Executable:
    """Compile a graph with its programs (numbered in order). ``options``: Poplar's engine
    options; ``progress(done, steps)`` is called as work goes on; ``name`` is kept with the result.
    Raises InvalidTileMapping where something used has no tile, OutOfTileMemory and the other errors
    of the tile passes, OptionError."""
    an_instance(graph, Graph, "what is compiled", "give a Graph", GraphError)
    flags = engine_options(options)
    tell = _teller(progress)
    listed = isinstance(programs, (list, tuple))
    todo = list(cast("Sequence[Program]", programs)) if listed else [cast("Program", programs)]
    tell(0)
    check_programs(graph, todo)
    tell(1)
    allow = allow_out_of_memory or flag(flags, "debug.allowOutOfMemory")
    check_all_mapped(graph, todo)
    tell(2)
    executable = build_executable(graph, todo, BuildOptions(allow_out_of_memory=allow))
    tell(3)
    executable.metadata["replication_factor"] = graph.replication_factor
    executable.metadata["program_streams"] = [streams_of(p) for p in todo]
    if name:
        executable.metadata["name"] = name
    AutoReport(flags).compiled(executable, graph, todo)
    tell(_STEPS)
    return executable


_STEPS = 4
"""Programs checked, mappings checked, compiled, reports written."""


def _teller(progress: Progress | None) -> Callable[[int], None]:
    if progress is None:
        return lambda step: None
    if not callable(progress):
        remedy = "give a function of the step and the number of steps"
        raise InputError(f"progress is told to {progress!r}", caller(), remedy)
    return lambda step: progress(step, _STEPS)


def streams_of(program: Program) -> dict[str, str]:
    """Host streams a program copies to or from: handle to the line of the first copy."""
    found: dict[str, str] = {}
    for p in steps([program]):
        ends = (p.src, p.dst) if isinstance(p, Copy) else ()
        for stream in (end for end in ends if isinstance(end, DataStream)):
            found.setdefault(stream.handle, p.loc.short if p.loc.known else "")
    return found
