"""The constant that tells each replica its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poplar_py import popops
from poplar_py.diagnostics import FileError, OptionError, ParseError
from poplar_py.executable.pexe import load_executable
from poplar_py.poplar import Engine, Graph, Target, compile_graph
from poplar_py.poplar.program import Sequence
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.types import u32


def numbered(factor: int = 1) -> tuple[Graph, Sequence]:
    """A program that writes ten times the replica's number plus 0, 1, 2 to "out"."""
    graph = Graph(Target.ipu("gc200", tiles_per_ipu=4), replication_factor=factor)
    number = graph.add_replication_index_constant("me", mapping=1)
    steps = graph.add_constant(u32, (3,), [0, 1, 2], "steps", mapping=2)
    prog = Sequence()
    ten = graph.add_constant(u32, (), 10, "ten", mapping=0)
    tens = popops.mul(graph, number, ten, prog)
    graph.create_host_read("out", popops.add(graph, steps, tens, prog))
    return graph, prog


def rows(replicas: int) -> np.ndarray:
    return np.arange(replicas, dtype=np.uint32)[:, None] * 10 + np.arange(3, dtype=np.uint32)


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_each_replica_reads_its_number(replicas: int, faithful: bool) -> None:
    graph, prog = numbered()
    engine = Engine(graph, prog, replicas=replicas, faithful_exchange=faithful)
    for _ in range(2):
        engine.load_and_run()
        assert np.array_equal(engine.read_tensor("out").reshape(replicas, 3), rows(replicas))


def test_the_graphs_replication_factor_counts(tmp_path: Path) -> None:
    graph, prog = numbered(3)
    compile_graph(graph, prog).save(tmp_path / "n.pexe")
    for what in (compile_graph(graph, prog), load_executable(str(tmp_path / "n.pexe"))):
        engine = Engine(what)
        engine.load_and_run()
        assert np.array_equal(engine.read_tensor("out").reshape(3, 3), rows(3))
    with pytest.raises(OptionError, match="2 replicas of a graph whose replication factor is 3"):
        Engine(graph, prog, replicas=2)


def test_text() -> None:
    graph, prog = numbered(2)
    text = print_tile_module(graph, [prog])
    assert " replica_index" in text
    again = parse_tile_module(text, "t.pir")
    assert print_tile_module(again.graph, again.programs) == text
    engine = Engine(again.graph, again.programs)
    engine.load_and_run()
    assert np.array_equal(engine.read_tensor("out").reshape(2, 3), rows(2))


def test_text_of_another_type_is_refused() -> None:
    graph, prog = numbered()
    text = print_tile_module(graph, [prog])
    line = next(line for line in text.splitlines() if "replica_index" in line)
    for wrong in (line.replace("u32", "i32"), line.replace("u32[]", "u32[1]")):
        with pytest.raises(ParseError):
            parse_tile_module(text.replace(line, wrong), "t.pir")


def test_an_edited_file_cannot_write_elsewhere(tmp_path: Path) -> None:
    graph, prog = numbered()
    executable = compile_graph(graph, prog)
    executable.replica_words = np.array([executable.arena_bytes - 2], np.int64)
    executable.save(tmp_path / "n.pexe")
    with pytest.raises(FileError, match="outside the arena"):
        load_executable(str(tmp_path / "n.pexe"))
