"""popnn: activations, softmax, norms, pooling, recurrences."""

from __future__ import annotations

from poplar_py.popnn.activation import ACTIVATIONS, non_linearity, non_linearity_in_place
from poplar_py.popnn.norm import layer_norm, log_softmax, softmax
from poplar_py.popnn.pooling import PoolParams, avg_pool, max_pool
from poplar_py.popnn.recurrent import gru, lstm, rnn
from poplar_py.popnn.resizing import resize

__all__ = [
    "ACTIVATIONS",
    "PoolParams",
    "avg_pool",
    "gru",
    "layer_norm",
    "log_softmax",
    "lstm",
    "max_pool",
    "non_linearity",
    "non_linearity_in_place",
    "resize",
    "rnn",
    "softmax",
]
