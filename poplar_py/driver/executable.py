"""Executable: a compiled model with its signature; what `pp.compile` gives and `.pexe` stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from poplar_py.arguments import names_of
from poplar_py.diagnostics import FileError, InputError, Location
from poplar_py.driver.signature import Array, Signature
from poplar_py.executable.executable import Executable as TileExecutable
from poplar_py.executable.pexe import load_executable, save_executable
from poplar_py.profile.report import Report
from poplar_py.types import DTYPES

__all__ = ["INPUT", "OUTPUT", "Executable"]

INPUT, OUTPUT = "input/", "output/"
"""Prefixes of the streams that carry inputs and outputs; tensors without elements have none."""

_KEY = "model"


@dataclass
class Executable:
    """A compiled model.

    `tile` is the image of one replica, `signature` the inputs and outputs. `consts` are inputs the
    model was compiled for: they may be left out when running, and must not differ. `machine_ipus`
    are the IPUs of the whole machine.
    """

    tile: TileExecutable
    signature: Signature
    name: str = "model"
    machine_ipus: int = 1
    consts: dict[str, Array] = field(default_factory=dict[str, Array])

    @property
    def ipus(self) -> int:
        """IPUs of one replica."""
        return self.tile.target.num_ipus

    @property
    def replicas(self) -> int:
        return self.signature.replicas

    def static_report(self) -> Report:
        """Cycles and memory as planned, every step counted once."""
        return self.report(None)

    def report(self, counts: Any, seconds: float | None = None) -> Report:
        """The report of a run whose steps ran `counts` times."""
        return Report(
            self.tile,
            counts,
            name=self.name,
            replicas=self.replicas,
            machine_ipus=self.machine_ipus,
            seconds=seconds,
        )

    def complete(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs with those the model was compiled for filled in.

        Raises InputError when such an input is given with another value.
        """
        given = dict(names_of(inputs, "inputs"))
        for name, value in self.consts.items():
            if name not in given:
                given[name] = value
            elif not np.array_equal(np.asarray(given[name]), value):
                raise InputError(
                    f"input {name!r} differs from the value the model was compiled for",
                    Location("", 0, 0, name=name),
                    remedy="compile again with the new value, or run without compiling first",
                )
        return given

    def save(self, path: str | Path) -> None:
        """Writes a `.pexe` file, atomically. Raises FileError."""
        self.tile.metadata[_KEY] = {
            "name": self.name,
            "machine_ipus": self.machine_ipus,
            "signature": self.signature.to_json(),
            "consts": {name: _array_json(value) for name, value in self.consts.items()},
        }
        save_executable(self.tile, path)

    @staticmethod
    def load(path: str | Path, *, trusted: bool = False) -> Executable:
        """Reads a `.pexe` file and checks it. Raises FileError for anything that is not right.

        In a `trusted` file (of the user's own cache) built-in codelets run unchecked.
        """
        tile = load_executable(path, trusted=trusted)
        loc = Location(str(path), 0, 0)
        if _KEY not in tile.metadata:
            raise FileError(f"{path} holds a tile program, no model", loc)
        try:
            data: Mapping[str, Any] = tile.metadata[_KEY]
            signature = Signature.from_json(data["signature"])
            consts = {str(n): _array_of(v) for n, v in data["consts"].items()}
            made = Executable(tile, signature, str(data["name"]), int(data["machine_ipus"]), consts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path}: the model's description is damaged", loc) from error
        made.check_handles(loc)
        return made

    def check_handles(self, loc: Location) -> None:
        """Raises FileError unless every port has a stream of its size and, if counted, a count."""
        sizes = {port.name: port.type.numel for port in self.signature.outputs}
        for port in self.signature.outputs:
            if port.counted is not None and sizes.get(port.count_name) != 1:
                raise FileError(f"the number of elements of {port.name!r} is missing", loc)
        for port, prefix in (
            *((port, INPUT) for port in self.signature.inputs),
            *((port, OUTPUT) for port in self.signature.outputs),
        ):
            stream = self.tile.streams.get(prefix + port.name)
            held = 0 if stream is None else self.tile.regions[stream.region].nbytes
            if held != port.type.nbytes:
                raise FileError(f"the stream of {port.name!r} has another size", loc)


def _array_json(array: Array) -> dict[str, Any]:
    """Small arrays as JSON; floats as hexadecimal text, so that no bit is lost."""
    dtype = next(t for t in DTYPES.values() if t.numpy == array.dtype)
    return {"dtype": dtype.name, "shape": list(array.shape), "data": array.tobytes().hex()}


def _array_of(data: Mapping[str, Any]) -> Array:
    dtype = DTYPES[data["dtype"]].numpy
    shape = tuple(int(d) for d in data["shape"])
    return np.frombuffer(bytes.fromhex(data["data"]), dtype).reshape(shape)
