"""Executables of earlier compilations, so that a second start need not run the passes again.

They lie as `.pexe` beside the compiled objects, under a key made of everything the result depends
on: the model's bytes, sizes and values, machine and passes, and the state of this package's own
files. Only compilations of a second or more are kept, and at most 4 GiB of them. The folder belongs
to the user, as that of the objects; what lies there is trusted as far as they are: built-in
codelets run unchecked. `POPLAR_PY_EXECUTABLE_CACHE=0` turns it off.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import cast

import numpy as np

import poplar_py
from poplar_py.codelets.diskcache import cache_folder
from poplar_py.diagnostics import PoplarPyError
from poplar_py.driver.executable import Executable
from poplar_py.driver.options import CompileOptions, Dumps

__all__ = ["cached", "compiled_before", "key_of"]

WORTH_KEEPING = 1.0
"""Seconds of compilation below which nothing is stored."""

MOST_BYTES = 4 << 30


def enabled() -> bool:
    return os.environ.get("POPLAR_PY_EXECUTABLE_CACHE", "1") != "0"


@lru_cache(maxsize=1)
def code_stamp() -> bytes:
    """Changes with every edit of the package: names, sizes and times of its files."""
    root = Path(poplar_py.__file__).parent
    files = [*root.rglob("*.py"), *(root / "passes").resolve().rglob("*.py")]
    digest = hashlib.sha256()
    for file in sorted(files):
        status = file.stat()
        digest.update(f"{file}|{status.st_size}|{status.st_mtime_ns}\n".encode())
    return digest.digest()


def key_of(
    fingerprint: bytes,
    options: CompileOptions,
    sizes: Mapping[str, object],
    arrays: Mapping[str, object],
) -> str | None:
    """The key of a compilation; None when it shows IR on the way, which a cache cannot."""
    if options.dumps != Dumps() or not enabled():
        return None
    digest = hashlib.sha256(fingerprint + code_stamp())
    parts = (
        options.machine(),  # all its figures: a machine file may change under its name
        options.placement,
        options.replicas,
        options.pipeline,
        sorted(sizes.items()),
    )
    digest.update(repr(parts).encode())
    for name, value in sorted(arrays.items()):
        digest.update(f"\n{name}|".encode())
        digest.update(_value_bytes(value))
    return f"{_prefix(fingerprint)}-{digest.hexdigest()}"


def _prefix(fingerprint: bytes) -> str:
    return fingerprint[:16].hex()


def compiled_before(fingerprint: bytes) -> bool:
    """Whether the cache holds an executable of a model with these bytes, for whatever options:
    then the model was read without an error."""
    folder = cache_folder() / "executables"
    return enabled() and any(folder.glob(f"{_prefix(fingerprint)}-*.pexe"))


def _value_bytes(value: object) -> bytes:
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return b"[" + b",".join(_value_bytes(item) for item in items) + b"]"
    if value is None:
        return b"none"
    array = np.asarray(value)
    return f"{array.dtype}{array.shape}".encode() + hashlib.sha256(array.tobytes()).digest()


def cached(key: str | None, compile: Callable[[], Executable]) -> Executable:
    """The stored executable of a key, else what `compile` gives, stored if it took long."""
    if key is None:
        return compile()
    path = cache_folder() / "executables" / f"{key}.pexe"
    with suppress(PoplarPyError):  # missing, or damaged: made again
        found = Executable.load(path, trusted=True)
        with suppress(OSError):
            os.utime(path)
        return found
    begin = perf_counter()
    made = compile()
    if perf_counter() - begin >= WORTH_KEEPING:
        with suppress(PoplarPyError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            made.save(path)
            prune(path.parent)
    return made


def prune(folder: Path) -> None:
    """Removes the files not used for longest until what is left has at most 4 GiB."""
    files = sorted(folder.glob("*.pexe"), key=lambda f: -f.stat().st_mtime)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > MOST_BYTES:
            file.unlink(missing_ok=True)
