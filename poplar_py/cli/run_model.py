"""What `poplar-py run` does, apart from its options: these imports take a second."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from poplar_py import api
from poplar_py.cli.given import COMPILING, refuse
from poplar_py.cli.options import (
    Binding,
    check_machine,
    check_output,
    is_pexe,
    load_npy,
    split_pair,
)
from poplar_py.cli.output import Screen, array_text
from poplar_py.cli.random_inputs import random_inputs
from poplar_py.diagnostics import FileError, Location, OptionError
from poplar_py.driver.engine import EngineOptions, ModelEngine
from poplar_py.driver.executable import Executable
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import Array
from poplar_py.files import atomic_path
from poplar_py.frontends.build import Sizes
from poplar_py.profile.report import Report

__all__ = ["Run"]


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
        no_merge_vertices: bool,
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
        self.files = [split_pair(t, "--input")[1] for t in inputs]
        self.seed, self.output, self.profile = seed, output, profile
        self.timeout, self.dry_run, self.verbose = timeout, dry_run, verbose
        self.engine_options = EngineOptions(
            threads, faithful_exchange, check_uninitialised, not no_merge_vertices
        )
        self.options = replace(options, progress=self.screen.progress)
        self.binding = binding

    def execute(self) -> None:
        """Compiles, runs and writes everything asked for; nothing is written on an error."""
        if self.dry_run:
            refuse(("output",), "a dry run computes no outputs")
        if is_pexe(self.model, self.format):
            refuse(COMPILING, "a .pexe is compiled already; give this where it is compiled")
        check_output(self.output, self.model, *self.files)
        if self.profile is not None:
            check_folder(Path(self.profile))
        with self.screen.live():
            executable = self._compile()
        if self.dry_run:
            self._report(executable.static_report(), {})
            return
        self._run(executable)

    def _compile(self) -> Executable:
        """The executable: read from a .pexe, or compiled for the shapes of the inputs."""
        if is_pexe(self.model, self.format):
            return Executable.load(self.model)
        source = api.load(self.model, format=self.format, dims=self.binding.dims)
        check_machine(source, self.options)
        shapes: dict[str, tuple[int, ...]] = {n: a.shape for n, a in self.arrays.items()}
        shapes.update(self.binding.shapes)
        sizes = Sizes.of(self.binding.dims, shapes, self.binding.consts, self.arrays)
        return api.compile_for(source, self.options, sizes)

    def _run(self, executable: Executable) -> None:
        engine = ModelEngine(executable, self.engine_options)
        arrays = self.arrays
        if self.seed is not None:
            arrays = {**random_inputs(executable.signature, self.seed), **arrays}
        with self.screen.live():
            self.screen.progress("run")
            outputs = engine.run(arrays, self.timeout)
        if self.output is not None:
            write_npz(self.output, outputs)
        self._report(engine.report(), outputs)

    def _report(self, report: Report, outputs: Mapping[str, Array]) -> None:
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
    """Writes all outputs into one .npz, atomically; any name is allowed. bf16 becomes float32."""
    with atomic_path(path) as part, zipfile.ZipFile(part, "w") as archive:
        for name, array in outputs.items():
            plain = array.astype(np.float32) if array.dtype.kind == "V" else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(plain, order="C"), allow_pickle=False)


def check_folder(path: Path) -> None:
    """Raises FileError unless the folder is there and writable, or can be made."""
    try:
        existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"cannot write into {path}: {reason}", Location(str(path), 0, 0)) from error
    if existing.is_dir() and os.access(existing, os.W_OK):
        return
    reason = "permission denied" if existing.is_dir() else f"{existing} is a file"
    raise FileError(f"cannot write into {path}: {reason}", Location(str(path), 0, 0))


def output_json(outputs: Mapping[str, Array]) -> dict[str, object]:
    """Types of all outputs, and the values of small ones."""
    out: dict[str, object] = {}
    for name, array in outputs.items():
        entry: dict[str, object] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        if array.size <= 64 and array.dtype.kind in "fiub":
            entry["values"] = array.tolist()
        out[name] = entry
    return out
