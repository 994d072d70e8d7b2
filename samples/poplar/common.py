"""What the samples share: the command line, a graph for the machine, a verdict."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from poplar_py import poplar
from poplar_py.poplar.program import Program

__all__ = ["arguments", "finish", "new_graph", "parser", "run"]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options every sample has; the first line of the module's text describes it."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--system", default="ipu", help="machine: ipu, m2000, pod16, ...")
    made.add_argument("--tiles-per-ipu", type=int, help="tiles of each IPU (default: the chip's)")
    return made


def arguments(doc: str | None) -> argparse.Namespace:
    """The parsed options of a sample that has no others."""
    return parser(doc).parse_args()


def new_graph(args: argparse.Namespace, codelets: str = "") -> poplar.Graph:
    """A graph for the machine asked for, with the codelets of a file beside the samples."""
    graph = poplar.Graph(poplar.Target.of(args.system, tiles_per_ipu=args.tiles_per_ipu))
    if codelets:
        graph.add_codelets(str(Path(__file__).parent / "codelets" / codelets))
    return graph


def run(graph: poplar.Graph, *programs: Program) -> poplar.Engine:
    """Compiles the programs and runs the first."""
    engine = poplar.Engine(graph, list(programs))
    engine.load_and_run(poplar.Device(graph.target))
    return engine


def finish(good: object, message: str) -> None:
    """Prints the verdict; the exit code tells it too."""
    print(f"{'ok' if good else 'WRONG'}: {message}")
    sys.exit(0 if good else 1)
