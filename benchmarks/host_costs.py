"""What the planner and the copies assume of the host, measured on this one.

    python benchmarks/host_costs.py
    python benchmarks/host_costs.py --rounds 9 --only copies

Prints each figure of `poplin/cost.py` and of `copy_cost` (`executable/layout.py`) beside what this
machine takes, in processor time on one thread. A cycle is what the best register block needs for
1.76 products of 16 lanes, so that no clock need be known. Plans depend on the figures in the source
alone, never on a measurement: they are the same on every machine.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from poplar_py import poplin
from poplar_py.executable.layout import copy_cost
from poplar_py.executable.records import Records
from poplar_py.poplar import Engine, Graph, Target, Tensor, program
from poplar_py.poplin import ConvParams, InputTransform, OutputTransform, cost, plan
from poplar_py.types import DType, f16, f32

TILES = 64
WARM = 3
Row = tuple[str, str, str, str]
"""Figure, what it is of, in the source, here."""


@dataclass(frozen=True)
class Cut:
    """A register block of `px` pixels and `nb` output blocks, `splits` parts of what is summed."""

    px: int
    nb: int
    splits: int = 1


@contextmanager
def only(cut: Cut) -> Generator[None]:
    """Plans of this cut alone."""
    one = tuple(np.array([n], np.int64) for n in (cut.px, cut.nb, cut.splits))
    plan.make_plan.cache_clear()
    with patch.object(plan, "_candidates", return_value=one):
        yield
    plan.make_plan.cache_clear()


Build = Callable[[Graph, program.Sequence], Tensor]


def best_seconds(build: Build, turns: int, rounds: int) -> float:
    """Of one turn of a program: a loop of `turns` less one of none, the shortest of the rounds."""
    engines: list[Engine] = []
    for count in (turns, 0):
        graph, body = Graph(Target.ipu("gc200", 1, TILES)), program.Sequence()
        out = build(graph, body)
        graph.create_host_read("out", out)
        engines.append(Engine(graph, program.Repeat(count, body), threads=1))
    best = [math.inf, math.inf]
    for turn in range(rounds + WARM):
        for i, engine in enumerate(engines):
            begin = time.process_time()
            engine.run(timeout=60)
            taken = time.process_time() - begin
            best[i] = min(best[i], taken) if turn >= WARM else math.inf
    for engine in engines:
        engine.close()
    return (best[0] - best[1]) / turns


def product(m: int, k: int, n: int, dtype: DType = f32) -> Build:
    """a [m, k] times a constant [k, n]."""
    weights = np.random.default_rng(1).standard_normal((k, n)).astype(dtype.numpy)

    def build(graph: Graph, prog: program.Sequence) -> Tensor:
        a = poplin.create_mat_mul_input(graph, dtype, (m, k), "a")
        assert a is not None
        return poplin.mat_mul(graph, a, weights, prog)

    return build


def one_cycle(rounds: int) -> float:
    """Seconds of a host cycle, by the block of 12 pixels and 2 x 16 outputs."""
    m, k, n = 48, 1024, 32
    with only(Cut(12, 2)):
        seconds = best_seconds(product(m, k, n), 200, rounds)
    return seconds / (m * k * n / 16 / (2 * 0.88))


# ---------------------------------------------------------------------- blocks of sums
def latency(cycle: float, rounds: int) -> list[Row]:
    """`LATENCY`: the share of the peak of blocks of few sums."""
    rows: list[Row] = []
    for px, nb in ((1, 1), (2, 1), (4, 1), (6, 1), (4, 2), (12, 1)):
        m, k, n = 48, 1024, 16 * nb
        with only(Cut(px, nb)):
            seconds = best_seconds(product(m, k, n), 200, rounds)
        share = m * k * n / 16 / 2 / (seconds / cycle)
        loads = (px + nb) / (px * nb)
        known = float(cost.LATENCY[px * nb]) * min(1.0, 0.88 / loads)
        rows.append(("LATENCY", f"{px} pixels x {nb} blocks", f"{known:.2f}", f"{share:.2f}"))
    return rows


def partials(cycle: float, rounds: int) -> list[Row]:
    """`PARTIAL`: a partial sum of 16 lanes, below and above `CACHE_BYTES` of them."""
    rows: list[Row] = []
    for dtype in (f32, f16):
        for what, m, each in zip(
            ("few", "many"), (48, 1920), cost.PARTIAL[dtype.size], strict=True
        ):
            k, n, splits = 1024, 16, 8
            found: list[float] = []
            for count in (1, splits):
                with only(Cut(12, 1, count)):
                    found.append(best_seconds(product(m, k, n, dtype), 20, rounds))
            per = (found[1] - found[0]) / (m * splits) / cycle
            rows.append(("PARTIAL", f"{dtype}, {what}", f"{each:.1f} cycles", f"{per:.1f} cycles"))
    return rows


def weights(cycle: float, rounds: int) -> list[Row]:
    """`WEIGHT_CYCLES`: 16 weights of a large matrix, read once."""
    k, n = 4096, 2048
    seconds = best_seconds(product(1, k, n), 3, rounds)
    per = seconds / (k * n / 16)
    known = f"{cost.WEIGHT_CYCLES:.1f} cycles"
    found = f"{per / cycle:.1f} cycles, {64 / per / 1e9:.1f} GB/s"
    return [("WEIGHT_CYCLES", "16 weights from memory", known, found)]


def copied(cycle: float, rounds: int) -> list[Row]:
    """`COPIED`: rows rearranged before the product, against one whose windows lie in pieces."""
    params = ConvParams(
        f32, f32, 1, (56, 56), (3, 3), 64, 64, 1, InputTransform(padding_lower=(1, 1),
        padding_upper=(1, 1)), InputTransform(), OutputTransform(stride=(2, 2)),
    )  # fmt: skip
    rng = np.random.default_rng(2)
    w = rng.standard_normal(params.weights_shape()).astype(np.float32)

    def build(graph: Graph, prog: program.Sequence) -> Tensor:
        x = poplin.create_input(graph, params)
        return poplin.convolution(graph, x, w, None, params, prog)

    found: list[tuple[float, float]] = []
    for px in (7, 14):
        with only(Cut(px, 1)):
            seconds = best_seconds(build, 10, rounds)
            graph = Graph(Target.ipu("gc200", 1, TILES))
            build(graph, program.Sequence())
            (made,) = poplin.plans(graph).values()
        found.append((seconds / cycle, made.host))
    (plain, plain_known), (moved, moved_known) = found
    here = moved / plain / (moved_known / cost.COPIED / plain_known)
    return [("COPIED", "stride 2, 14 pixels against 7", f"{cost.COPIED:.2f}", f"{here:.2f}")]


# ---------------------------------------------------------------------- copies
def copies(_: float, rounds: int) -> list[Row]:
    """`copy_cost`: records of many rows, by the bytes of a row, and records of one row each."""
    rows: list[Row] = []
    count = 20_000
    for size in (4, 16, 64, 12, 48, 256):
        seconds = best_seconds(_rows_of(size, count), 20, rounds)
        one = Records(*(np.array([v], np.int64) for v in (0, 0, size, count, 512, size)))
        known = float(copy_cost(one)[0]) / 10 / count
        what = f"rows of {size} bytes"
        rows.append(("copy_cost", what, f"{known:.1f} ns", f"{seconds / count * 1e9:.1f} ns"))
    return rows


def _rows_of(size: int, count: int) -> Build:
    """`count` rows of `size` bytes out of rows of 512."""

    def build(graph: Graph, prog: program.Sequence) -> Tensor:
        source = graph.add_variable(f32, (count, 128), mapping="linear")
        target = graph.add_variable(f32, (count, size // 4), mapping="linear")
        graph.set_initial_value(source, 1.0)
        prog.add(program.Copy(source.slice(0, size // 4, 1), target))
        return target

    return build


MEASURES: dict[str, Callable[[float, int], list[Row]]] = {
    "latency": latency,
    "partials": partials,
    "weights": weights,
    "copied": copied,
    "copies": copies,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="the shortest of so many counts")
    parser.add_argument("--only", choices=list(MEASURES), help="one kind of figure alone")
    args = parser.parse_args()
    cycle = one_cycle(args.rounds)
    table = Table("figure", "of", "in the source", "here", box=SIMPLE)
    for name, measure in MEASURES.items():
        if args.only in (None, name):
            for row in measure(cycle, args.rounds):
                table.add_row(*row)
    console = Console()
    console.print(f"a host cycle: {cycle * 1e9:.2f} ns")
    console.print(table)


if __name__ == "__main__":
    main()
