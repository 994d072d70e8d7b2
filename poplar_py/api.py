"""The Python API: load, compile, run.

import poplar_py as pp
exe = pp.compile(pp.load("model.onnx"), system="m2000", shapes={"x": (1, 3, 48, 320)})
out = pp.Engine(exe).run({"x": x})
exe.save("model.pexe"); pp.Executable.load("model.pexe")
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poplar_py.arguments import names_of
from poplar_py.diagnostics import InputError, OptionError
from poplar_py.driver.engine import EngineOptions, ModelEngine
from poplar_py.driver.executable import Executable
from poplar_py.driver.options import CompileOptions, Progress, silent
from poplar_py.frontends.build import Compiled, Sizes, compile_cached, compile_model
from poplar_py.frontends.source import LoadedModel, Values, load_model
from poplar_py.ir import Module
from poplar_py.profile.report import Report

__all__ = ["Engine", "Executable", "compile", "compile_for", "load"]

if TYPE_CHECKING:
    import onnx

    Origin = str | Path | bytes | onnx.ModelProto | Module
    Loadable = LoadedModel | Origin

_Key = tuple[tuple[Any, ...], tuple[tuple[str, bytes], ...]]
"""Kinds of all inputs, and values of those a specialisation was made for."""

CACHED_SPECIALISATIONS = 8
"""Executables an Engine keeps for different shapes; the one not used for longest goes first."""


def load(
    origin: Origin, format: str | None = None, *, dims: Mapping[str, int] | None = None
) -> LoadedModel:
    """Reads a model: a path (.onnx, .pml, .pir), bytes, an `onnx.ModelProto`, or an `ir.Module`.

    `format` (onnx, pml, pir) is needed for bytes. `dims` are needed here only by a `.pml` model
    whose text computes with free dims. Raises FileError or ParseError.
    """
    return load_model(origin, format, dims or {})


def _loaded(model: Loadable) -> LoadedModel:
    return model if isinstance(model, LoadedModel) else load_model(model)


def compile(
    model: Loadable,
    *,
    system: str = "m2000",
    ipus: int | None = None,
    tiles_per_ipu: int | None = None,
    placement: str = "auto",
    replicas: int = 1,
    passes: str = "@default",
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    consts: Values | None = None,
    progress: Progress = silent,
) -> Executable:
    """Compiles a model for a machine.

    `dims` are sizes of free dims, `shapes` shapes of inputs (all replicas together), `consts`
    values of inputs that decide shapes, axes or counts. Raises UnboundDims listing what stays open,
    UnsupportedOp for what cannot be compiled, OutOfTileMemory when no placement fits.
    """
    options = CompileOptions(
        system, ipus, tiles_per_ipu, placement, replicas, passes, progress=progress
    )
    return compile_for(_loaded(model), options, Sizes.of(dims, shapes, consts))


def compile_for(model: LoadedModel, options: CompileOptions, sizes: Sizes) -> Executable:
    """Compiles with all options as one object."""
    return compile_cached(model, options, sizes)


class Engine:
    """Runs a model: arrays by input name in, arrays by output name out.

    Takes an executable, or a model that is compiled for the inputs it is given: for their shapes,
    and for the values of those that decide shapes. Up to eight such specialisations are kept.

    `threads` are host threads (default: the free cores, or one for a program too small to share).
    `faithful_exchange` moves every remote byte through its planned buffer and poisons dead ones;
    `check_uninitialised` reports reads of elements nothing has written; `merge_vertices` lets the
    host run neighbouring vertices as one. None of them changes a result. Several threads may call
    one engine: their runs follow one another.
    """

    def __init__(
        self,
        model: Executable | Loadable,
        *,
        system: str = "m2000",
        ipus: int | None = None,
        tiles_per_ipu: int | None = None,
        placement: str = "auto",
        replicas: int = 1,
        passes: str = "@default",
        threads: int | None = None,
        faithful_exchange: bool = False,
        check_uninitialised: bool = False,
        merge_vertices: bool = True,
        progress: Progress = silent,
    ) -> None:
        self._options = CompileOptions(
            system, ipus, tiles_per_ipu, placement, replicas, passes, progress=progress
        )
        self._engine_options = EngineOptions(
            threads, faithful_exchange, check_uninitialised, merge_vertices
        )
        self._model: LoadedModel | None = None
        self._compiled: OrderedDict[_Key, tuple[Compiled, ModelEngine]] = OrderedDict()
        self._current: ModelEngine | None = None
        self._choosing = threading.Lock()
        if isinstance(model, Executable):
            self._current = ModelEngine(model, self._engine_options)
        else:
            self._model = _loaded(model)

    def run(self, inputs: Values, *, timeout: float | None = None) -> dict[str, Any]:
        """Runs the model once.

        Raises InputError for missing, unknown or misshapen inputs, TileException when a vertex
        fails, RunTimeout after `timeout` seconds.
        """
        if self._model is None:
            assert self._current is not None
            return self._current.run(inputs, timeout)
        flat = self._model.flatten(names_of(inputs, "inputs"))
        with self._choosing:
            compiled, engine = self._specialised(self._model, inputs, flat)
            self._current = engine
        return self._model.pack(compiled.module, engine.run(flat, timeout))

    def _specialised(
        self, model: LoadedModel, inputs: Values, flat: Mapping[str, Any]
    ) -> tuple[Compiled, ModelEngine]:
        """The compiled model for these inputs, from the cache if the same kind came before."""
        kind = tuple(sorted((name, a.shape, a.dtype.str) for name, a in flat.items()))
        for key, (compiled, engine) in reversed(self._compiled.items()):
            if key[0] == kind and _same_consts(compiled, flat):
                self._compiled.move_to_end(key)
                return compiled, engine
        given = {name: flat.get(name, v) for name, v in inputs.items() if v is not None}
        shapes = {name: getattr(value, "shape", value) for name, value in given.items()}
        compiled = compile_model(model, self._options, Sizes.of(shapes=shapes, values=flat))
        engine = ModelEngine(compiled.executable, self._engine_options)
        consts = tuple((n, v.tobytes()) for n, v in compiled.executable.consts.items())
        self._compiled[kind, consts] = compiled, engine
        while len(self._compiled) > CACHED_SPECIALISATIONS:
            self._compiled.popitem(last=False)
        return compiled, engine

    def prepare(self) -> None:
        """Compiles all codelets and lays out memory, so that the first run is as fast as others."""
        if self._current is None:
            raise OptionError("nothing is compiled yet", remedy="give Engine an executable")
        self._current.prepare()

    def stop(self) -> None:
        """Ends a run of another thread within 100 ms; that run raises Stopped."""
        if self._current is not None:
            self._current.stop()

    def report(self) -> Report:
        """Cycles and memory of the last run. Raises InputError before the first one."""
        if self._current is None:
            raise InputError("nothing has run yet", remedy="call run first")
        return self._current.report()

    @property
    def executable(self) -> Executable:
        """What runs: the executable given, or that of the last specialisation."""
        if self._current is None:
            raise InputError("nothing has been compiled yet", remedy="call run first")
        return self._current.executable


def _same_consts(compiled: Compiled, flat: Mapping[str, Any]) -> bool:
    """Whether inputs have the values a specialisation was made for."""
    consts = compiled.executable.consts
    return all(n not in flat or flat[n].tobytes() == v.tobytes() for n, v in consts.items())
