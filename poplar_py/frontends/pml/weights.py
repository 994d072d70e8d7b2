"""`load("w.npz", "key")`: weights from files in the folder of the `.pml` file."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from poplar_py.diagnostics import FileError, ShapeError, reason_of
from poplar_py.files import NPY_ERRORS
from poplar_py.frontends.pml.initialisers import MAX_WEIGHT_BYTES
from poplar_py.frontends.pml.values import fit_array
from poplar_py.types import TensorType

__all__ = ["inside", "load_weight"]

Array = np.ndarray[Any, Any]


def inside(folder: Path, name: str) -> Path:
    """A file of a folder or its sub-folders. Raises FileError for a path that leaves it."""
    path = folder / name
    root = folder.resolve()
    resolved = path.resolve()
    if Path(name).is_absolute() or not resolved.is_relative_to(root):
        raise FileError(
            f"{name!r} lies outside the folder of the model",
            remedy="move the file beside the .pml file",
        )
    if not resolved.is_file():
        raise FileError(f"there is no file {name!r} in the folder of the model")
    return path


def load_weight(folder: Path, name: str, key: str, type: TensorType) -> Array:
    """An array of an .npy file, or of an .npz file by key, as `type`.

    The header is checked before anything is read: a file cannot claim more memory than the type.
    """
    path = inside(folder, name)
    try:
        if path.suffix == ".npz":
            return _from_npz(path, key, type)
        with path.open("rb") as file:
            return _read(file, type, name)
    except (*NPY_ERRORS, zipfile.BadZipFile) as error:
        raise FileError(f"cannot read {name!r}: {reason_of(error)}") from None


def _from_npz(path: Path, key: str, type: TensorType) -> Array:
    with zipfile.ZipFile(path) as archive:
        members = {n.removesuffix(".npy"): n for n in archive.namelist()}
        if key not in members:
            listed = ", ".join(sorted(members)[:20]) or "none"
            raise FileError(
                f"{path.name!r} has no array {key!r}", remedy=f"its arrays are {listed}"
            )
        with archive.open(members[key]) as file:
            return _read(file, type, f"{path.name}:{key}")


def _read(file: IO[bytes], type: TensorType, what: str) -> Array:
    version = npy.read_magic(file)
    read_header: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if tuple(shape) != type.static_shape:
        raise ShapeError(f"{what} holds an array of shape {list(shape)}, the weight is {type}")
    if dtype.hasobject or dtype.kind not in "biufV":
        raise FileError(f"{what} holds elements of type {dtype}")
    size = math.prod(shape) * dtype.itemsize
    if size > MAX_WEIGHT_BYTES:
        raise FileError(f"{what} is larger than 8 GiB")
    raw = file.read(size)
    if len(raw) != size:
        raise FileError(f"{what} ends too soon")
    if dtype.kind == "V":
        dtype = type.dtype.numpy if dtype.itemsize == type.dtype.size else dtype
    array = np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(fit_array(array, type.dtype, what))
