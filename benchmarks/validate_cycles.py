"""Predicted cycles against those of Graphcore's IPU Model, row by row. Nothing is tuned on them.

    python benchmarks/validate_cycles.py ROWS.json
    python benchmarks/validate_cycles.py ROWS.json --kind reduce --json out.json

ROWS.json: {"workloads": [{"name", "workload", "params", "gc200": {"cycles"}}]}. A row is compared
when one program of ours means the same: products (`general_matrix_multiply`), the three products of
a trained dense layer (`fully_connected_layer`: forward, backward, weight update), reductions
(`reduce_op`). Operands lie where the first use of them wants them; host streams do not count. The
other kinds are listed as not compared, with the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats  # pyright: ignore[reportMissingTypeStubs]

from poplar_py import poplin, popops
from poplar_py.executable.build import BuildOptions, build_executable
from poplar_py.poplar import Graph, Target, Tensor, program
from poplar_py.runtime.cycles import count_cycles
from poplar_py.types import DType, f16, f32

NOT_COMPARED = {
    "single_conv_layer": "its figure joins forward, backward and weight update under one plan",
    "oct_conv_layer": "octave convolutions have no counterpart",
    "lstm_layer": "its figure joins forward, backward and weight update",
    "gru_layer": "its figure joins forward, backward and weight update",
    "pooling_layer": "the row does not say which passes it counts",
    "embedding_layer": "the row does not say which passes it counts",
}
Params = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One comparison; cycles, and their parts in ours."""

    name: str
    kind: str
    theirs: int
    ours: int
    compute: int
    exchange: int
    sync: int
    seconds: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(frozen=True)
class Summary:
    """Errors over rows: of ratios ours / theirs, and how well the order agrees (Spearman)."""

    kind: str
    rows: int
    geometric_mean: float
    median_error: float
    error_90: float
    rank_correlation: float


def product(
    graph: Graph, prog: program.Sequence, shape: tuple[int, ...], name: str, dtype: DType
) -> None:
    """One product of (batch,) m, k, n whose operands lie where it reads them."""
    *batch, m, k, n = shape
    left, right = (*batch, m, k), (*batch, k, n)
    a = poplin.create_mat_mul_input_lhs(graph, dtype, left, right, f"{name}/a")
    b = poplin.create_mat_mul_input_rhs(graph, dtype, left, right, f"{name}/b")
    keep(graph, poplin.mat_mul(graph, a, b, prog, name), name)


def keep(graph: Graph, out: Tensor, name: str) -> None:
    """Nothing may drop the result."""
    graph.create_host_read(name, out)


def gemm(graph: Graph, prog: program.Sequence, p: Params) -> None:
    product(graph, prog, (p["m"], p["k"], p["n"]), "product", element(p))


def dense(graph: Graph, prog: program.Sequence, p: Params) -> None:
    """y = x W; dx = dy W^T; dW = x^T dy; of every group."""
    groups = (p["num_groups"],) if "num_groups" in p else ()
    rows, k, n = p["batch_size"], p["input_size"], p["output_size"]
    for name, shape in (("fwd", (rows, k, n)), ("bwd", (rows, n, k)), ("wu", (k, rows, n))):
        product(graph, prog, (*groups, *shape), name, element(p))


def reduction(graph: Graph, prog: program.Sequence, p: Params) -> None:
    x = graph.add_variable(element(p), tuple(p["shape"]), "x", mapping="linear")
    dims: list[int] = np.atleast_1d(p["dims"]).tolist()
    keep(graph, popops.reduce(graph, x, dims, p["operation"], prog, "reduce"), "reduce")


def element(p: Params) -> DType:
    return f32 if "float" in (p.get("data_type"), p.get("type")) else f16


BUILD: dict[str, Callable[[Graph, program.Sequence, Params], None]] = {
    "general_matrix_multiply": gemm,
    "fully_connected_layer": dense,
    "reduce_op": reduction,
}
KINDS = {"gemm": "general_matrix_multiply", "dense": "fully_connected_layer", "reduce": "reduce_op"}


def compare(item: dict[str, Any]) -> Row:
    """Compile one row for a GC200 and add up what its steps cost."""
    start, p = time.perf_counter(), item["params"]
    graph = Graph(Target.ipu("gc200", 1, int(p.get("tiles_per_ipu", 1472))))
    prog = program.Sequence()
    BUILD[item["workload"]](graph, prog, p)
    exe = build_executable(graph, [prog], BuildOptions(names=["main"]))
    found = count_cycles(exe, np.ones(len(exe.steps), np.int64))
    return Row(
        item["name"],
        item["workload"],
        int(item["gc200"]["cycles"]),
        found.compute + found.exchange + found.sync,
        found.compute,
        found.exchange,
        found.sync,
        time.perf_counter() - start,
    )


def summary(kind: str, rows: list[Row]) -> Summary:
    """Error of a row: |ours / theirs - 1|."""
    ratios = np.array([r.ratio for r in rows])
    errors = np.abs(ratios - 1)
    theirs, ours = ([r.theirs for r in rows], [r.ours for r in rows])
    spearman: Any = stats.spearmanr  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    order = float(spearman(theirs, ours)[0]) if len(rows) > 2 else math.nan
    return Summary(
        kind,
        len(rows),
        float(np.exp(np.log(ratios).mean())),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        order,
    )


def show(rows: list[Row], summaries: list[Summary], left: dict[str, int]) -> None:
    console = Console(width=120)
    table = Table(box=SIMPLE, title="cycles on a GC200")
    for name in ("row", "theirs", "ours", "ratio", "compute", "exchange", "sync", "seconds"):
        table.add_column(name, justify="left" if name == "row" else "right")
    for r in rows:
        figures = [f"{v:,}" for v in (r.theirs, r.ours)]
        parts = [f"{v:,}" for v in (r.compute, r.exchange, r.sync)]
        table.add_row(r.name, *figures, f"{r.ratio:.2f}", *parts, f"{r.seconds:.1f}")
    console.print(table)
    table = Table(box=SIMPLE, title="ours / theirs")
    for name in ("kind", "rows", "geometric mean", "median error", "90th %", "rank correlation"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for s in summaries:
        errors = (f"{s.median_error:.0%}", f"{s.error_90:.0%}", f"{s.rank_correlation:.2f}")
        table.add_row(s.kind, str(s.rows), f"{s.geometric_mean:.2f}", *errors)
    console.print(table)
    for kind, count in left.items():
        reason = NOT_COMPARED.get(kind, "no program of ours means the same")
        console.print(f"not compared: {count} {kind}: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("rows", type=Path)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only these rows")
    parser.add_argument("--match", default="", help="only rows whose name holds this text")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    items: list[dict[str, Any]] = json.loads(args.rows.read_text())["workloads"]
    wanted = [KINDS[args.kind]] if args.kind else list(BUILD)
    chosen = [i for i in items if i["workload"] in wanted and "gc200" in i]
    chosen = [i for i in chosen if args.match in i["name"]]
    rows: list[Row] = []
    for item in track(chosen, "compiling", console=Console(stderr=True)):
        rows.append(compare(item))
    kinds = [k for k in wanted if any(r.kind == k for r in rows)]
    summaries = [summary(k, [r for r in rows if r.kind == k]) for k in kinds]
    summaries += [summary("all", rows)] if len(kinds) > 1 else []
    left: dict[str, int] = {}
    for item in items:
        if item["workload"] not in BUILD:
            left[item["workload"]] = left.get(item["workload"], 0) + 1
    show(rows, summaries, left)
    if args.json:
        figures = {"rows": [asdict(r) for r in rows], "summary": [asdict(s) for s in summaries]}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
