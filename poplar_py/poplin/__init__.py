"""Matrix products and convolutions, planned over tiles.

`convolution` and `mat_mul` choose a path by element type and shape:

    blocks    f32 and f16: 16 outputs a vector, sums in registers (`plan`, `inputs`, `blocks`, and
              the kernels in poplin_block.py); inputs are read where they lie when their
              pieces fit (`lanes`), weights are laid out as one stream a vertex (`weights`)
    generic   every other type: one simple vertex a block (`generic`, poplin_generic.py)

Poplar's `ConvParams` are brought to the form the kernels know (`conv_params`, `transforms`);
operands may be created where a product reads them (`create`). Products serve gradients
(`gradients`) and dense solvers (`solve`) as well.

Biases, residuals and activations run inside the block vertices (`epilogue`). `plan_report(graph)`
says how each product was cut.
"""

from __future__ import annotations

import numpy as np

from poplar_py.poplar import Tensor
from poplar_py.poplin import cycles
from poplar_py.poplin.conv_params import ConvParams, InputTransform, OutputTransform
from poplar_py.poplin.convolution import conv_transpose, convolution, transpose_params
from poplar_py.poplin.create import (
    create_biases,
    create_input,
    create_mat_mul_grouped_input_lhs,
    create_mat_mul_grouped_input_rhs,
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    create_weights,
    pre_arrange_mat_mul_input_rhs,
)
from poplar_py.poplin.epilogue import Epilogue, supports_epilogue
from poplar_py.poplin.flops import (
    get_bwd_flops,
    get_bwd_perfect_cycle_count,
    get_fwd_flops,
    get_fwd_perfect_cycle_count,
    get_wu_flops,
    get_wu_perfect_cycle_count,
)
from poplar_py.poplin.gradients import (
    FullyConnectedParams,
    calculate_weight_deltas,
    convolution_bias_update,
    convolution_weight_update,
    fully_connected,
    fully_connected_backward,
    fully_connected_weight_update,
)
from poplar_py.poplin.matmul import create_mat_mul_input, mat_mul
from poplar_py.poplin.multi import (
    ConvolutionArgs,
    multi_convolution,
    multi_create_input,
    multi_create_weights,
)
from poplar_py.poplin.names import (
    add_bias,
    convolution_with_output,
    linspace,
    mat_mul_acc,
    mat_mul_grouped,
    mat_mul_grouped_acc,
    mat_mul_grouped_with_output,
    mat_mul_with_output,
    meshgrid2d,
    transpose_grouped_matrix,
    triangular_mask,
    weights_transpose_chans_flip_xy,
)
from poplar_py.poplin.norms import (
    create_norm_beta,
    create_norm_gamma,
    create_norm_params,
    norm_gradients,
    norm_param_gradients,
    norm_statistics,
    norm_statistics_gradients,
    norm_whiten,
    normalise,
)
from poplar_py.poplin.params import ConvForm
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import plan_report, plans
from poplar_py.poplin.planning import (
    MatMulParams,
    PlanningCache,
    mat_mul_report_plan,
    preplan,
    preplan_mat_muls,
    report_plan_estimated_costs,
    report_plan_info,
)
from poplar_py.poplin.solve import (
    cholesky,
    lu_factorization,
    qr_factorization,
    triangular_solve,
)
from poplar_py.poputil.built_in import add_codelets
from poplar_py.poputil.kinds import check_kinds

__all__ = [
    "ConvForm",
    "ConvParams",
    "ConvolutionArgs",
    "Epilogue",
    "FullyConnectedParams",
    "InputTransform",
    "MatMulParams",
    "OutputTransform",
    "PlanningCache",
    "TileRange",
    "add_bias",
    "add_codelets",
    "calculate_weight_deltas",
    "cholesky",
    "conv_transpose",
    "convolution",
    "convolution_bias_update",
    "convolution_weight_update",
    "convolution_with_output",
    "create_biases",
    "create_input",
    "create_mat_mul_grouped_input_lhs",
    "create_mat_mul_grouped_input_rhs",
    "create_mat_mul_input",
    "create_mat_mul_input_lhs",
    "create_mat_mul_input_rhs",
    "create_norm_beta",
    "create_norm_gamma",
    "create_norm_params",
    "create_weights",
    "cycles",
    "fully_connected",
    "fully_connected_backward",
    "fully_connected_weight_update",
    "get_bwd_flops",
    "get_bwd_perfect_cycle_count",
    "get_fwd_flops",
    "get_fwd_perfect_cycle_count",
    "get_wu_flops",
    "get_wu_perfect_cycle_count",
    "linspace",
    "lu_factorization",
    "mat_mul",
    "mat_mul_acc",
    "mat_mul_grouped",
    "mat_mul_grouped_acc",
    "mat_mul_grouped_with_output",
    "mat_mul_report_plan",
    "mat_mul_with_output",
    "meshgrid2d",
    "multi_convolution",
    "multi_create_input",
    "multi_create_weights",
    "norm_gradients",
    "norm_param_gradients",
    "norm_statistics",
    "norm_statistics_gradients",
    "norm_whiten",
    "normalise",
    "plan_report",
    "plans",
    "pre_arrange_mat_mul_input_rhs",
    "preplan",
    "preplan_mat_muls",
    "qr_factorization",
    "report_plan_estimated_costs",
    "report_plan_info",
    "supports_epilogue",
    "transpose_grouped_matrix",
    "transpose_params",
    "triangular_mask",
    "triangular_solve",
    "weights_transpose_chans_flip_xy",
]

check_kinds(globals(), __all__, Operand=Tensor | np.ndarray)
