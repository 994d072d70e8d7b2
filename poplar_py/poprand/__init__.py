"""poprand: random numbers by counter, the same on every mapping and number of host threads.

A value depends on the seed, the modifier and the element's position in its tensor. Replicas draw
the same numbers unless each holds another seed (a stream or `write_tensor` per replica, or the
replication index added to it).
"""

from __future__ import annotations

from poplar_py.poprand.draw import seed_tensor
from poplar_py.poprand.dropout import dropout, shaped_dropout
from poplar_py.poprand.random import (
    bernoulli,
    log_uniform,
    normal,
    truncated_normal,
    uniform,
)
from poplar_py.poprand.state import get_hw_seeds, set_hw_seeds, set_seed
from poplar_py.poputil.built_in import add_codelets
from poplar_py.poputil.kinds import check_kinds

__all__ = [
    "add_codelets",
    "bernoulli",
    "dropout",
    "get_hw_seeds",
    "log_uniform",
    "normal",
    "seed_tensor",
    "set_hw_seeds",
    "set_seed",
    "shaped_dropout",
    "truncated_normal",
    "uniform",
]

check_kinds(globals(), __all__)
