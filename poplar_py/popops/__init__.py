"""popops: element-wise maps, casts, reductions, indexing, searches, fills.

Every operation takes the graph, its tensors, the Sequence to append to, and a name; it returns a
new tensor unless it says in place.
"""

# Names stand side by side, module by module: this file is a table.
# ruff: noqa: I001
# fmt: off
from __future__ import annotations

from poplar_py.popops import cycles, embedding, expr, rearrange
from poplar_py.popops.arithmetic import (
    abs, acos, acosh, add, add_in_place, asin, asinh, atan, atanh, bitwise_and, bitwise_not,
    bitwise_or, bitwise_xor, cast, ceil, clamp, cos, cosh, div, eq, erf, exp, floor, gt, gteq, inv,
    is_finite, is_inf, is_nan, log, logical_and, logical_not, logical_or, lt, lteq, max, min, mul,
    mul_in_place, nearby_int, neg, neq, one_hot, pow, reciprocal, relu, rem, round, rsqrt,
    scaled_add_to, scaled_subtract_from, select, shift_left, shift_right, sigmoid, signum, sin,
    sinh, sqrt, square, sub, tan, tanh,
)
from poplar_py.popops.circ_buf import CircBuf
from poplar_py.popops.control import (
    all_true, counted_for_loop, counted_loop, has_nan, has_nan_or_inf,
)
from poplar_py.popops.dynamic import dynamic_slice, dynamic_update, slice_table, update_table
from poplar_py.popops.elementwise import map, map_in_place, map_with_output
from poplar_py.popops.extra import (
    cast_with_output, create_indices_tensor, create_slice_tensor, create_sliceable_tensor,
    dynamic_slice_with_output, encode_one_hot, multi_update_add, multi_update_max, multi_update_mul,
    normalise_image, partial_transpose, reduce_with_output, sort_in_place, sort_key_value,
    sort_key_value_in_place, top_k_key_value, top_k_with_permutation,
)
from poplar_py.popops.fill import fill, fill_constant, iota, pad, zero
from poplar_py.popops.gathering import constant_table, create_table, gather, multi_slice
from poplar_py.popops.host_slice import (
    IndicesAndTensor, create_host_sliceable_tensor, create_host_transferable_tensor,
)
from poplar_py.popops.operation import Operation, ReduceParams
from poplar_py.popops.reduction import reduce, reduce_many
from poplar_py.popops.row_scalars import (
    MASKED_LABEL_CODE, histogram, select_scalar_from_rows, sequence_slice, update_scalar_in_rows,
)
from poplar_py.popops.scattering import multi_update, scatter
from poplar_py.popops.search import arg_max, arg_min, cumulative, sort, top_k
from poplar_py.popops.slice_plan import SlicePlan
from poplar_py.popops.spline import spline_basis, spline_weighting
from poplar_py.popops.tables import UpdateTable, create_update_table
from poplar_py.popops.truth import (
    check_accuracy_when_cast, eq_in_place, gt_in_place, gteq_in_place, is_finite_in_place,
    is_inf_in_place, is_nan_in_place, log_add, log_add_in_place, log_add_with_output, lt_in_place,
    lteq_in_place, neq_in_place,
)
from poplar_py.popops.variants import (
    abs_in_place, abs_with_output, add_with_output, asin_in_place, asin_with_output, atan2,
    atan2_in_place, atan2_with_output, bitwise_and_in_place, bitwise_and_with_output,
    bitwise_not_in_place, bitwise_not_with_output, bitwise_or_in_place, bitwise_or_with_output,
    bitwise_xnor, bitwise_xnor_in_place, bitwise_xnor_with_output, bitwise_xor_in_place,
    bitwise_xor_with_output, cbrt, cbrt_in_place, cbrt_with_output, ceil_in_place, ceil_with_output,
    clamp_in_place, clamp_with_output, clz, clz_in_place, clz_with_output, cos_in_place,
    cos_with_output, div_in_place, div_with_output, eq_with_output, erf_in_place, erf_with_output,
    exp2, exp2_in_place, exp2_with_output, exp_in_place, exp_with_output, expm1, expm1_in_place,
    expm1_with_output, floor_in_place, floor_with_output, gelu_erf, gelu_erf_in_place,
    gelu_erf_with_output, gt_with_output, gteq_with_output, inv_in_place, inv_std_dev_to_variance,
    inv_std_dev_to_variance_in_place, inv_std_dev_to_variance_with_output, inv_with_output,
    is_finite_with_output, is_inf_with_output, is_nan_with_output, log1p, log1p_in_place,
    log1p_with_output, log_in_place, log_with_output, logical_and_in_place, logical_and_with_output,
    logical_not_in_place, logical_not_with_output, logical_or_in_place, logical_or_with_output,
    lt_with_output, lteq_with_output, max_in_place, max_with_output, min_in_place, min_with_output,
    mul_with_output, nearby_int_in_place, nearby_int_with_output, neg_in_place, neg_with_output,
    neq_with_output, popcount, popcount_in_place, popcount_with_output, pow_in_place,
    pow_with_output, relu_in_place, relu_with_output, rem_in_place, rem_with_output, round_in_place,
    round_with_output, rsqrt_in_place, rsqrt_with_output, select_in_place, select_with_output,
    shift_left_in_place, shift_left_with_output, shift_right_in_place, shift_right_sign_extend,
    shift_right_sign_extend_in_place, shift_right_sign_extend_with_output, shift_right_with_output,
    sigmoid_in_place, sigmoid_with_output, signum_in_place, signum_with_output, sin_in_place,
    sin_with_output, sqrt_in_place, sqrt_with_output, square_in_place, square_with_output,
    sub_in_place, sub_with_output, tan_in_place, tan_with_output, tanh_in_place, tanh_with_output,
    trunc, trunc_in_place, trunc_with_output, variance_to_inv_std_dev,
    variance_to_inv_std_dev_in_place, variance_to_inv_std_dev_with_output,
)
from poplar_py.poputil.built_in import add_codelets
from poplar_py.poputil.kinds import check_kinds

