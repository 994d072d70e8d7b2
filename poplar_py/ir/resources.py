"""`.pir` files: the text, and the arrays it names by hash in `resources/<hash>.npy` beside it.

Files appear whole or not at all: everything is written under a temporary name first. Arrays are
read when the text that names them is parsed, and checked against type and hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from poplar_py.diagnostics import FileError, Location
from poplar_py.files import NPY_ERRORS, write_bytes, write_text
from poplar_py.ir.attributes import Array, array_hash
from poplar_py.ir.core import Module
from poplar_py.ir.printer import print_module
from poplar_py.types import TensorType

__all__ = [
    "load_pir",
    "parse_module",
    "read_resource",
    "read_text",
    "save_pir",
    "save_resources",
]

MAX_TEXT_BYTES = 1 << 30


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file of at most 1 GiB. Raises FileError."""
    try:
        if Path(path).stat().st_size > MAX_TEXT_BYTES:
            raise FileError(f"{path} is larger than 1 GiB")
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text (byte {error.start})") from None


def save_resources(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as `folder/<hash>.npy`; a file that is there already is left alone."""
    if not arrays:
        return
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {folder}: {error.strerror or error}") from None
    for key, array in arrays.items():
        path = folder / f"{key}.npy"
        if not path.exists():
            write_bytes(path, _npy_bytes(array))


def _npy_bytes(array: Array) -> bytes:
    from io import BytesIO

    out = BytesIO()
    np.save(out, _storable(np.asarray(array)), allow_pickle=False)
    return out.getvalue()


def _storable(array: Array) -> Array:
    """bf16 has no code in .npy: its bits are stored as u16."""
    plain = array.dtype.kind in "fiub" and array.dtype.isbuiltin == 1
    return array if plain else np.ascontiguousarray(array).view(f"u{array.itemsize}")


def read_resource(folder: Path, key: str, type: TensorType) -> Array:
    """The array `folder/<key>.npy`; FileError unless it has the type and the hash."""
    path = folder / f"{key}.npy"
    try:
        if path.stat().st_size > type.nbytes + 4096:
            raise FileError(f"{path} is larger than a {type}")
        array: Any = np.load(path, allow_pickle=False)
    except OSError as error:
        raise FileError(
            f"cannot read {path}: {error.strerror or error}",
            remedy="keep the folder `resources` beside the .pir file",
        ) from None
    except NPY_ERRORS:
        raise FileError(f"{path} is not an .npy file") from None
    if array.dtype != type.dtype.numpy and array.dtype == np.dtype(f"u{type.dtype.size}"):
        array = array.view(type.dtype.numpy)
    array.flags.writeable = False
    if array.dtype != type.dtype.numpy or array.shape != type.shape or array_hash(array) != key:
        raise FileError(f"{path} does not hold the array of type {type} that the text names")
    return array


def save_pir(module: Module, path: str | Path, *, inline_resources: bool = False) -> None:
    """Write a module and, unless inline, its large arrays into `resources/` beside it."""
    target = Path(path)
    found: dict[str, Array] = {}
    text = print_module(module, inline_resources=inline_resources, resources=found)
    if not inline_resources:
        save_resources(target.parent / "resources", found)
    write_text(target, text)


def parse_module(
    text: str,
    file: str = "<pir>",
    resources: Mapping[str, Array] | Callable[[str, TensorType], Array] | None = None,
) -> Module:
    """As `ir.parser.parse_module`, which is imported here when it is first needed."""
    from poplar_py.ir import parser

    return parser.parse_module(text, file, resources)


def load_pir(path: str | Path) -> Module:
    """Read a model-level `.pir` file. Raises FileError, ParseError, ..."""
    source = Path(path)
    folder = source.parent / "resources"
    text = read_text(source)
    if not text.strip():
        raise FileError("the file is empty", Location(str(path), 1, 1))
    return parse_module(text, str(path), lambda key, type: read_resource(folder, key, type))
