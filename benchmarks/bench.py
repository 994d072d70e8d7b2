"""Host latency of four models against onnxruntime, in rounds within one run.

    make bench
    python benchmarks/bench.py --models mlp,bert --rounds 5

Both sides use the same number of threads; the rounds alternate, and the best of all rounds counts,
so a busy moment of the host hits both. Every tile of the machine is simulated. Cold compilation
runs in a new process with an empty cache, warm compilation in another with that cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from models import MODELS, inputs_of, write
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import poplar_py as pp

Array = npt.NDArray[Any]
FOLDER = Path(__file__).resolve().parent
RELATIVE, ABSOLUTE = 1e-4, 1e-5


@dataclass(frozen=True)
class Result:
    """Figures of one model; times in seconds."""

    name: str
    ours: float
    onnxruntime: float
    ratio: float
    error: float
    vertices: int
    supersteps: int
    cycles: int
    ipus: int
    cold_compile: float
    warm_compile: float
    peak_bytes: int


def session(path: Path, threads: int) -> Any:
    """onnxruntime on the CPU with the given number of threads."""
    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def best_time(function: Callable[[], object], seconds: float) -> float:
    """The shortest of as many calls as fit into `seconds`, three at least."""
    best, calls, end = math.inf, 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
        calls += 1
    return best


def difference(ours: Array, reference: Array) -> float:
    """Largest difference as a part of what is allowed; 1 is the limit."""
    allowed = RELATIVE * float(np.abs(reference).max()) + ABSOLUTE
    return float(np.abs(ours - reference).max()) / allowed


CHILD = """
import json, resource, sys, time
begin = time.perf_counter()
import poplar_py as pp
from pathlib import Path
exe = pp.compile(pp.load(Path(sys.argv[1])), system=sys.argv[2], **json.loads(sys.argv[3]))
pp.Engine(exe, threads=int(sys.argv[4])).prepare()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(time.perf_counter() - begin, peak)
"""


def compile_times(path: Path, args: argparse.Namespace) -> tuple[float, float, int]:
    """(cold, warm, peak bytes): file to loaded machine code in a new process each."""
    options = json.dumps({"tiles_per_ipu": args.tiles_per_ipu, "placement": args.placement})
    command = [sys.executable, "-c", CHILD, str(path), args.system, options, str(args.threads)]
    times: list[float] = []
    peak = 0
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "POPLAR_PY_CACHE_DIR": cache}
        for _ in range(2):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            seconds, child_peak = done.stdout.split()
            times.append(float(seconds))
            peak = max(peak, int(child_peak))
    return times[0], times[1], peak


def measure(name: str, folder: Path, args: argparse.Namespace) -> Result:
    """All figures of one model. Exits when an output is wrong: a wrong result has no speed."""
    path = write(name, folder)
    inputs = inputs_of(name)
    cold, warm, peak = compile_times(path, args)
    theirs = session(path, args.threads)
    executable = pp.compile(
        pp.load(path),
        system=args.system,
        tiles_per_ipu=args.tiles_per_ipu,
        placement=args.placement,
    )
    engine = pp.Engine(executable, threads=args.threads)
    reference: Array = np.asarray(theirs.run(None, dict(inputs))[0])
    error = difference(engine.run(inputs)["y"], reference)
    if not error <= 1:
        sys.exit(f"{name}: the output differs {error:.3g} times more than allowed")
    ours, other = math.inf, math.inf
    for _ in range(args.rounds):
        ours = min(ours, best_time(lambda: engine.run(inputs), args.seconds))
        other = min(other, best_time(lambda: theirs.run(None, dict(inputs)), args.seconds))
    counts = engine.report().counts()
    return Result(
        name, ours, other, ours / other, error, counts["vertices"], counts["supersteps"],
        counts["cycles"], counts["ipus"], cold, warm, peak,
    )  # fmt: skip


def show(results: list[Result], mean: float) -> None:
    """The table for people."""
    table = Table(title="host latency, best of rounds", box=SIMPLE, pad_edge=False)
    for head in ("model", "ours", "onnxruntime", "ratio", "error", "vertices", "supersteps",
                 "IPU cycles", "IPUs", "cold", "warm", "peak"):  # fmt: skip
        table.add_column(head, justify="left" if head == "model" else "right")
    for r in results:
        table.add_row(
            r.name, f"{r.ours * 1e3:.3f} ms", f"{r.onnxruntime * 1e3:.3f} ms", f"{r.ratio:.2f}",
            f"{r.error:.2g}", f"{r.vertices:,}", str(r.supersteps), f"{r.cycles:,}", str(r.ipus),
            f"{r.cold_compile:.2f} s", f"{r.warm_compile:.2f} s", f"{r.peak_bytes / 2**20:.0f} MiB",
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(f"geometric mean of the ratios: {mean:.3f}")


def document(results: list[Result], mean: float, args: argparse.Namespace) -> Mapping[str, object]:
    """What is written as JSON."""
    return {
        "system": args.system,
        "tiles_per_ipu": args.tiles_per_ipu,
        "placement": args.placement,
        "threads": args.threads,
        "rounds": args.rounds,
        "host": {"machine": platform.machine(), "python": platform.python_version()},
        "onnxruntime": onnxruntime.__version__,
        "geometric_mean": mean,
        "models": [asdict(r) for r in results],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--system", default="m2000")
    parser.add_argument("--tiles-per-ipu", type=int)
    parser.add_argument("--placement", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="per side, model and round")
    parser.add_argument("--output", type=Path, default=FOLDER / "results" / "latest.json")
    return parser.parse_args()


def main() -> None:
    """Measures the chosen models, prints the table, writes the JSON."""
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(name, Path(folder), args) for name in args.models.split(",")]
    mean = math.exp(sum(math.log(r.ratio) for r in results) / len(results))
    show(results, mean)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document(results, mean, args), indent=2) + "\n")


if __name__ == "__main__":
    main()
