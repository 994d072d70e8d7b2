"""An executor of the node cases: compiled vertices on the tiles of one simulated IPU.

While the program runs, every entry of the reference interpreter is blocked, so that nothing but
vertices and copies can give a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import poplar_py as pp
from poplar_py.eval import EVAL
from poplar_py.ir.core import Module

Array = np.ndarray[Any, np.dtype[Any]]
TILES = 16


def _refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("the reference interpreter ran during a run of the engine")


@contextmanager
def interpreter_blocked() -> Iterator[None]:
    """No op can be evaluated by NumPy inside."""
    with mock.patch.dict(EVAL, dict.fromkeys(EVAL, _refuse)):
        yield


def _output(outputs: dict[str, Array], name: str) -> Array:
    """An output; of a counted size, which the engine has cut to already, what it was cut to."""
    if name in outputs:
        return outputs[name]
    base, _, axis = name.rpartition(".count")
    return np.asarray(outputs[base].shape[int(axis)], np.int32)


class CompiledExecutor:
    """`executor(module, feeds)` for `node_cases.run_cases`; `vertices()` tells of the last run."""

    def __init__(self, tiles: int = TILES) -> None:
        self._tiles = tiles
        self._vertices = 0

    def __call__(self, module: Module, feeds: dict[str, Array]) -> Sequence[Array]:
        executable = pp.compile(module, system="ipu", tiles_per_ipu=self._tiles)
        engine = pp.Engine(executable, threads=1)
        with interpreter_blocked():
            outputs = engine.run(feeds)
        self._vertices = int(engine.report().counts()["vertices"])
        return [_output(outputs, port.name) for port in executable.signature.outputs]

    def vertices(self) -> int:
        return self._vertices
