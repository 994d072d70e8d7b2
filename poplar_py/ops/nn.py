"""nn.*: matrix products, convolutions, pooling, activations, softmax, norms, recurrences."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.ir.core import ELEMENTWISE, PURE, Op, Value, op
from poplar_py.ops.recurrent import Gru, Lstm, Rnn
from poplar_py.ops.tensor import check_axis, static_dim
from poplar_py.types import Shape, TensorType, broadcast_shapes, i32

__all__ = [
    "AvgPool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "Gelu",
    "Gru",
    "LayerNorm",
    "LeakyRelu",
    "LogSoftmax",
    "Lstm",
    "MatMul",
    "MatMulInteger",
    "MaxPool",
    "Relu",
    "Rnn",
    "Softmax",
]


@op("nn.relu", PURE, ELEMENTWISE)
class Relu(Op):
    """y = max(x, 0). ONNX Relu."""

    x: Value

    def infer(self) -> TensorType:
        return self.x.type


@op("nn.leaky_relu", PURE, ELEMENTWISE)
class LeakyRelu(Op):
    """y = x where x >= 0, else alpha * x. ONNX LeakyRelu."""

    x: Value
    alpha: float = 0.01

    def infer(self) -> TensorType:
        return _float_type(self.x)


@op("nn.gelu", PURE, ELEMENTWISE)
class Gelu(Op):
    """y = x / 2 * (1 + erf(x / sqrt 2)), or its tanh form with approximate="tanh". ONNX Gelu."""

    x: Value
    approximate: str = "none"

    def infer(self) -> TensorType:
        if self.approximate not in ("none", "tanh"):
            raise ShapeError(f"no approximation is called {self.approximate!r}")
        return _float_type(self.x)


@op("nn.softmax", PURE)
class Softmax(Op):
    """e^(x - max) / sum of e^(x - max) along `axis`. ONNX Softmax."""

    x: Value
    axis: int = -1

    def infer(self) -> TensorType:
        check_axis(self.axis, self.x.rank)
        return _float_type(self.x)


@op("nn.log_softmax", PURE)
class LogSoftmax(Op):
    """x - max - log(sum of e^(x - max)) along `axis`. ONNX LogSoftmax."""

    x: Value
    axis: int = -1

    def infer(self) -> TensorType:
        check_axis(self.axis, self.x.rank)
        return _float_type(self.x)


@op("nn.layer_norm", PURE)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + eps) * scale + bias over axes `axis` to the last.

    scale and bias broadcast to the shape of those axes; variance is that of the whole group.
    Statistics are computed in f32 for f16 and bf16. ONNX LayerNormalization.
    """

    x: Value
    scale: Value | None
    bias: Value | None
    axis: int = -1
    eps: float = 1e-5

    def infer(self) -> TensorType:
        axis = check_axis(self.axis, self.x.rank)
        for part in (self.scale, self.bias):
            if part is None:
                continue
            if part.dtype is not self.x.dtype:
                raise TypeMismatch(f"x is {self.x.type}, scale or bias {part.type}")
            if broadcast_shapes(part.shape, self.x.shape[axis:]) != self.x.shape[axis:]:
                raise ShapeError(f"scale or bias {part.type} for {self.x.type} from axis {axis}")
        return _float_type(self.x)


def _float_type(x: Value) -> TensorType:
    if not x.dtype.is_float:
        raise TypeMismatch(f"operand {x.type} is not of a float type")
    return x.type


@op("nn.matmul", PURE)
class MatMul(Op):
    """Matrix product with NumPy's rules for batches and vectors. f16 and bf16 accumulate in f32.

    ONNX MatMul, Gemm, Einsum.
    """

    a: Value
    b: Value

    def infer(self) -> TensorType:
        if self.a.dtype is not self.b.dtype:
            raise TypeMismatch(f"operands are {self.a.type} and {self.b.type}")
        return TensorType(self.a.dtype, matmul_shape(self.a, self.b))


