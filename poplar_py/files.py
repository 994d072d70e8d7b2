"""Reading and writing files so that errors are located and outputs appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tokenize import TokenError

from poplar_py.diagnostics import FileError, Location

__all__ = ["NPY_ERRORS", "atomic_path", "check_writable", "read_bytes", "write_bytes", "write_text"]

NPY_ERRORS = (OSError, EOFError, ValueError, TypeError, OverflowError, SyntaxError, TokenError)
"""What NumPy's readers of .npy files raise when a file is missing, damaged or none."""

MAX_BYTES = 1 << 33
"""Largest input file that is read into memory: a model of 8 GiB keeps its weights outside."""


def _file_error(path: Path, error: OSError | ValueError, doing: str) -> FileError:
    """The located error; a ValueError is what names with a zero byte give."""
    reason = getattr(error, "strerror", None) or str(error)
    return FileError(f"cannot {doing} {path}: {reason}", Location(str(path), 0, 0))


def read_bytes(path: str | Path) -> bytes:
    """The contents of a file. Raises FileError when it cannot be read or is over 8 GiB."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"{path} is larger than 8 GiB", Location(str(path), 0, 0))
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise _file_error(path, error, "read") from error


def check_writable(path: str | Path) -> None:
    """Raises FileError unless a file can be created beside `path`; leaves nothing behind.

    Called before long work, so that an hour of compiling does not end in "permission denied".
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise FileError(f"cannot write {path}: it is a folder", Location(str(path), 0, 0))
        if _is_device(path):
            return
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        os.unlink(name)
    except (OSError, ValueError) as error:
        raise _file_error(path, error, "write") from error


@contextmanager
def atomic_path(path: str | Path) -> Generator[Path]:
    """Gives a temporary file beside `path`; on success it replaces `path` in one step.

    On any error the temporary file is removed and `path` is left as it was. OSErrors become
    FileErrors. A device or pipe (`/dev/stdout`) is written to, never replaced.
    """
    path = Path(path)
    try:
        device = _is_device(path)
        folder = None if device else path.parent
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=folder)
        os.close(handle)
    except (OSError, ValueError) as error:
        raise _file_error(path, error, "write") from error
    part = Path(name)
    try:
        yield part
        if device:
            _send(part, path)
            return
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except OSError as error:
        raise _file_error(path, error, "write") from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _send(part: Path, device: Path) -> None:
    """Copies a file's bytes to a device or pipe."""
    with part.open("rb") as source, device.open("wb") as sink:
        shutil.copyfileobj(source, sink)


def _is_device(path: Path) -> bool:
    """Whether something other than a file or a folder is there."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    """The process's file mode mask; reading it means setting it for a moment."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes a whole file atomically."""
    with atomic_path(path) as part:
        part.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Writes a whole text file (UTF-8) atomically."""
    write_bytes(path, text.encode())
