"""Matrix products and convolutions, planned over tiles.

`convolution` and `mat_mul` choose a path by element type and shape:

    blocks    f32 and f16: 16 outputs a vector, sums in registers (`plan`, `inputs`, `blocks`, and
              the kernels in poplin_block.py); inputs are read where they lie when their
              pieces fit (`lanes`), weights are laid out as one stream a vertex (`weights`)
    generic   every other type: one simple vertex a block (`generic`, poplin_generic.py)

Biases, residuals and activations run inside the block vertices (`epilogue`). `plan_report(graph)`
says how each product was cut.
"""

from __future__ import annotations

from poplar_py.poplin import cycles
from poplar_py.poplin.convolution import conv_transpose, convolution, transpose_params
from poplar_py.poplin.epilogue import Epilogue, supports_epilogue
from poplar_py.poplin.matmul import create_mat_mul_input, mat_mul
from poplar_py.poplin.params import ConvParams
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import plan_report, plans

__all__ = [
    "ConvParams",
    "Epilogue",
    "TileRange",
    "conv_transpose",
    "convolution",
    "create_mat_mul_input",
    "cycles",
    "mat_mul",
    "plan_report",
    "plans",
    "supports_epilogue",
    "transpose_params",
]
