"""Values for `--random-inputs SEED`."""

from __future__ import annotations

import numpy as np

from poplar_py.driver.signature import Array, Port, Signature

__all__ = ["random_inputs"]


def random_inputs(signature: Signature, seed: int) -> dict[str, Array]:
    """Seeded arrays for all inputs: standard normal floats, integers 0 to 7, fair bools.

    Each input has its own stream, derived from the seed and its position, so adding an input
    changes no other.
    """
    return {
        port.name: _values(port, port.host_shape(signature.replicas), seed, position)
        for position, port in enumerate(signature.inputs)
    }


def _values(port: Port, shape: tuple[int, ...], seed: int, position: int) -> Array:
    rng = np.random.default_rng([seed, position])
    dtype = port.type.dtype
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_integer:
        return rng.integers(0, 8, shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)
