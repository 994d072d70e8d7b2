"""nn.lstm, nn.gru, nn.rnn: recurrences over the first axis, one direction each."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.diagnostics import ShapeError, TypeMismatch
from poplar_py.ir.core import PURE, Op, Value, op
from poplar_py.ops.tensor import static_dim
from poplar_py.types import TensorType

__all__ = ["Gru", "Lstm", "Rnn"]


@dataclass(eq=False, repr=False)
class _Recurrent(Op):
    """x[T, B, I], w[G*H, I], r[G*H, H], bias or None; steps run from the end with `reverse`."""

    def check(self, gates: int, x: Value, w: Value, r: Value, *states: Value) -> tuple[int, ...]:
        if x.rank != 3 or w.rank != 2 or r.rank != 2:
            raise ShapeError(f"x is {x.type}, w {w.type}, r {r.type}")
        steps, batch, inputs = (static_dim(x, i) for i in range(3))
        hidden = static_dim(r, 1)
        if w.shape != (gates * hidden, inputs) or r.shape != (gates * hidden, hidden):
            raise ShapeError(f"x is {x.type}, w {w.type}, r {r.type}, {gates} gates")
        for state in states:
            if state.shape != (batch, hidden):
                raise ShapeError(f"a state is {state.type}, not [{batch},{hidden}]")
        for value in (w, r, *states):
            if value.dtype is not x.dtype:
                raise TypeMismatch(f"x is {x.type}, another operand {value.type}")
        return steps, batch, hidden


@op("nn.lstm", PURE)
class Lstm(_Recurrent):
    """One direction of an LSTM; gates in the order i, o, f, c as in ONNX LSTM.

    x[T, B, I], w[4H, I], r[4H, H], bias[4H] (sum of both), h0[B, H], c0[B, H] ->
    y[T, B, H] (all hidden states, in the order of time), last h[B, H], last c[B, H].
    Per step: g = x_t @ w.T + h @ r.T + bias; i, o, f = sigmoid; c~ = tanh; c = f * c + i * c~;
    h = o * tanh(c). Other activations, peepholes, clips and lengths are decomposed on import.
    """

    x: Value
    w: Value
    r: Value
    bias: Value | None
    h0: Value
    c0: Value
    reverse: bool = False

    def infer(self) -> tuple[TensorType, ...]:
        t, b, h = self.check(4, self.x, self.w, self.r, self.h0, self.c0)
        if self.bias is not None and self.bias.shape != (4 * h,):
            raise ShapeError(f"bias {self.bias.type} for hidden size {h}")
        d = self.x.dtype
        return TensorType(d, (t, b, h)), TensorType(d, (b, h)), TensorType(d, (b, h))


@op("nn.gru", PURE)
class Gru(_Recurrent):
    """One direction of a GRU; gates in the order z, r, h as in ONNX GRU.

    x[T, B, I], w[3H, I], r[3H, H], bias[6H] (input part, then recurrent part), h0[B, H] ->
    y[T, B, H], last h[B, H]. Per step: z, r = sigmoid(x_t @ w.T + h @ r.T + bw + br);
    n = tanh(xn + bwn + r * (h @ rn.T + brn)) with linear_before_reset, else
    n = tanh(xn + bwn + (r * h) @ rn.T + brn); h = (1 - z) * n + z * h.
    """

    x: Value
    w: Value
    r: Value
    bias: Value | None
    h0: Value
    reverse: bool = False
    linear_before_reset: bool = False

    def infer(self) -> tuple[TensorType, ...]:
        t, b, h = self.check(3, self.x, self.w, self.r, self.h0)
        if self.bias is not None and self.bias.shape != (6 * h,):
            raise ShapeError(f"bias {self.bias.type} for hidden size {h}")
        return TensorType(self.x.dtype, (t, b, h)), TensorType(self.x.dtype, (b, h))


@op("nn.rnn", PURE)
class Rnn(_Recurrent):
    """One direction of a simple RNN. ONNX RNN.

    x[T, B, I], w[H, I], r[H, H], bias[H] (sum of both), h0[B, H] -> y[T, B, H], last h[B, H].
    Per step: h = f(x_t @ w.T + h @ r.T + bias), f = `activation`: tanh, relu or sigmoid.
    """

    x: Value
    w: Value
    r: Value
    bias: Value | None
    h0: Value
    reverse: bool = False
    activation: str = "tanh"

    def infer(self) -> tuple[TensorType, ...]:
        t, b, h = self.check(1, self.x, self.w, self.r, self.h0)
        if self.activation not in ("tanh", "relu", "sigmoid"):
            raise ShapeError(f"no activation is called {self.activation!r}")
        if self.bias is not None and self.bias.shape != (h,):
            raise ShapeError(f"bias {self.bias.type} for hidden size {h}")
        return TensorType(self.x.dtype, (t, b, h)), TensorType(self.x.dtype, (b, h))
