"""popnn: activations, softmax, norms, pooling, recurrences, losses, and gradients of most."""

from __future__ import annotations

import numpy as np

from poplar_py.poplar import Tensor
from poplar_py.popnn.activation import (
    ACTIVATIONS,
    NonLinearityType,
    non_linearity,
    non_linearity_in_place,
    non_linearity_input_gradient,
)
from poplar_py.popnn.group_norm import (
    batch_norm_gradients,
    batch_norm_param_gradients,
    batch_norm_statistics,
    batch_norm_whiten,
    batch_normalise,
    create_batch_norm_params,
    create_group_norm_params,
    create_instance_norm_params,
    create_layer_norm_params,
    group_norm_gradients,
    group_norm_param_gradients,
    group_norm_statistics,
    group_norm_whiten,
    group_normalise,
    instance_norm_gradients,
    instance_norm_param_gradients,
    instance_norm_statistics,
    instance_norm_whiten,
    instance_normalise,
    layer_norm_gradients,
    layer_norm_param_gradients,
    layer_norm_statistics,
    layer_norm_whiten,
    layer_normalise,
)
from poplar_py.popnn.loss import arg_max, arg_min, calc_accuracy, calc_loss, max_and_arg_max
from poplar_py.popnn.norm import layer_norm, log_softmax, softmax
from poplar_py.popnn.pool_gradient import (
    avg_pool_input_gradient,
    max_pool_input_gradient,
    sum_pool_input_gradient,
)
from poplar_py.popnn.pooling import PoolParams, avg_pool, max_pool, sum_pool
from poplar_py.popnn.recurrent import gru, lstm, rnn
from poplar_py.popnn.recurrent_gradients import (
    RecurrentGradients,
    gru_gradients,
    lstm_gradients,
    rnn_gradients,
)
from poplar_py.popnn.resizing import resize
from poplar_py.popnn.spatial import spatial_softmax_2d
from poplar_py.poputil.built_in import add_codelets
from poplar_py.poputil.kinds import check_kinds

__all__ = [
    "ACTIVATIONS",
    "NonLinearityType",
    "PoolParams",
    "RecurrentGradients",
    "add_codelets",
    "arg_max",
    "arg_min",
    "avg_pool",
    "avg_pool_input_gradient",
    "batch_norm_gradients",
    "batch_norm_param_gradients",
    "batch_norm_statistics",
    "batch_norm_whiten",
    "batch_normalise",
    "calc_accuracy",
    "calc_loss",
    "create_batch_norm_params",
    "create_group_norm_params",
    "create_instance_norm_params",
    "create_layer_norm_params",
    "group_norm_gradients",
    "group_norm_param_gradients",
    "group_norm_statistics",
    "group_norm_whiten",
    "group_normalise",
    "gru",
    "gru_gradients",
    "instance_norm_gradients",
    "instance_norm_param_gradients",
    "instance_norm_statistics",
    "instance_norm_whiten",
    "instance_normalise",
    "layer_norm",
    "layer_norm_gradients",
    "layer_norm_param_gradients",
    "layer_norm_statistics",
    "layer_norm_whiten",
    "layer_normalise",
    "log_softmax",
    "lstm",
    "lstm_gradients",
    "max_and_arg_max",
    "max_pool",
    "max_pool_input_gradient",
    "non_linearity",
    "non_linearity_in_place",
    "non_linearity_input_gradient",
    "resize",
    "rnn",
    "rnn_gradients",
    "softmax",
    "spatial_softmax_2d",
    "sum_pool",
    "sum_pool_input_gradient",
]

check_kinds(globals(), __all__, Operand=Tensor | np.ndarray)
