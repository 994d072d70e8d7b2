"""Tells the types of files from their bytes, with a real model on four simulated IPUs.

    make run
    python samples/file_types.py ~/Downloads --replicas 2

The model is Google's Magika (standard_v3_3): 2,048 byte values in, 214 file types out. Four
replicas of it split a batch of files, one IPU each. The bytes of this project's own files are read
here; everything after that (one-hot, matmul, layer norm, convolution, softmax) runs in vertices on
the tiles.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from packaged import packaged_file
from rich.console import Console
from rich.table import Table

import poplar_py as pp

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {"build", "dist", "__pycache__", "node_modules", "results"}
Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ModelConfig:
    """How Magika reads a file, from the JSON beside its model."""

    begin: int
    end: int
    block: int
    padding: int
    smallest: int
    labels: list[str]
    thresholds: dict[str, float]
    medium: float
    overwrites: dict[str, str]

    @staticmethod
    def read(path: Path) -> ModelConfig:
        """Reads `config.min.json`."""
        data: dict[str, Any] = json.loads(path.read_text())
        return ModelConfig(
            begin=data["beg_size"],
            end=data["end_size"],
            block=data["block_size"],
            padding=data["padding_token"],
            smallest=data["min_file_size_for_dl"],
            labels=data["target_labels_space"],
            thresholds=data["thresholds"],
            medium=data["medium_confidence_threshold"],
            overwrites=data["overwrite_map"],
        )

    def tokens(self, content: bytes) -> Tokens | None:
        """The model's input row: the file's first and last bytes without outer white space.

        Each half is padded away from the file's edge. None when too little is left to tell.
        """
        head = content[: self.block].lstrip()[: self.begin]
        tail = content[-self.block :].rstrip()[-self.end :]
        if len(head) < self.smallest:
            return None
        row = np.full(self.begin + self.end, self.padding, np.int32)
        row[: len(head)] = np.frombuffer(head, np.uint8)
        row[row.size - len(tail) :] = np.frombuffer(tail, np.uint8)
        return row

    def verdict(self, scores: npt.NDArray[np.float32]) -> tuple[str, float, bool]:
        """(type, score, whether the score is high enough to trust)."""
        best = int(scores.argmax())
        label, score = self.labels[best], float(scores[best])
        sure = score >= self.thresholds.get(label, self.medium)
        return self.overwrites.get(label, label), score, sure


@dataclass(frozen=True)
class Verdict:
    """What the model says about one file."""

    path: Path
    label: str
    score: float
    sure: bool


def walk(paths: Iterable[Path]) -> Iterator[Path]:
    """All regular files under the paths, hidden and generated folders left out."""
    for path in paths:
        if path.is_file():
            yield path
        elif path.is_dir() and not is_skipped(path):
            yield from walk(sorted(path.iterdir()))


def is_skipped(folder: Path) -> bool:
    """Folders of tools and build output."""
    name = folder.name
    hidden = name.startswith(".") and name != ".ci"
    return hidden or name in SKIPPED or name.endswith(".egg-info")


def varied(files: Iterable[Path], limit: int) -> list[Path]:
    """Up to `limit` files, taking each kind of name in turn so that many kinds are seen."""
    groups: dict[str, list[Path]] = {}
    for file in files:
        if not file.is_symlink() and file.stat().st_size:
            groups.setdefault(file.suffix or "none", []).append(file)
    rounds = max((len(group) for group in groups.values()), default=0)
    ordered = [g[i] for i in range(rounds) for g in groups.values() if i < len(g)]
    return sorted(ordered[:limit])


def classify(
    engine: pp.Engine, config: ModelConfig, files: list[Path], batch: int
) -> list[Verdict]:
    """Runs the files through the model, `batch` at a time; the last batch is padded."""
    readable = [(f, row) for f in files if (row := config.tokens(f.read_bytes())) is not None]
    verdicts: list[Verdict] = []
    for start in range(0, len(readable), batch):
        part = readable[start : start + batch]
        rows = np.full((batch, config.begin + config.end), config.padding, np.int32)
        for k, (_, row) in enumerate(part):
            rows[k] = row
        scores = engine.run({"bytes": rows})["target_label"]
        verdicts += [Verdict(f, *config.verdict(scores[k])) for k, (f, _) in enumerate(part)]
    return verdicts


def show(console: Console, verdicts: list[Verdict], descriptions: dict[str, Any]) -> None:
    """Prints one line a file."""
    table = Table(title="What the model says these files are", title_justify="left")
    table.add_column("file")
    table.add_column("type", style="bold cyan")
    table.add_column("description")
    table.add_column("score", justify="right")
    for v in verdicts:
        path = v.path.relative_to(ROOT) if v.path.is_relative_to(ROOT) else v.path
        known = descriptions.get(v.label, {})
        note = "" if v.sure else " [dim](unsure)[/dim]"
        table.add_row(str(path), v.label, known.get("description", "") + note, f"{v.score:.3f}")
    console.print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT], help="files or folders")
    parser.add_argument("--system", default="m2000")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="files in one run, all replicas")
    parser.add_argument("--limit", type=int, default=24, help="look at this many files at most")
    return parser.parse_args()


def main() -> None:
    """Loads the model, compiles it for four replicas, and tells the types of files."""
    args = arguments()
    model = packaged_file("magika", "models/standard_v3_3/model.onnx")
    config = ModelConfig.read(model.with_name("config.min.json"))
    kinds = packaged_file("magika", "config/content_types_kb.min.json")
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"Compiling {model.name} for {args.replicas} replicas on {args.system} ...")
    began = time.perf_counter()
    source = pp.load(model)
    shapes = {"bytes": (args.batch, config.begin + config.end)}
    executable = pp.compile(source, system=args.system, replicas=args.replicas, shapes=shapes)
    engine = pp.Engine(executable)
    compiled = time.perf_counter()
    verdicts = classify(engine, config, varied(walk(args.paths), args.limit), args.batch)
    ran = time.perf_counter()
    show(console, verdicts, json.loads(kinds.read_text()))
    console.print(engine.report().table())
    console.print(
        f"{len(verdicts)} files. Compiled in {compiled - began:.1f} s, "
        f"ran in {ran - compiled:.2f} s on this host."
    )


if __name__ == "__main__":
    main()