__all__ = [
    "MASKED_LABEL_CODE", "CircBuf", "IndicesAndTensor", "Operation", "ReduceParams", "SlicePlan",
    "UpdateTable", "abs", "abs_in_place", "abs_with_output", "acos", "acosh", "add", "add_codelets",
    "add_in_place", "add_with_output", "all_true", "arg_max", "arg_min", "asin", "asin_in_place",
    "asin_with_output", "asinh", "atan", "atan2", "atan2_in_place", "atan2_with_output", "atanh",
    "bitwise_and", "bitwise_and_in_place", "bitwise_and_with_output", "bitwise_not",
    "bitwise_not_in_place", "bitwise_not_with_output", "bitwise_or", "bitwise_or_in_place",
    "bitwise_or_with_output", "bitwise_xnor", "bitwise_xnor_in_place", "bitwise_xnor_with_output",
    "bitwise_xor", "bitwise_xor_in_place", "bitwise_xor_with_output", "cast", "cast_with_output",
    "cbrt", "cbrt_in_place", "cbrt_with_output", "ceil", "ceil_in_place", "ceil_with_output",
    "check_accuracy_when_cast", "clamp", "clamp_in_place", "clamp_with_output", "clz",
    "clz_in_place", "clz_with_output", "constant_table", "cos", "cos_in_place", "cos_with_output",
    "cosh", "counted_for_loop", "counted_loop", "create_host_sliceable_tensor",
    "create_host_transferable_tensor", "create_indices_tensor", "create_slice_tensor",
    "create_sliceable_tensor", "create_table", "create_update_table", "cumulative", "cycles", "div",
    "div_in_place", "div_with_output", "dynamic_slice", "dynamic_slice_with_output",
    "dynamic_update", "embedding", "encode_one_hot", "eq", "eq_in_place", "eq_with_output", "erf",
    "erf_in_place", "erf_with_output", "exp", "exp2", "exp2_in_place", "exp2_with_output",
    "exp_in_place", "exp_with_output", "expm1", "expm1_in_place", "expm1_with_output", "expr",
    "fill", "fill_constant", "floor", "floor_in_place", "floor_with_output", "gather", "gelu_erf",
    "gelu_erf_in_place", "gelu_erf_with_output", "gt", "gt_in_place", "gt_with_output", "gteq",
    "gteq_in_place", "gteq_with_output", "has_nan", "has_nan_or_inf", "histogram", "inv",
    "inv_in_place", "inv_std_dev_to_variance", "inv_std_dev_to_variance_in_place",
    "inv_std_dev_to_variance_with_output", "inv_with_output", "iota", "is_finite",
    "is_finite_in_place", "is_finite_with_output", "is_inf", "is_inf_in_place",
    "is_inf_with_output", "is_nan", "is_nan_in_place", "is_nan_with_output", "log", "log1p",
    "log1p_in_place", "log1p_with_output", "log_add", "log_add_in_place", "log_add_with_output",
    "log_in_place", "log_with_output", "logical_and", "logical_and_in_place",
    "logical_and_with_output", "logical_not", "logical_not_in_place", "logical_not_with_output",
    "logical_or", "logical_or_in_place", "logical_or_with_output", "lt", "lt_in_place",
    "lt_with_output", "lteq", "lteq_in_place", "lteq_with_output", "map", "map_in_place",
    "map_with_output", "max", "max_in_place", "max_with_output", "min", "min_in_place",
    "min_with_output", "mul", "mul_in_place", "mul_with_output", "multi_slice", "multi_update",
    "multi_update_add", "multi_update_max", "multi_update_mul", "nearby_int", "nearby_int_in_place",
    "nearby_int_with_output", "neg", "neg_in_place", "neg_with_output", "neq", "neq_in_place",
    "neq_with_output", "normalise_image", "one_hot", "pad", "partial_transpose", "popcount",
    "popcount_in_place", "popcount_with_output", "pow", "pow_in_place", "pow_with_output",
    "rearrange", "reciprocal", "reduce", "reduce_many", "reduce_with_output", "relu",
    "relu_in_place", "relu_with_output", "rem", "rem_in_place", "rem_with_output", "round",
    "round_in_place", "round_with_output", "rsqrt", "rsqrt_in_place", "rsqrt_with_output",
    "scaled_add_to", "scaled_subtract_from", "scatter", "select", "select_in_place",
    "select_scalar_from_rows", "select_with_output", "sequence_slice", "shift_left",
    "shift_left_in_place", "shift_left_with_output", "shift_right", "shift_right_in_place",
    "shift_right_sign_extend", "shift_right_sign_extend_in_place",
    "shift_right_sign_extend_with_output", "shift_right_with_output", "sigmoid", "sigmoid_in_place",
    "sigmoid_with_output", "signum", "signum_in_place", "signum_with_output", "sin", "sin_in_place",
    "sin_with_output", "sinh", "slice_table", "sort", "sort_in_place", "sort_key_value",
    "sort_key_value_in_place", "spline_basis", "spline_weighting", "sqrt", "sqrt_in_place",
    "sqrt_with_output", "square", "square_in_place", "square_with_output", "sub", "sub_in_place",
    "sub_with_output", "tan", "tan_in_place", "tan_with_output", "tanh", "tanh_in_place",
    "tanh_with_output", "top_k", "top_k_key_value", "top_k_with_permutation", "trunc",
    "trunc_in_place", "trunc_with_output", "update_scalar_in_rows", "update_table",
    "variance_to_inv_std_dev", "variance_to_inv_std_dev_in_place",
    "variance_to_inv_std_dev_with_output", "zero",
]

check_kinds(globals(), __all__)
check_kinds(embedding.__dict__, embedding.__all__)
check_kinds(rearrange.__dict__, rearrange.__all__)
