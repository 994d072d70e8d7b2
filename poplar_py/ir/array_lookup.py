"""Arrays that `.pir` text names by their hash."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping

import numpy as np

from poplar_py.diagnostics import FileError, Location, ParseError
from poplar_py.ir.attributes import Array, array_hash, parse_type
from poplar_py.types import TensorType

Lookup = Callable[[str, TensorType], Array]


def array_lookup(resources: Mapping[str, Array] | Lookup | None, text: str) -> Lookup:
    """Arrays by hash: those inline in the text, then `resources`. FileError for a missing one."""
    inline = _inline_resources(text)

    def find(key: str, type: TensorType) -> Array:
        if key in inline:
            return inline[key]
        if callable(resources):
            return resources(key, type)
        if resources is not None and key in resources:
            return resources[key]
        raise FileError(
            f"the array sha256:{key} of type {type} is not at hand",
            remedy="keep the folder `resources` beside the file, or print with inline resources",
        )

    return find


_RESOURCE = re.compile(r'^resource sha256:([0-9a-f]{32}) (\S.*?) "([A-Za-z0-9+/=]*)"\s*$', re.M)


def _inline_resources(text: str) -> dict[str, Array]:
    """Arrays at the end of a one-file dump; each must match its hash."""
    found: dict[str, Array] = {}
    if "\nresource sha256:" not in text:
        return found
    for match in _RESOURCE.finditer(text):
        key, type_text, data = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        array = _decode(parse_type(type_text), data)
        if array is None or array_hash(array) != key:
            raise ParseError(f"the bytes of resource {key} do not match", Location("", line, 1))
        found[key] = array
    return found


def _decode(type: TensorType, data: str) -> Array | None:
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
    if not type.is_static or len(raw) != type.nbytes:
        return None
    return np.frombuffer(raw, type.dtype.numpy).reshape(type.static_shape)
