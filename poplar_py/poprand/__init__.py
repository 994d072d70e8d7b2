"""poprand: random numbers by counter, the same on every mapping and number of host threads."""

from __future__ import annotations

from poplar_py.poprand.more import log_uniform, set_seed, shaped_dropout
from poplar_py.poprand.random import (
    bernoulli,
    dropout,
    normal,
    seed_tensor,
    truncated_normal,
    uniform,
)

__all__ = [
    "bernoulli",
    "dropout",
    "log_uniform",
    "normal",
    "seed_tensor",
    "set_seed",
    "shaped_dropout",
    "truncated_normal",
    "uniform",
]
