"""`poplar-py run`: compile a model for its inputs, run it on the simulated machine, report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from poplar_py.cli.options import Binding, binding_options, load_npy, machine_options, split_pair
from poplar_py.cli.output import Screen, array_text
from poplar_py.cli.random_inputs import random_inputs
from poplar_py.diagnostics import FileError, Location, OptionError
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import Array

__all__ = ["run_command"]


@click.command("run", short_help="Run a model or a .pexe file.")
@click.argument("model")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="Array for an input."
)
@click.option(
    "--random-inputs", "seed", type=int, metavar="SEED", help="Random values for other inputs."
)
@click.option("--output", type=click.Path(dir_okay=False), metavar="OUT.npz", help="Write outputs.")
@click.option(
    "--profile", type=click.Path(file_okay=False), metavar="DIR", help="Write a report to DIR."
)
@click.option("--threads", type=click.IntRange(min=1), help="Host threads (default: free cores).")
@click.option("--faithful-exchange", is_flag=True, help="Move every remote byte, poison dead ones.")
@click.option("--check-uninitialised", is_flag=True, help="Report reads of unwritten elements.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.0), metavar="S", help="Seconds a run may take."
)
@click.option("--dry-run", is_flag=True, help="Compile, plan and count without values.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the steps that took most cycles.")
@machine_options
@binding_options
def run_command(**given: Any) -> None:
    """Runs MODEL (.onnx, .pml, .pir, or - for standard input) or FILE.pexe once.

    Free dimensions are taken from the inputs; what the inputs leave open is given by --dim or
    --shape. Outputs go to standard output, tables and progress to standard error.

    \b
    poplar-py run model.onnx --input x=x.npy --output y.npz
    poplar-py run model.onnx --random-inputs 1 --dim batch=8 --replicas 4 --profile report/
    """
    Run(**given).execute()


class Run:
    """One `run` command."""

    def __init__(
        self,
        *,
        model: str,
        inputs: tuple[str, ...],
        seed: int | None,
        output: str | None,
        profile: str | None,
        threads: int | None,
        faithful_exchange: bool,
        check_uninitialised: bool,
        timeout: float | None,
        dry_run: bool,
        as_json: bool,
        verbose: bool,
        options: CompileOptions,
        binding: Binding,
        format: str | None,
    ) -> None:
        self.screen = Screen(as_json)
        self.model, self.format = model, format
        self.arrays = read_inputs(inputs)
        self.seed, self.output, self.profile = seed, output, profile
        self.timeout, self.dry_run, self.verbose = timeout, dry_run, verbose
        self.engine_options = {
            "threads": threads,
            "faithful_exchange": faithful_exchange,
            "check_uninitialised": check_uninitialised,
        }
        self.options = replace(options, progress=self.screen.progress)
        self.binding = binding

    def execute(self) -> None:
        """Compiles, runs and writes everything asked for; nothing is written on an error."""
        from poplar_py.files import check_writable

        if self.output is not None:
            check_writable(self.output)
        if self.profile is not None:
            make_folder(Path(self.profile))
        with self.screen.live():
            executable = self._compile()
        if self.dry_run:
            self._report(executable.static_report(), {})
            return
        self._run(executable)

    def _compile(self) -> Any:
        """The executable: read from a .pexe, or compiled for the shapes of the inputs."""
        from poplar_py import api

        if self._is_pexe():
            return api.Executable.load(self.model)
        source = api.load(self.model, format=self.format)
        consts = {**self.binding.consts}
        shapes: dict[str, tuple[int, ...]] = {n: a.shape for n, a in self.arrays.items()}
        shapes.update(self.binding.shapes)
        values = {**self.arrays}
        return api.compile_for(
            source,
            self.options,
            dims=self.binding.dims,
            shapes=shapes,
            consts=consts,
            values=values,
        )

    def _is_pexe(self) -> bool:
        return self.format == "pexe" or (self.format is None and self.model.endswith(".pexe"))

    def _run(self, executable: Any) -> None:
        from poplar_py import api

        engine = api.Engine(executable, **self.engine_options)
        arrays = self.arrays
        if self.seed is not None:
            arrays = {**random_inputs(executable.signature, self.seed), **arrays}
        with self.screen.live():
            self.screen.progress("run")
            outputs = engine.run(arrays, timeout=self.timeout)
        if self.output is not None:
            write_npz(self.output, outputs)
        self._report(engine.report(), outputs)

    def _report(self, report: Any, outputs: Mapping[str, Array]) -> None:
        if self.profile is not None:
            report.write(Path(self.profile))
        if self.screen.as_json:
            self.screen.json({"outputs": output_json(outputs), **report.to_json()})
            return
        for name, array in outputs.items():
            click.echo(array_text(name, array))
        self.screen.table(report.table())
        if self.verbose:
            self.screen.table(report.step_table())


def read_inputs(texts: tuple[str, ...]) -> dict[str, Array]:
    """The arrays of all `--input NAME=FILE.npy`. Raises OptionError for a name given twice."""
    out: dict[str, Array] = {}
    for text in texts:
        name, path = split_pair(text, "--input")
        if name in out:
            raise OptionError(f"--input {name} is given twice")
        out[name] = load_npy(path, name)
    return out


def write_npz(path: str, outputs: Mapping[str, Array]) -> None:
    """Writes all outputs into one .npz, atomically. bf16 is stored as float32."""
    from poplar_py.files import atomic_path

    arrays = {n: a.astype(np.float32) if a.dtype.kind == "V" else a for n, a in outputs.items()}
    with atomic_path(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]


def make_folder(path: Path) -> None:
    """Creates a folder for reports. Raises FileError when that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        loc = Location(str(path), 0, 0)
        raise FileError(f"cannot create {path}: {error.strerror}", loc) from error


def output_json(outputs: Mapping[str, Array]) -> dict[str, object]:
    """Types of all outputs, and the values of small ones."""
    out: dict[str, object] = {}
    for name, array in outputs.items():
        entry: dict[str, object] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        if array.size <= 64 and array.dtype.kind in "fiub":
            entry["values"] = array.tolist()
        out[name] = entry
    return out