@op("nn.matmul_integer", PURE)
class MatMulInteger(Op):
    """Matrix product of integers (i8, u8, i32; a and b may differ) that accumulates in i32.

    ONNX MatMulInteger, QLinearMatMul (zero points are subtracted before).
    """

    a: Value
    b: Value

    def infer(self) -> TensorType:
        _require_integer(self.a, self.b)
        return TensorType(i32, matmul_shape(self.a, self.b))


def matmul_shape(a: Value, b: Value) -> Shape:
    """Result shape of a matrix product. Raises ShapeError."""
    if a.rank == 0 or b.rank == 0:
        raise ShapeError(f"operands are {a.type} and {b.type}: a scalar has no rows")
    inner_a, inner_b = a.shape[-1], b.shape[-2] if b.rank > 1 else b.shape[0]
    if isinstance(inner_a, int) and isinstance(inner_b, int) and inner_a != inner_b:
        raise ShapeError(
            f"inner sizes differ: {a.type} and {b.type}", remedy="transpose an operand"
        )
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    cols = b.shape[-1:] if b.rank > 1 else ()
    return (*batch, *rows, *cols)


def _require_integer(*values: Value) -> None:
    for value in values:
        if value.type.dtype.name not in ("i8", "u8", "i32"):
            raise TypeMismatch(f"operand {value.type} is not i8, u8 or i32")


@dataclass(eq=False, repr=False)
class _Convolution(Op):
    """x[N, C, *in] with w[O, C / groups, *kernel] gives [N, O, *out]."""

    x: Value
    w: Value
    bias: Value | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def out_shape(self) -> Shape:
        x, w = self.x, self.w
        spatial = x.rank - 2
        if x.rank < 3 or w.rank != x.rank:
            raise ShapeError(f"x is {x.type}, w {w.type}")
        check_window(spatial, self.strides, self.pads, self.dilations)
        outputs, group_inputs = static_dim(w, 0), static_dim(w, 1)
        if self.groups < 1 or outputs % self.groups:
            raise ShapeError(f"{outputs} output channels in {self.groups} groups")
        if group_inputs * self.groups != static_dim(x, 1):
            raise ShapeError(f"x is {x.type}, w {w.type}, {self.groups} groups")
        if self.bias is not None and self.bias.shape != (outputs,):
            raise ShapeError(f"bias {self.bias.type} for {outputs} output channels")
        kernel = tuple(static_dim(w, i + 2) for i in range(spatial))
        out = window_out(x, kernel, self.strides, self.pads, self.dilations)
        return (x.shape[0], outputs, *out)


@op("nn.conv", PURE)
class Conv(_Convolution):
    """Convolution of 1, 2 or 3 spatial axes. ONNX Conv.

    x[N, C, *in], w[O, C / groups, *kernel], bias[O] -> [N, O, *out]. `pads` are zeros: all begins,
    then all ends. f16 and bf16 accumulate in f32.
    """

    def infer(self) -> TensorType:
        if self.w.dtype is not self.x.dtype or not self.x.dtype.is_float:
            raise TypeMismatch(f"x is {self.x.type}, w {self.w.type}")
        return TensorType(self.x.dtype, self.out_shape())


@op("nn.conv_integer", PURE)
class ConvInteger(_Convolution):
    """Convolution of integers (i8, u8, i32; x and w may differ), accumulated in i32.

    ONNX ConvInteger, QLinearConv (zero points are subtracted before). bias is i32.
    """

    def infer(self) -> TensorType:
        _require_integer(self.x, self.w)
        if self.bias is not None and self.bias.dtype is not i32:
            raise TypeMismatch(f"bias is {self.bias.type}, not i32")
        return TensorType(i32, self.out_shape())


