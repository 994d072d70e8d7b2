"""Attribute values as text: numbers, strings, types, tuples and arrays.

    1  -2.5  inf  nan  true  none  "text"  f32  f32[2,n]  [1, 2]  f32[2] dense<1.0, 2.0>
    f32[784,256] dense<sha256:8d1f...>     arrays of more than 16 elements, by content
    f32[784,256] dense<splat 0.0>          of them, those that repeat one element

Every text reads back as an equal value, bit for bit (NaN payloads are written `nan:0x7fc00001`).
"""

from __future__ import annotations

import hashlib
import math
import re
import weakref
from collections.abc import Callable, MutableMapping
from functools import lru_cache
from typing import Any, cast

import numpy as np

from poplar_py.diagnostics import ParseError, TypeMismatch, quote_name
from poplar_py.types import DTYPES, DType, TensorType, bool_, dtype_of

__all__ = [
    "INLINE_ELEMENTS",
    "array_hash",
    "attribute_text",
    "dense_elements",
    "number_value",
    "parse_type",
    "unquote",
]

INLINE_ELEMENTS = 16
Array = np.ndarray[Any, np.dtype[Any]]

_hashes: dict[int, tuple[weakref.ref[Array], str]] = {}


def array_hash(array: Array) -> str:
    """32 hex digits of the SHA-256 of type, shape and bytes. Kept for read-only arrays."""
    known = _hashes.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    dtype = dtype_of(array)
    head = str(TensorType(dtype, tuple(array.shape))).encode()
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest = hashlib.sha256(head)
    digest.update(data.data)
    text = digest.hexdigest()[:32]
    if not array.flags.writeable:
        key = id(array)
        _hashes[key] = (weakref.ref(array, lambda _: _forget(key)), text)
    return text


def _forget(key: int) -> None:
    entry = _hashes.get(key)
    if entry is not None and entry[0]() is None:
        del _hashes[key]


def attribute_text(value: object, resources: MutableMapping[str, Array] | None = None) -> str:
    """The text of an attribute; arrays written by hash are entered into `resources`.

    Raises TypeMismatch for a value that has no text.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_name(value)
    if isinstance(value, np.generic):
        return attribute_text(cast("Any", value).item(), resources)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (DType, TensorType)):
        return str(value)
    if isinstance(value, (tuple, list)):
        items = cast("tuple[object, ...]", value)
        return "[" + ", ".join(attribute_text(v, resources) for v in items) + "]"
    if isinstance(value, np.ndarray):
        return _array_text(cast("Array", value), resources)
    raise TypeMismatch(f"an attribute cannot hold {type(value).__name__}: {value!r}")


def _array_text(array: Array, resources: MutableMapping[str, Array] | None) -> str:
    dtype = dtype_of(array)
    head = TensorType(dtype, tuple(array.shape))
    if array.size > INLINE_ELEMENTS:
        if _is_splat(array):
            return f"{head} dense<splat {_element_text(array[(0,) * array.ndim], dtype)}>"
        key = array_hash(array)
        if resources is not None:
            resources[key] = array
        return f"{head} dense<sha256:{key}>"
    texts = [_element_text(x, dtype) for x in array.reshape(-1)]
    return f"{head} dense<{', '.join(texts)}>"


def _is_splat(array: Array) -> bool:
    """Whether all elements have the same bits. Looks at few elements when they differ."""
    if not any(array.strides):
        return True
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
    bits = flat.view(np.uint8 if array.dtype == np.bool_ else f"u{array.itemsize}")
    return bool((bits[:64] == bits[0]).all() and (bits == bits[0]).all())


def _element_text(x: Any, dtype: DType) -> str:
    if dtype is bool_:
        return "true" if x else "false"
    if not dtype.is_float:
        return str(int(x))
    wide = float(x)
    if math.isnan(wide):
        return _nan_text(x, dtype)
    if dtype.size == 8 or math.isinf(wide):
        return repr(wide)
    short = str(x)
    return short if dtype.numpy.type(float(short)) == x else repr(wide)


def _bits_type(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.size}")


def _nan_text(x: Any, dtype: DType) -> str:
    def bits_of(value: Any) -> int:
        return int(np.asarray(value, dtype.numpy).reshape(1).view(_bits_type(dtype))[0])

    bits = bits_of(x)
    return "nan" if bits == bits_of(float("nan")) else f"nan:{bits:#x}"


def dense_elements(text: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The array of `a, b, c` or `splat a` between `dense<` and `>`. Raises ParseError."""
    if text.startswith("splat "):
        one = dense_elements(text[6:], dtype, (1,))
        return np.broadcast_to(one.reshape(()), shape)
    words = [w.strip() for w in text.split(",")] if text.strip() else []
    count = math.prod(shape)
    if len(words) != count:
        raise ParseError(f"{len(words)} elements where the type has {count}")
    out = np.empty(count, dtype.numpy)
    bits = out.view(np.uint8 if dtype is bool_ else _bits_type(dtype))
    for i, word in enumerate(words):
        if word.startswith("nan:"):
            bits[i] = _checked(word[4:], _hexadecimal, dtype)
        elif dtype is bool_:
            out[i] = _checked(word, {"true": True, "false": False}.__getitem__, dtype)
        else:
            out[i] = _checked(word, float if dtype.is_float else int, dtype)
    out = out.reshape(shape)
    out.flags.writeable = False
    return out


def _hexadecimal(word: str) -> int:
    return int(word, 16)


def _checked(word: str, convert: Callable[[str], Any], dtype: DType) -> Any:
    try:
        value = convert(word)
        if not dtype.is_float and dtype is not bool_:
            np.array(value, dtype=dtype.numpy)
        return value
    except (ValueError, KeyError, OverflowError):
        raise ParseError(f"{word!r} is not a value of {dtype}") from None


def number_value(text: str) -> int | float:
    """An int, or a float if the text has a point, an exponent, `inf` or `nan`."""
    if any(ch in text for ch in ".einf"):
        return float(text)
    if len(text) > 40:
        raise ParseError("an integer of more than 40 digits")
    return int(text)


_ESCAPE = re.compile(r"\\(u\{[0-9a-f]{1,6}\}|.)")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def unquote(text: str) -> str:
    """The string that `quote_name` wrote. Raises ParseError for an unknown escape."""

    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code in _PLAIN:
            return _PLAIN[code]
        if code.startswith("u{") and int(code[2:-1], 16) < 0x110000:
            return chr(int(code[2:-1], 16))
        raise ParseError(f"unknown escape {match.group(0)!r} in a string")

    body = text[1:-1]
    return _ESCAPE.sub(replace, body) if "\\" in body else body


_DIM = re.compile(r'\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|("(?:[^"\\]|\\.)*"))\s*(?:,|\Z)')


@lru_cache(maxsize=4096)
def parse_type(text: str) -> TensorType:
    """A TensorType from `f32[2,n]`. Raises ParseError."""
    name, _, rest = text.partition("[")
    if name not in DTYPES or not rest.endswith("]"):
        raise ParseError(f"{text!r} is not a tensor type")
    dims: list[int | str] = []
    body, at = rest[:-1], 0
    while at < len(body):
        match = _DIM.match(body, at)
        if match is None:
            raise ParseError(f"{text!r} is not a tensor type")
        number, name_, quoted = match.groups()
        dims.append(int(number[:30]) if number else name_ or unquote(quoted))
        at = match.end()
    return TensorType(DTYPES[name], tuple(dims))
