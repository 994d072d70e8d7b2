"""First values of weights: `param w: f32[n, m] = glorot_uniform()`.

Random ones depend only on the weight's full name, its shape, and `seed=`: the same on every machine
and with every version of NumPy. Numbers come from SplitMix64 (Steele, Lea, Flood 2014) run as a
counter; normal ones from them by Box and Muller.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.frontends.pml.values import PmlValue, as_int, describe, fit_array, number_array
from poplar_py.types import TensorType

__all__ = ["INITIALISERS", "MAX_WEIGHT_BYTES", "Request", "full"]

Array = np.ndarray[Any, Any]
MAX_WEIGHT_BYTES = 1 << 33


@dataclass(frozen=True)
class Request:
    """The weight to fill: its full name and type."""

    name: str
    type: TensorType


def full(request: Request, value: float) -> Array:
    """All elements equal: a view of one element, however large the type."""
    one = fit_array(number_array(value), request.type.dtype, describe(value))
    return _broadcast(request, one)


def _broadcast(request: Request, array: Array) -> Array:
    """A view of the weight's shape. Raises ShapeError when no array can have it."""
    if request.type.nbytes >= 1 << 62:
        raise ShapeError(f"weight {request.name}: {request.type} has too many elements")
    return np.broadcast_to(array, request.type.static_shape)


def zeros(request: Request) -> Array:
    return full(request, 0)


def ones(request: Request) -> Array:
    return full(request, 1)


def constant(request: Request, value: PmlValue) -> Array:
    """All elements equal to a number, or the elements of a list of the weight's shape."""
    array = fit_array(number_array(value), request.type.dtype, describe(value))
    if array.ndim and array.shape != request.type.shape:
        raise ShapeError(f"a list of shape {list(array.shape)} for a weight {request.type}")
    return _broadcast(request, array)


def normal(request: Request, mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Array:
    count = _count(request)
    a = _uniform(request, seed, 0, (count + 1) // 2)
    b = _uniform(request, seed, 1, (count + 1) // 2)
    radius = np.sqrt(-2.0 * np.log1p(-a))
    angle = (2.0 * math.pi) * b
    pair = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return _shaped(request, mean + std * pair.reshape(-1)[:count])


def uniform(request: Request, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Array:
    return _shaped(request, low + (high - low) * _uniform(request, seed, 0, _count(request)))


def glorot_uniform(request: Request, gain: float = 1.0, seed: int = 0) -> Array:
    """Uniform in +-gain * sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010).

    A matrix [in, out]; a convolution weight [out, in, *kernel].
    """
    fan_in, fan_out = _fans(request.type)
    bound = gain * math.sqrt(6.0 / max(1, fan_in + fan_out))
    return uniform(request, -bound, bound, seed)


def he_normal(request: Request, gain: float = 1.0, seed: int = 0) -> Array:
    """Normal with standard deviation gain * sqrt(2 / fan in) (He et al. 2015)."""
    fan_in, _ = _fans(request.type)
    return normal(request, 0.0, gain * math.sqrt(2.0 / max(1, fan_in)), seed)


INITIALISERS: dict[str, Callable[..., Array]] = {
    "zeros": zeros,
    "ones": ones,
    "constant": constant,
    "normal": normal,
    "uniform": uniform,
    "glorot_uniform": glorot_uniform,
    "he_normal": he_normal,
}


def _fans(type: TensorType) -> tuple[int, int]:
    shape = type.static_shape
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    if len(shape) == 2:
        return shape[0], shape[1]
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _count(request: Request) -> int:
    """Number of elements. Raises ShapeError for weights of more than 8 GiB."""
    if not request.type.dtype.is_float:
        raise TypeMismatch(f"random weights are of a float type, not {request.type.dtype}")
    size = 8 * request.type.numel
    if size > MAX_WEIGHT_BYTES:
        raise ShapeError(
            f"the weight {request.name} of type {request.type} is too large "
            f"({size / 2**30:.0f} GiB while it is made)",
            remedy="use smaller dims",
        )
    return request.type.numel


def _shaped(request: Request, values: Array) -> Array:
    return values.astype(request.type.dtype.numpy).reshape(request.type.static_shape)


_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _uniform(request: Request, seed: int, stream: int, count: int) -> Array:
    """`count` numbers in [0, 1) with 53 random bits each."""
    text = f"{as_int(seed, 'seed')}/{stream}/{request.name}"
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * _STEP + np.uint64(key)
        for shift, factor in _MIX:
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
