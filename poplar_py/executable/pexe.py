"""`.pexe`: an executable as a zip of a manifest, codelet text and arrays. No pickle, no machine
code.

    manifest.json       everything small: target, regions, streams, steps, messages, entries
    codelets/K.txt      codelet IR of codelet K
    NAME.npy            arrays: step code, tables, memory plan, first contents

Entries are stored without compression, so that no array is larger than the file that holds it.
"""

from __future__ import annotations

import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np

from poplar_py.codelets.codelet_text import print_codelet
from poplar_py.diagnostics import FileError, Location, PoplarPyError, reason_of
from poplar_py.executable.check import check_executable
from poplar_py.executable.executable import Executable
from poplar_py.executable.pexe_format import Arrays
from poplar_py.executable.pexe_read import Reader
from poplar_py.executable.pexe_write import make_manifest
from poplar_py.executable.proof import proved_codelets
from poplar_py.files import atomic_path


def save_executable(exe: Executable, path: str | Path) -> None:
    """Write a `.pexe`; the file appears whole or not at all. Raises FileError."""
    _check_path(path)
    with atomic_path(path) as part, part.open("wb") as f:
        write_executable(exe, f)


def write_executable(exe: Executable, out: BinaryIO) -> None:
    """Write the bytes of a `.pexe` to an open binary file. Raises FileError."""
    if not hasattr(out, "write"):
        raise FileError(f"an executable is written to {out!r}", remedy="give an open binary file")
    arrays: Arrays = {}
    manifest = make_manifest(exe, arrays)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("manifest.json", json.dumps(manifest))
        for k, codelet in enumerate(exe.codelets):
            z.writestr(f"codelets/{k}.txt", print_codelet(codelet.ir))
        for name, array in arrays.items():
            with z.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, np.ascontiguousarray(array), allow_pickle=False)


def load_executable(path: str | PathLike[str], *, trusted: bool = False) -> Executable:
    """Read a `.pexe` and check it. Raises FileError for anything that is not right; every address
    lies inside the arena afterwards. Codelets are compiled with bounds checks, except those called
    built-in whose rows prove that they need none; those of a ``trusted`` file (of the user's own
    cache) that equal built-ins are built-ins again."""
    _check_path(path)
    return _checked(path, str(path), trusted)


def _check_path(path: object) -> None:
    """Raises FileError for what is no path."""
    if not isinstance(path, (str, PathLike)):
        raise FileError(f"{path!r} is no path of a file", remedy="give a text or a Path")


def read_executable(source: BinaryIO) -> Executable:
    """As `load_executable`, from an open binary file that can seek."""
    if not hasattr(source, "read") or not hasattr(source, "seek"):
        raise FileError(f"an executable is read from {source!r}", remedy="give a binary file")
    return _checked(source, str(getattr(source, "name", "<stream>")), trusted=False)


def _checked(source: str | PathLike[str] | BinaryIO, path: str, trusted: bool) -> Executable:
    loc = Location(path, 0, 0)
    try:
        with zipfile.ZipFile(source) as z:
            reader = Reader(z, loc, trusted)
            exe = reader.executable()
        if not trusted:  # the archive's sums have shown that a trusted file is undamaged
            check_executable(exe)
        exe.proved = proved_codelets(exe, reader.claimed())
    except FileError as error:
        raise error.at(loc) from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or reason_of(error)}", loc) from error
    except zipfile.BadZipFile as error:
        raise FileError(f"{path} is no .pexe file: {reason_of(error)}", loc) from error
    except PoplarPyError as error:
        raise FileError(f"{path} is damaged: {error.message}", loc) from error
    except KeyError as error:
        raise FileError(f"{path} is damaged: {reason_of(error)} is missing", loc) from error
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise FileError(f"{path} is damaged: {reason_of(error)}", loc) from error
    except (EOFError, OverflowError, MemoryError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{path} is damaged: {reason_of(error)}", loc) from error
    return exe