@op("nn.conv_transpose", PURE)
class ConvTranspose(Op):
    """The transpose of a convolution. ONNX ConvTranspose.

    x[N, C, *in], w[C, O / groups, *kernel], bias[O] -> [N, O, *out] with
    out = (in - 1) * stride + (kernel - 1) * dilation + 1 - begin pad - end pad. Pads cut the result
    off; a negative end pad extends it (ONNX output_padding).
    """

    x: Value
    w: Value
    bias: Value | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def infer(self) -> TensorType:
        x, w = self.x, self.w
        spatial = x.rank - 2
        if x.rank < 3 or w.rank != x.rank:
            raise ShapeError(f"x is {x.type}, w {w.type}")
        if w.dtype is not x.dtype or not x.dtype.is_float:
            raise TypeMismatch(f"x is {x.type}, w {w.type}")
        check_window(spatial, self.strides, tuple(map(abs, self.pads)), self.dilations)
        outputs = static_dim(w, 1) * self.groups
        if static_dim(w, 0) != static_dim(x, 1) or static_dim(w, 0) % max(self.groups, 1):
            raise ShapeError(f"x is {x.type}, w {w.type}, {self.groups} groups")
        if self.bias is not None and self.bias.shape != (outputs,):
            raise ShapeError(f"bias {self.bias.type} for {outputs} output channels")
        out: list[int] = []
        for i in range(spatial):
            extent = (static_dim(w, i + 2) - 1) * self.dilations[i] + 1
            full = (static_dim(x, i + 2) - 1) * self.strides[i] + extent
            out.append(full - self.pads[i] - self.pads[i + spatial])
        if min(out) < 0:
            raise ShapeError(f"pads {list(self.pads)} cut off more than there is: {out}")
        return TensorType(x.dtype, (x.shape[0], outputs, *out))


@dataclass(eq=False, repr=False)
class _Pool(Op):
    """Windows of `kernel` over the spatial axes of x[N, C, *in]."""

    x: Value
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def out_type(self) -> TensorType:
        spatial = self.x.rank - 2
        if self.x.rank < 3 or len(self.kernel) != spatial:
            raise ShapeError(f"kernel {list(self.kernel)} for {self.x.type}")
        check_window(spatial, self.strides, self.pads, self.dilations)
        out = window_out(self.x, self.kernel, self.strides, self.pads, self.dilations)
        return self.x.type.with_shape((*self.x.shape[:2], *out))


@op("nn.max_pool", PURE)
class MaxPool(_Pool):
    """Largest element of each window; padding never wins. ONNX MaxPool, GlobalMaxPool.

    With `indices` a second result (i32) gives the winner's position, row-major, inside its [*in]
    block (the first winner). Extra end pads carry ONNX's ceil_mode.
    """

    indices: bool = False

    def infer(self) -> TensorType | tuple[TensorType, ...]:
        y = self.out_type()
        return (y, y.with_dtype(i32)) if self.indices else y


@op("nn.avg_pool", PURE)
class AvgPool(_Pool):
    """Mean of each window. ONNX AveragePool, GlobalAveragePool.

    The divisor counts the elements inside x, with `count_include_pad` also those in the padding,
    but never those in the last `extra[i]` elements of the end pads (ONNX's ceil_mode).
    """

    count_include_pad: bool = False
    extra: tuple[int, ...] = ()

    def infer(self) -> TensorType:
        if self.extra and len(self.extra) != len(self.kernel):
            raise ShapeError(f"extra {list(self.extra)} for kernel {list(self.kernel)}")
        _float_type(self.x)
        return self.out_type()


def check_window(
    spatial: int, strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...]
) -> None:
    """Raises ShapeError unless the lists fit the number of spatial axes and hold good numbers."""
    if len(strides) != spatial or len(dilations) != spatial or len(pads) != 2 * spatial:
        raise ShapeError(
            f"{spatial} spatial axes with strides {list(strides)}, pads {list(pads)}, "
            f"dilations {list(dilations)}"
        )
    if min((*strides, *dilations)) < 1 or min(pads) < 0:
        raise ShapeError(
            f"strides {list(strides)}, dilations {list(dilations)} or pads {list(pads)} too small"
        )


def window_out(
    x: Value,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """Spatial sizes after sliding a window over the padded x. Raises ShapeError."""
    spatial = len(kernel)
    out: list[int] = []
    for i in range(spatial):
        if kernel[i] < 1:
            raise ShapeError(f"kernel {list(kernel)} is empty")
        extent = (kernel[i] - 1) * dilations[i] + 1
        room = static_dim(x, i + 2) + pads[i] + pads[i + spatial] - extent
        if room < 0:
            raise ShapeError(f"a window of {extent} does not fit axis {i + 2} of {x.type}")
        out.append(room // strides[i] + 1)
    return tuple(out)
