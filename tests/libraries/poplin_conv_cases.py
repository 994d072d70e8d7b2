"""poplin: convolutions in Poplar's parameters and their gradients.

What a convolution means is stated once, by which element of the input meets which of the kernel in
which output; forward pass and both gradients follow from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from poplar_py import poplin
from poplar_py.diagnostics import ShapeError
from poplar_py.poplar import Tensor
from poplar_py.poplin import ConvForm, ConvParams, Epilogue, InputTransform, OutputTransform
from poplar_py.types import DType, f32, i32
from tests.libraries.lab import Array, Case, Lab
from tests.libraries.popops_index_cases import whole

__all__ = ["CASES"]

Shape = tuple[int, ...]
Meeting = tuple[Array, int, Array]
"""Input elements, the kernel element they meet, and the outputs, along one dim."""


# ---------------------------------------------------------------------- the meaning
def _transformed(size: int, t: InputTransform, d: int) -> Array:
    """For every place after the transform the element that lies there, or -1."""
    kept = np.arange(t.truncation_lower[d], size - t.truncation_upper[d])
    apart = np.full((len(kept) - 1) * t.dilation[d] + 1 if len(kept) else 0, -1)
    apart[:: t.dilation[d]] = kept
    padded = np.pad(apart, (t.padding_lower[d], t.padding_upper[d]), constant_values=-1)
    return padded[::-1] if t.flip[d] else padded


def _meetings(p: ConvParams, d: int) -> list[Meeting]:
    x = _transformed(p.input_field_shape[d], p.input_transform, d)
    k = _transformed(p.kernel_shape[d], p.kernel_transform, d)
    out = p.output_transform
    whole_size = len(x) + 1 - len(k)
    kept = np.arange(out.truncation_lower[d], whole_size - out.truncation_upper[d])
    kept = kept[:: out.stride[d]]
    found: list[Meeting] = []
    for j in np.flatnonzero(k >= 0):
        at = x[kept + j]
        inside = at >= 0
        place = np.flatnonzero(inside) + out.padding_lower[d]
        found.append((at[inside], int(k[j]), place))
    return found


def _sums(p: ConvParams) -> Iterator[tuple[Any, Any, Any]]:
    """Indices into x [N, G, I, *field], w [G, O, I, *kernel] and z [N, G, O, *out]."""
    lead = (slice(None),) * 3
    for dims in product(*(_meetings(p, d) for d in range(p.get_num_field_dims()))):
        grid = [np.ix_(*(m[i] for m in dims)) for i in (0, 2)]
        yield (*lead, *grid[0]), (*lead, *(m[1] for m in dims)), (*lead, *grid[1])


def _grouped(p: ConvParams, t: Array) -> Array:
    groups = p.num_conv_groups
    shape = (t.shape[0], groups, t.shape[1] // groups, *t.shape[2:])
    return t.astype(np.float64).reshape(shape)


def _forward(p: ConvParams, x: Array, w: Array) -> Array:
    """x [N, C, *field] with w [G, O, I, *kernel]: [N, G O, *out]."""
    x = _grouped(p, x)
    out = np.zeros((p.batch_size, p.num_conv_groups, w.shape[1], *p.get_output_field_shape()))
    for of_x, of_w, of_z in _sums(p):
        out[of_z] += np.einsum("ngi...,goi->ngo...", x[of_x], w[of_w].astype(np.float64))
    return out.reshape(p.output_shape())


def _to_weights(p: ConvParams, x: Array, z: Array) -> Array:
    x, z = _grouped(p, x), _grouped(p, z)
    out = np.zeros(p.weights_shape())
    for of_x, of_w, of_z in _sums(p):
        held, got = (t.reshape((*t.shape[:3], -1)) for t in (x[of_x], z[of_z]))
        out[of_w] += np.einsum("ngip,ngop->goi", held, got)
    return out


def _to_input(p: ConvParams, z: Array, w: Array) -> Array:
    z = _grouped(p, z)
    out = np.zeros((p.batch_size, p.num_conv_groups, w.shape[2], *p.input_field_shape))
    for of_x, of_w, of_z in _sums(p):
        out[of_x] += np.einsum("ngo...,goi->ngi...", z[of_z], w[of_w].astype(np.float64))
    return out.reshape(p.input_shape())


# ---------------------------------------------------------------------- chance
def _few(lab: Lab, rank: int, high: int, usual: int = 0) -> Shape:
    """A number for each dim, mostly the usual one; or nothing, which means it for all."""
    if lab.chance():
        return ()
    return tuple(usual if lab.chance() else lab.pick(usual, high) for _ in range(rank))


def _input_transform(lab: Lab, rank: int, kernel: bool) -> InputTransform:
    cut, pad = (0, 1) if kernel else (1, 3)
    flip = tuple(lab.pick(0, 3) == 0 for _ in range(rank))
    return InputTransform(
        _few(lab, rank, cut + 1), _few(lab, rank, cut), _few(lab, rank, 2, 1),
        _few(lab, rank, pad), _few(lab, rank, pad), flip,
    )  # fmt: skip


def _channels(lab: Lab) -> int:
    return (1, 3, 4, 16, 17, 32)[lab.pick(0, 5)]


def _params(lab: Lab, dtype: DType | None = None, plain: bool = False) -> ConvParams:
    """Random parameters that can be had; `plain` ones have outputs, no flips and no truncations."""
    dtype = dtype or lab.dtype
    for _ in range(1000):
        rank, groups = lab.pick(1, 3), lab.pick(1, 3)
        limit = (0, 24, 9, 5)[rank]
        out = OutputTransform(
            _few(lab, rank, 1), _few(lab, rank, 1), _few(lab, rank, 3, 1),
            _few(lab, rank, 1), _few(lab, rank, 1),
        )  # fmt: skip
        out = OutputTransform(stride=_few(lab, rank, 3, 1)) if plain else out
        pads = InputTransform(padding_lower=_few(lab, rank, 2), padding_upper=_few(lab, rank, 2))
        wide = InputTransform(dilation=_few(lab, rank, 2, 1))
        params = ConvParams(
            dtype, dtype, lab.pick(1, 3), [lab.pick(1, limit) for _ in range(rank)],
            [lab.pick(1, 4) for _ in range(rank)],
            _channels(lab) if groups == 1 else lab.pick(1, 5),
            _channels(lab) if groups == 1 else lab.pick(1, 5), groups,
            pads if plain else _input_transform(lab, rank, False),
            wide if plain else _input_transform(lab, rank, True), out,
        )  # fmt: skip
        try:
            params = params.validate()
        except ShapeError:
            continue
        if not plain or 0 not in params.output_shape():
            return params
    raise AssertionError("no parameters that fit")


def _numbers(lab: Lab, shape: Sequence[int], dtype: DType) -> Array:
    return whole(lab, tuple(shape)) if dtype.is_float else lab.values(shape, -3, 3, dtype)


def _inputs(lab: Lab, p: ConvParams) -> tuple[Array, Array]:
    shapes = p.input_shape(), p.weights_shape()
    return _numbers(lab, shapes[0], p.input_type), _numbers(lab, shapes[1], p.input_type)


# ---------------------------------------------------------------------- convolutions
def _convolution(lab: Lab) -> None:
    for dtype in (lab.dtype, lab.dtype, lab.dtype, i32):
        p = _params(lab, dtype)
        x, w = _inputs(lab, p)
        weights: Any = w if lab.chance() else lab.put(w)
        out = poplin.convolution(lab.graph, lab.put(x), weights, None, p, lab.prog)
        lab.expect(out, _forward(p, x, w), exact=True)
    _convolution_with_epilogue(lab)


def _convolution_with_epilogue(lab: Lab) -> None:
    p = _params(lab)
    x, w = _inputs(lab, p)
    bias, more = whole(lab, p.output_shape()[1:2]), whole(lab, p.output_shape())
    given: Any = bias if lab.chance() else lab.put(bias)
    epilogue = Epilogue("relu(add($0,$1))", (lab.put(more),))
    given_x, given_w = lab.put(x), lab.put(w)
    out = poplin.convolution(
        lab.graph, given_x, given_w, given, p, lab.prog, epilogue=epilogue,
        available_memory_proportion=0.1,
    )  # fmt: skip
    column = bias.reshape((-1, *(1,) * p.get_num_field_dims()))
    lab.expect(out, np.maximum(_forward(p, x, w) + column + more, 0), exact=True)
    tiles = (lab.pick(0, 4), lab.pick(1, 8))
    out = poplin.convolution(
        lab.graph, given_x, given_w, None, p, lab.prog, out_dtype=f32, tiles=tiles
    )
    assert out.dtype is f32
    lab.expect(out, _forward(p, x, w), exact=True)


def _with_output(lab: Lab) -> None:
    p = _params(lab)
    x, w = _inputs(lab, p)
    out = lab.put(lab.values(p.output_shape()))
    poplin.convolution_with_output(lab.graph, lab.put(x), lab.put(w), out, p, lab.prog)
    lab.expect(out, _forward(p, x, w), exact=True)


def _created(which: str) -> Case:
    def case(lab: Lab) -> None:
        for dtype in (lab.dtype, i32):
            p = _params(lab, dtype)
            x, w = _inputs(lab, p)
            made = {"x": poplin.create_input, "w": poplin.create_weights}[which](lab.graph, p)
            xt = lab.put(x, made) if which == "x" else lab.put(x)
            wt = lab.put(w, made) if which == "w" else lab.put(w)
            out = poplin.convolution(lab.graph, xt, wt, None, p, lab.prog)
            lab.expect(out, _forward(p, x, w), exact=True)

    return case


def _biases(lab: Lab) -> None:
    """Biases made for activations and added to them."""
    acts = lab.values(lab.shape(2, 4, 20))
    bias = lab.values(acts.shape[1:2])
    x = lab.put(acts)
    held = lab.put(bias, poplin.create_biases(lab.graph, x))
    poplin.add_bias(lab.graph, x, held, lab.prog)
    lab.expect(x, acts.astype(np.float64) + bias.reshape((-1, *(1,) * (acts.ndim - 2))))
    assert held.dtype is lab.dtype


def _add_bias(lab: Lab) -> None:
    acts = lab.values(lab.shape(2, 4, 20))
    bias = lab.values(acts.shape[1:2])
    x = lab.put(acts)
    poplin.add_bias(lab.graph, x, lab.put(bias), lab.prog)
    lab.expect(x, acts.astype(np.float64) + bias.reshape((-1, *(1,) * (acts.ndim - 2))))


def _bias_update(lab: Lab) -> None:
    z = lab.values(lab.shape(2, 4, 12))
    bias = lab.values(z.shape[1:2])
    axes = (0, *range(2, z.ndim))
    total = z.astype(np.float64).sum(axes)
    for scale in (-0.5, lab.put(np.array(-0.5, lab.dtype.numpy))):
        held = lab.put(bias)
        poplin.convolution_bias_update(lab.graph, lab.put(z), held, scale, lab.prog)
        lab.expect(held, bias - 0.5 * total)


# ---------------------------------------------------------------------- gradients
def _weight_deltas(lab: Lab) -> None:
    for _ in range(2):
        p = _params(lab)
        x, z = whole(lab, p.input_shape()), whole(lab, p.output_shape(), -1, 1)
        out = poplin.calculate_weight_deltas(lab.graph, lab.put(z), lab.put(x), p, lab.prog)
        lab.expect(out, _to_weights(p, x, z), exact=True)


def _weight_update(lab: Lab) -> None:
    p = _params(lab)
    x, z = whole(lab, p.input_shape()), whole(lab, p.output_shape(), -1, 1)
    w = whole(lab, p.weights_shape())
    held = lab.put(w)
    poplin.convolution_weight_update(lab.graph, lab.put(z), held, lab.put(x), p, 2.0, lab.prog)
    lab.expect(held, w + 2 * _to_weights(p, x, z), exact=True)


def _form(p: ConvParams) -> ConvForm:
    """Plain parameters as a form."""
    x, k, out = p.input_transform, p.kernel_transform, p.output_transform
    pads = (*x.padding_lower, *x.padding_upper)
    return ConvForm.of(
        p.get_num_field_dims(), strides=out.stride, pads=pads, dilations=k.dilation,
        groups=p.num_conv_groups,
    )  # fmt: skip


def _gone(p: ConvParams) -> Shape:
    """What the stride left over at the end of each dim."""
    spare = [p.get_untransformed_output_size(d) - 1 for d in range(p.get_num_field_dims())]
    return tuple(s % t for s, t in zip(spare, p.output_transform.stride, strict=True))


def _backward(turned: Any) -> Case:
    """The gradient of the input as a convolution of that of the output."""

    def case(lab: Lab) -> None:
        p = _params(lab, plain=True)
        w, z = whole(lab, p.weights_shape()), whole(lab, p.output_shape(), -1, 1)
        form = poplin.transpose_params(p.kernel_shape, _form(p), _gone(p))
        out = turned(lab, p, lab.put(z), lab.put(w), form)
        lab.expect(out, _to_input(p, z, w), exact=True)

    return case


def _flipped_first(lab: Lab, p: ConvParams, z: Tensor, w: Tensor, form: ConvForm) -> Tensor:
    flipped = poplin.weights_transpose_chans_flip_xy(w, grouped=True)
    joined = flipped.reshape((-1, *flipped.shape[2:]))
    return poplin.convolution(lab.graph, z, joined, None, form, lab.prog)


def _flipped_inside(lab: Lab, p: ConvParams, z: Tensor, w: Tensor, form: ConvForm) -> Tensor:
    joined = w.reshape((-1, *w.shape[2:]))
    return poplin.convolution(
        lab.graph, z, joined, None, form, lab.prog, transpose_and_flip_weights=True
    )


def _flip(lab: Lab) -> None:
    w = lab.values(lab.shape(3, 5, 5))
    turned = np.flip(w, tuple(range(2, w.ndim))).swapaxes(0, 1)
    lab.expect(poplin.weights_transpose_chans_flip_xy(lab.put(w)), turned, exact=True)
    _backward(_flipped_first)(lab)


def _conv_transpose(lab: Lab) -> None:
    p = _params(lab, plain=True)
    w, z = whole(lab, p.weights_shape()), whole(lab, p.output_shape(), -1, 1)
    bias = whole(lab, p.input_shape()[1:2])
    joined = w.reshape((-1, *w.shape[2:]))
    weights: Any = joined if lab.chance() else lab.put(joined)
    out = poplin.conv_transpose(
        lab.graph, lab.put(z), weights, lab.put(bias), _form(p), lab.prog, output_padding=_gone(p)
    )
    column = bias.reshape((-1, *(1,) * p.get_num_field_dims()))
    lab.expect(out, _to_input(p, z, w) + column, exact=True)
    _patches(lab)


def _patches(lab: Lab) -> None:
    """Kernels as wide as the strides: every input makes a patch of its own."""
    rank = lab.pick(1, 3)
    kernel = [lab.pick(1, 3) for _ in range(rank)]
    field = [n * lab.pick(1, 4) for n in kernel]
    p = ConvParams(
        lab.dtype, lab.dtype, lab.pick(1, 2), field, kernel, lab.pick(1, 17), lab.pick(1, 17),
        output_transform=OutputTransform(stride=kernel),
    ).validate()  # fmt: skip
    w, z = whole(lab, p.weights_shape()), whole(lab, p.output_shape())
    out = poplin.conv_transpose(lab.graph, lab.put(z), lab.put(w[0]), None, _form(p), lab.prog)
    lab.expect(out, _to_input(p, z, w), exact=True)


# ---------------------------------------------------------------------- several at once
def _several(which: str) -> Case:
    def case(lab: Lab) -> None:
        params = [_params(lab) for _ in range(lab.pick(1, 3))]
        args: list[poplin.ConvolutionArgs] = []
        wanted: list[Array] = []
        for i, p in enumerate(params):
            x, w = _inputs(lab, p)
            xt = poplin.multi_create_input(lab.graph, params, i) if "x" in which else None
            wt = poplin.multi_create_weights(lab.graph, params, i) if "w" in which else None
            args.append(poplin.ConvolutionArgs(lab.put(x, xt), lab.put(w, wt), p))
            wanted.append(_forward(p, x, w))
        outs = poplin.multi_convolution(lab.graph, args, lab.prog)
        for out, want in zip(outs, wanted, strict=True):
            lab.expect(out, want, exact=True)

    return case


CASES: dict[str, Case] = {
    "convolution": _convolution,
    "convolution_with_output": _with_output,
    "create_input": _created("x"),
    "create_weights": _created("w"),
    "create_biases": _biases,
    "add_bias": _add_bias,
    "convolution_bias_update": _bias_update,
    "calculate_weight_deltas": _weight_deltas,
    "convolution_weight_update": _weight_update,
    "transpose_params": _backward(_flipped_inside),
    "weights_transpose_chans_flip_xy": _flip,
    "conv_transpose": _conv_transpose,
    "multi_convolution": _several(""),
    "multi_create_input": _several("x"),
    "multi_create_weights": _several("xw"),
}
