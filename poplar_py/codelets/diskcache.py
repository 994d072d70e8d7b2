"""Files in the cache folder: written whole or not at all, checked by their own hash when read.

The folder is `$POPLAR_PY_CACHE_DIR`, or `poplar_py` in the user's cache folder. A damaged or
unreadable entry counts as missing; a folder that cannot be written is not an error.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

__all__ = ["cache_folder", "read_entry", "source_version", "write_entry"]

_MAGIC = b"poplar_py cache 1\n"


def cache_folder() -> Path:
    """Where compiled objects and lowered codelets are kept: $POPLAR_PY_CACHE_DIR, else the user's
    cache folder."""
    chosen = os.environ.get("POPLAR_PY_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "poplar_py"


def read_entry(path: Path) -> bytes | None:
    """The content of an entry; None when it is missing or damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    if len(data) < head or not data.startswith(_MAGIC):
        return None
    body = data[head:]
    return body if hashlib.sha256(body).digest() == data[len(_MAGIC) : head] else None


def write_entry(path: Path, data: bytes) -> None:
    """Write an entry; a failure only costs time later."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(_MAGIC + hashlib.sha256(data).digest() + data)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
    except OSError:
        return


@cache
def source_version(package: str, prefixes: Sequence[str] = ()) -> str:
    """Hash of a package's Python files, or of those whose names start with one of `prefixes`."""
    total = hashlib.sha256()
    for entry in sorted(resources.files(package).iterdir(), key=lambda e: e.name):
        wanted = not prefixes or entry.name.startswith(tuple(prefixes))
        if entry.name.endswith(".py") and wanted:
            total.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return total.hexdigest()
