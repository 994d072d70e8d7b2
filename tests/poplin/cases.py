"""Graphs of one product each, run in a flat memory and compared with float64 NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py import poplin
from poplar_py.poplar import Graph, Target, Tensor, program
from poplar_py.poplin.lanes import blocked_copy
from poplar_py.poplin.place import TileRange
from poplar_py.poplin.plan import piece_widths
from poplar_py.types import DType
from tests.poplin.flat import Flat


def target(tiles: int) -> Target:
    return Target.ipu("gc200", ipus=1, tiles_per_ipu=tiles)


def sample(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low = -5 if dtype.kind == "i" else 0
    return rng.integers(low, 6, shape).astype(dtype.numpy)


@dataclass
class Outcome:
    got: np.ndarray
    wanted: np.ndarray
    codelets: list[str]
    copies: int
    gathered: int

    @property
    def error(self) -> float:
        """Largest difference over the largest reference."""
        got = self.got.astype(np.float64)
        return float(np.abs(got - self.wanted).max() / max(np.abs(self.wanted).max(), 1e-9))


def outcome(graph: Graph, prog: program.Sequence, flat: Flat, out: Tensor, wanted: Any) -> Outcome:
    flat.run(prog)
    names = [g.codelet.name.split("::")[1] for cs in graph.compute_sets for g in cs.groups]
    copies = sum(isinstance(s, program.Copy) for s in prog.steps)
    return Outcome(flat.read(out), wanted, names, copies, flat.gathered)


def reference_conv(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, params: poplin.ConvForm
) -> np.ndarray:
    """Any number of spatial dims, in float64."""
    rank, groups = params.rank, params.groups
    both = list(zip(params.pads_lower, params.pads_upper, strict=True))
    pads = [(0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in both)]
    cut = tuple(slice(max(-a, 0), b if b < 0 else None) for a, b in both)
    padded = np.pad(x.astype(np.float64), pads)[(slice(None), slice(None), *cut)]
    shape = params.output_shape(x.shape, w.shape)
    out = np.zeros(shape)
    per_in, per_out = w.shape[1], shape[1] // groups
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, params.dilations, params.strides, shape[2:], strict=True)
        )
        for g in range(groups):
            part = padded[(slice(None), slice(g * per_in, (g + 1) * per_in), *window)]
            taps = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)]
            out[:, g * per_out : (g + 1) * per_out] += np.einsum(
                "nc...,oc->no...", part, taps.astype(np.float64)
            )
    if bias is not None:
        out += bias.astype(np.float64).reshape((1, -1) + (1,) * rank)
    return out


def run_conv(
    dtype: DType,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    params: poplin.ConvForm,
    *,
    tiles: int = 64,
    blocked: bool = True,
    epilogue: str = "",
    computed_weights: bool = False,
) -> Outcome:
    rng = np.random.default_rng(7)
    graph, prog = Graph(target(tiles)), program.Sequence()
    x, w = sample(rng, dtype, x_shape), sample(rng, dtype, w_shape)
    bias = sample(rng, dtype, (w_shape[0],)) if dtype.is_float else None
    wanted = reference_conv(x, w, bias, params)
    tensor = graph.add_variable(dtype, x_shape, "x", mapping="linear")
    source = tensor
    if blocked:
        where = TileRange(0, tiles)
        source = blocked_copy(graph, tensor, prog, "in", where, piece_widths(x_shape[-1]))
    weights: Any = w
    written = [(tensor, x)]
    if computed_weights:
        weights = graph.add_variable(dtype, w_shape, "w", mapping="linear")
        written.append((weights, w))
    extra = None
    if epilogue:
        residual = sample(rng, dtype, wanted.shape)
        other = graph.add_variable(dtype, residual.shape, "r", mapping="linear")
        written.append((other, residual))
        wanted = apply(epilogue, wanted, residual)
        extra = poplin.Epilogue(epilogue, (other,) if "$1" in epilogue else ())
    out = poplin.convolution(graph, source, weights, bias, params, prog, "conv", epilogue=extra)
    flat = Flat(graph)
    for t, data in written:
        flat.write(t, data)
    return outcome(graph, prog, flat, out, wanted)


def apply(epilogue: str, value: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """The epilogues the tests use, in float64."""
    sigmoid = 1 / (1 + np.exp(-value))
    table = {
        "relu($0)": lambda: np.maximum(value, 0),
        "relu(add($0,$1))": lambda: np.maximum(value + residual, 0),
        "add($0,$1)": lambda: value + residual,
        "add(mul($0,sigmoid($0)),$1)": lambda: value * sigmoid + residual,
        "mul($0,sigmoid($0))": lambda: value * sigmoid,
        "min(max($0,c(0.0)),c(6.0))": lambda: np.clip(value, 0, 6),
        "tanh($0)": lambda: np.tanh(value),
        "sigmoid($0)": lambda: sigmoid,
        "mul($0,min(max(add(mul($0,c(0.16666667)),c(0.5)),c(0)),c(1)))": lambda: (
            value * np.clip(value / 6 + 0.5, 0, 1)
        ),
        "select(less($0,c(0)),mul($0,c(0.1)),$0)": lambda: np.where(value < 0, 0.1 * value, value),
    }
    return table[epilogue]()


def run_mat_mul(
    dtypes: tuple[DType, DType],
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    *,
    constant: str = "b",
    layout: str = "",
    epilogue: str = "",
    tiles: int = 64,
) -> Outcome:
    """`constant`: which operands are arrays; `layout`: "rows" or "columns" blocks b beforehand."""
    rng = np.random.default_rng(5)
    graph, prog = Graph(target(tiles)), program.Sequence()
    a, b = sample(rng, dtypes[0], a_shape), sample(rng, dtypes[1], b_shape)
    bias = sample(rng, dtypes[0], (b_shape[-1],)) if dtypes[0].is_float else None
    left: Any = graph.add_variable(dtypes[0], a_shape, "a", mapping="linear")
    right: Any = graph.add_variable(dtypes[1], b_shape, "b", mapping="linear")
    written = [(left, a), (right, b)]
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    wanted = wanted if bias is None else wanted + bias.astype(np.float64)
    where = TileRange(0, tiles)
    if layout == "columns":
        right = blocked_copy(graph, right.reshape((-1, *b_shape[-2:])), prog, "b", where)
    if layout == "rows":
        swapped = right.reshape((-1, *b_shape[-2:])).dim_shuffle((0, 2, 1))
        right = blocked_copy(graph, swapped, prog, "b", where).dim_shuffle((0, 2, 1))
    right = right.reshape(b_shape)
    extra = None
    if epilogue:
        residual = sample(rng, dtypes[0], wanted.shape)
        other = graph.add_variable(dtypes[0], residual.shape, "r", mapping="linear")
        written.append((other, residual))
        wanted = apply(epilogue, wanted, residual)
        extra = poplin.Epilogue(epilogue, (other,) if "$1" in epilogue else ())
    left = a if "a" in constant else left
    right = b if "b" in constant else right
    out = poplin.mat_mul(graph, left, right, prog, "mm", bias=bias, epilogue=extra)
    flat = Flat(graph)
    for t, data in written:
        flat.write(t, data)
    return outcome(graph, prog, flat, out, wanted)
