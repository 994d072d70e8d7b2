"""ModelEngine: runs an executable on dicts of arrays; a thin layer over the tile-level engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.driver.executable import INPUT, OUTPUT, Executable
from poplar_py.driver.signature import Array, Port
from poplar_py.profile.report import Report
from poplar_py.runtime.engine import TileEngine

__all__ = ["EngineOptions", "ModelEngine"]


LEND_BYTES = 16384
"""Larger inputs are read where they lie; smaller ones are copied faster than that is arranged."""


@dataclass(frozen=True)
class EngineOptions:
    """How a program is run; none of these changes a result."""

    threads: int | None = None
    faithful_exchange: bool = False
    check_uninitialised: bool = False
    merge_vertices: bool = True


@dataclass(frozen=True, slots=True)
class _Gate:
    """Where an input or output of a single replica lies: its region in the array's shape."""

    name: str
    region: Array


def _gates(engine: TileEngine, prefix: str, ports: Iterable[Port]) -> list[_Gate] | None:
    """The gates of some ports; None where arrays are more than copied."""
    found: list[_Gate] = []
    for port in ports:
        if engine.replicas > 1 or port.counted is not None or not port.type.numel:
            return None
        region = engine.region(engine.executable.streams[prefix + port.name].region)
        found.append(_Gate(port.name, region[0].reshape(port.type.static_shape)))
    return found


class ModelEngine:
    """One executable, loaded. Runs of several threads follow one another; `stop` does not wait."""

    def __init__(self, executable: Executable, options: EngineOptions) -> None:
        self.executable = executable
        self.options = options
        self._tile: TileEngine | None = None
        self._seconds: float | None = None
        self._running = threading.RLock()
        self._inputs: list[_Gate] | None = None
        self._outputs: list[_Gate] | None = None

    def prepare(self) -> TileEngine:
        """The tile-level engine, made on first use: compiles codelets, fills tile memories."""
        with self._running:
            return self._prepared()

    def _prepared(self) -> TileEngine:
        if self._tile is None:
            self._tile = TileEngine(
                self.executable.tile,
                threads=self.options.threads,
                replicas=self.executable.replicas,
                faithful_exchange=self.options.faithful_exchange,
                check_uninitialised=self.options.check_uninitialised,
                merge_vertices=self.options.merge_vertices,
            )
            signature = self.executable.signature
            self._inputs = _gates(self._tile, INPUT, signature.inputs)
            self._outputs = _gates(self._tile, OUTPUT, signature.results)
        return self._tile

    def run(self, inputs: Mapping[str, Any], timeout: float | None = None) -> dict[str, Array]:
        """Copies inputs in, runs the program once on all replicas, copies outputs out; outputs
        whose size the device counts are cut to it."""
        if self._fits(inputs):
            with self._running:
                return self._run_plain(inputs, timeout)
        signature = self.executable.signature
        arrays = signature.check(self.executable.complete(inputs))
        with self._running:
            return self._run(arrays, timeout)

    def _fits(self, inputs: Mapping[str, Any]) -> bool:
        """Whether all inputs are plain arrays of the right type and shape, and only need copying:
        what is said of other ones costs a short run a part of its time."""
        gates = self._inputs
        if gates is None or self._outputs is None or self.executable.consts:
            return False
        if not isinstance(inputs, dict) or len(inputs) != len(gates):
            return False
        given: dict[str, Any] = inputs
        for gate in gates:
            array = given.get(gate.name)
            if type(array) is not np.ndarray or array.dtype != gate.region.dtype:
                return False
            if array.shape != gate.region.shape:
                return False
        return True

    def _run_plain(self, inputs: Mapping[str, Any], timeout: float | None) -> dict[str, Array]:
        """`_run` for inputs that fit."""
        engine = self._prepared()
        assert self._inputs is not None
        assert self._outputs is not None
        begin = time.perf_counter()
        lent: list[str] = []
        try:
            for gate in self._inputs:
                array = inputs[gate.name]
                if array.nbytes >= LEND_BYTES and engine.lend(INPUT + gate.name, array):
                    lent.append(INPUT + gate.name)
                else:
                    gate.region[...] = array
            engine.reset_cycles()
            engine.run(0, timeout=timeout)
        finally:
            for name in lent:
                engine.lend(name, None)
        outputs = {gate.name: gate.region.copy() for gate in self._outputs}
        self._seconds = time.perf_counter() - begin
        return outputs

    def _run(self, arrays: Mapping[str, Array], timeout: float | None) -> dict[str, Array]:
        """Inputs, run and outputs belong together: no other thread's come between."""
        signature = self.executable.signature
        engine = self.prepare()
        begin = time.perf_counter()
        for port in signature.inputs:
            if port.type.numel:
                engine.write(INPUT + port.name, signature.stack(port, arrays[port.name]))
        engine.reset_cycles()
        engine.run(0, timeout=timeout)
        outputs = {port.name: self._output(engine, port) for port in signature.results}
        self._seconds = time.perf_counter() - begin
        return outputs

    def _output(self, engine: TileEngine, port: Port) -> Array:
        """One output, joined from the replicas' parts."""
        signature = self.executable.signature
        shape = port.type.static_shape
        if not port.type.numel:
            return np.zeros(port.host_shape(signature.replicas), port.type.dtype.numpy)
        held = list(engine.read(OUTPUT + port.name).reshape(signature.replicas, *shape))
        if port.counted is not None:
            counts = engine.read(OUTPUT + port.count_name).reshape(-1).tolist()
            before = (slice(None),) * port.counted
            held = [part[(*before, slice(n))] for part, n in zip(held, counts, strict=True)]
        return signature.join(port, held)

    def stop(self) -> None:
        """Ends a run of another thread."""
        if self._tile is not None:
            self._tile.stop()

    def report(self) -> Report:
        """The report of the last run; before any, the static one."""
        if self._tile is None or self._seconds is None:
            return self.executable.static_report()
        return self.executable.report(self._tile.cycles().runs, self._seconds)
