"""Matrix products and convolutions, planned over tiles."""

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
