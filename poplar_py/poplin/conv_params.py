"""Convolutions as Poplar describes them: sizes, and what is done to input, kernel and output.

The order is truncate, dilate, pad, flip for input and kernel; then the convolution; then truncate,
stride, pad for the output (poplibs, poplin ConvParams). Sizes follow from it:

    t(x)   = padding_lower + dilated(x - truncations) + padding_upper
    conv   = t(input) + 1 - t(kernel)
    output = padding_lower + ceil((conv - truncations) / stride) + padding_upper

with dilated(k) = (k - 1) dilation + 1, and 0 for k = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.types import DType

__all__ = ["ConvParams", "InputTransform", "OutputTransform"]

Sizes = Sequence[int]


@dataclass
class InputTransform:
    """What happens to an input or a kernel before the convolution, one entry a field dim.

    Empty sequences mean: nothing (a dilation of 1, no flip).
    """

    truncation_lower: Sizes = ()
    truncation_upper: Sizes = ()
    dilation: Sizes = ()
    padding_lower: Sizes = ()
    padding_upper: Sizes = ()
    flip: Sequence[bool] = ()

    def filled(self, rank: int) -> InputTransform:
        """The same with an entry for each of `rank` dims."""
        return InputTransform(
            _filled(self.truncation_lower, rank, 0),
            _filled(self.truncation_upper, rank, 0),
            _filled(self.dilation, rank, 1),
            _filled(self.padding_lower, rank, 0),
            _filled(self.padding_upper, rank, 0),
            tuple(bool(f) for f in _filled(self.flip, rank, 0)),
        )

    def truncated(self, size: int, dim: int) -> int:
        """What truncation leaves of `size`."""
        return size - self.truncation_lower[dim] - self.truncation_upper[dim]

    def dilated(self, size: int, dim: int) -> int:
        """The size after truncation and dilation."""
        kept = self.truncated(size, dim)
        return (kept - 1) * self.dilation[dim] + 1 if kept else 0

    def size(self, size: int, dim: int) -> int:
        """t(size): the size after truncation, dilation and padding."""
        return self.padding_lower[dim] + self.dilated(size, dim) + self.padding_upper[dim]


@dataclass
class OutputTransform:
    """What happens to the output after the convolution; empty sequences mean: nothing."""

    truncation_lower: Sizes = ()
    truncation_upper: Sizes = ()
    stride: Sizes = ()
    padding_lower: Sizes = ()
    padding_upper: Sizes = ()

    def filled(self, rank: int) -> OutputTransform:
        """The same with an entry for each of `rank` dims."""
        return OutputTransform(
            _filled(self.truncation_lower, rank, 0),
            _filled(self.truncation_upper, rank, 0),
            _filled(self.stride, rank, 1),
            _filled(self.padding_lower, rank, 0),
            _filled(self.padding_upper, rank, 0),
        )


def _filled(values: Sequence[int], rank: int, default: int) -> tuple[int, ...]:
    return tuple(int(v) for v in values) if values else (default,) * rank


@dataclass
class ConvParams:
    """A whole convolution: types, sizes and transforms; one entry a field dim (1 to 3 dims).

    The input is [batch_size, groups x in channels, *input_field_shape], weights are
    [groups, out channels, in channels, *kernel_shape], the output is
    [batch_size, groups x out channels, *get_output_field_shape()]. `validate` says what is wrong.
    """

    input_type: DType
    output_type: DType
    batch_size: int
    input_field_shape: Sizes
    kernel_shape: Sizes
    input_channels_per_conv_group: int
    output_channels_per_conv_group: int
    num_conv_groups: int = 1
    input_transform: InputTransform = field(default_factory=InputTransform)
    kernel_transform: InputTransform = field(default_factory=InputTransform)
    output_transform: OutputTransform = field(default_factory=OutputTransform)

    # ------------------------------------------------------------------ getters
    def get_num_field_dims(self) -> int:
        return len(self.input_field_shape)

    def get_batch_size(self) -> int:
        return self.batch_size

    def get_input_field_shape(self) -> tuple[int, ...]:
        return tuple(self.input_field_shape)

    def get_kernel_shape(self) -> tuple[int, ...]:
        return tuple(self.kernel_shape)

    def get_input_size(self, dim: int) -> int:
        return self.input_field_shape[dim]

    def get_num_conv_groups(self) -> int:
        return self.num_conv_groups

    def get_num_input_chans_per_conv_group(self) -> int:
        return self.input_channels_per_conv_group

    def get_num_output_chans_per_conv_group(self) -> int:
        return self.output_channels_per_conv_group

    def get_num_input_chans(self) -> int:
        """Input channels of all groups."""
        return self.input_channels_per_conv_group * self.num_conv_groups

    def get_num_output_chans(self) -> int:
        """Output channels of all groups."""
        return self.output_channels_per_conv_group * self.num_conv_groups

    def get_transformed_input_size(self, dim: int) -> int:
        """Size of an input dim after truncation, dilation and padding."""
        transform = self.input_transform.filled(self.get_num_field_dims())
        return transform.size(self.input_field_shape[dim], dim)

    def get_transformed_kernel_size(self, dim: int) -> int:
        """Size of a kernel dim after truncation, dilation and padding."""
        transform = self.kernel_transform.filled(self.get_num_field_dims())
        return transform.size(self.kernel_shape[dim], dim)

    get_padded_dilated_input_size = get_transformed_input_size
    get_padded_dilated_kernel_size = get_transformed_kernel_size

    def get_untransformed_output_size(self, dim: int) -> int:
        """Size of an output dim before truncation, stride and padding."""
        return self.get_transformed_input_size(dim) + 1 - self.get_transformed_kernel_size(dim)

    def get_output_size(self, dim: int) -> int:
        """Size of an output dim."""
        out = self.output_transform.filled(self.get_num_field_dims())
        kept = self.get_untransformed_output_size(dim)
        kept -= out.truncation_lower[dim] + out.truncation_upper[dim]
        return out.padding_lower[dim] + -(-kept // out.stride[dim]) + out.padding_upper[dim]

    def get_output_field_shape(self) -> tuple[int, ...]:
        """Sizes of all output dims."""
        return tuple(self.get_output_size(d) for d in range(self.get_num_field_dims()))

    # ------------------------------------------------------------------ checks and forms
    def input_shape(self) -> tuple[int, ...]:
        """[N, C, *field]."""
        return (self.batch_size, self.get_num_input_chans(), *self.input_field_shape)

    def weights_shape(self) -> tuple[int, ...]:
        """[groups, out channels, in channels, *kernel]."""
        per = (self.output_channels_per_conv_group, self.input_channels_per_conv_group)
        return (self.num_conv_groups, *per, *self.kernel_shape)

    def output_shape(self) -> tuple[int, ...]:
        """[N, O, *field]."""
        return (self.batch_size, self.get_num_output_chans(), *self.get_output_field_shape())

    def validate(self) -> ConvParams:
        """The same with every transform filled in. Raises ShapeError naming the field at fault."""
        rank = self.get_num_field_dims()
        if not 1 <= rank <= 3:
            fail(ShapeError, f"input_field_shape: one to three dims, not {rank}")
        if len(self.kernel_shape) != rank:
            fail(ShapeError, f"kernel_shape: {rank} dims as input_field_shape has")
        for name in ("input_channels_per_conv_group", "output_channels_per_conv_group"):
            if getattr(self, name) < 1:
                fail(ShapeError, f"{name}: at least 1, not {getattr(self, name)}")
        if self.num_conv_groups < 1:
            fail(ShapeError, f"num_conv_groups: at least 1, not {self.num_conv_groups}")
        if self.batch_size < 0:
            fail(ShapeError, f"batch_size: not {self.batch_size}")
        full = replace(
            self,
            input_transform=self.input_transform.filled(rank),
            kernel_transform=self.kernel_transform.filled(rank),
            output_transform=self.output_transform.filled(rank),
        )
        _check_input("input_transform", full.input_transform, self.input_field_shape)
        _check_input("kernel_transform", full.kernel_transform, self.kernel_shape)
        _check_output(full)
        return full

    def canonicalize(self) -> ConvParams:
        """Equal parameters in the form plans compare.

        Padding of the kernel and truncation of the output become truncation or less padding of
        the input where its dilation is 1; dilations of single elements, strides of single outputs
        and flips of single elements are dropped.
        """
        full = self.validate()
        for dim in range(full.get_num_field_dims()):
            full = _canonical_dim(full, dim)
        return full


def _check_lengths(name: str, transform: InputTransform | OutputTransform, rank: int) -> None:
    for part, values in vars(transform).items():
        if len(values) != rank:
            fail(ShapeError, f"{name}.{part}: {rank} entries, not {len(values)}")
        least = 1 if part in ("dilation", "stride") else 0
        if min(values, default=least) < least:
            fail(
                ShapeError,
                f"{name}.{part}: entries of at least {least}, not {tuple(values)}",
                remedy="cut elements off with a truncation, not with negative padding",
            )


def _check_input(name: str, transform: InputTransform, shape: Sizes) -> None:
    _check_lengths(name, transform, len(shape))
    for dim, size in enumerate(shape):
        if transform.truncated(size, dim) < 0:
            fail(ShapeError, f"{name}.truncation: more than the {size} elements of dim {dim}")


def _check_output(params: ConvParams) -> None:
    out = params.output_transform
    _check_lengths("output_transform", out, params.get_num_field_dims())
    for dim in range(params.get_num_field_dims()):
        size, kernel = (
            params.get_transformed_input_size(dim),
            params.get_transformed_kernel_size(dim),
        )
        if size + 1 < kernel:
            fail(
                ShapeError,
                f"kernel_shape: dim {dim} reaches over {kernel}, the transformed input over {size}",
                remedy="pad the input or use a smaller kernel",
            )
        if out.truncation_lower[dim] + out.truncation_upper[dim] > size + 1 - kernel:
            fail(
                ShapeError,
                f"output_transform.truncation: more than the {size + 1 - kernel} of dim {dim}",
            )


def _set(values: Sequence[int], dim: int, value: int) -> tuple[int, ...]:
    return (*values[:dim], value, *values[dim + 1 :])


def _canonical_dim(full: ConvParams, dim: int) -> ConvParams:
    """`full` with one dim in canonical form."""
    x, k, out = full.input_transform, full.kernel_transform, full.output_transform
    size, taps = full.input_field_shape[dim], full.kernel_shape[dim]
    if full.get_output_size(dim) - out.padding_lower[dim] - out.padding_upper[dim] <= 1:
        out = _single(full, out, dim)
    x, k = _undilated(x, size, dim), _undilated(k, taps, dim)
    low, high = k.padding_lower[dim], k.padding_upper[dim]
    if k.flip[dim]:
        low, high = high, low
    low, high = low + out.truncation_lower[dim], high + out.truncation_upper[dim]
    free = x.dilation[dim] == 1 and not x.flip[dim]
    moved = _cut(x, size, dim, low, high) if free else None
    if moved is not None:
        x = moved
        k = replace(
            k,
            padding_lower=_set(k.padding_lower, dim, 0),
            padding_upper=_set(k.padding_upper, dim, 0),
        )
        k = _undilated(k, taps, dim)
        out = replace(
            out,
            truncation_lower=_set(out.truncation_lower, dim, 0),
            truncation_upper=_set(out.truncation_upper, dim, 0),
        )
    return replace(full, input_transform=x, kernel_transform=k, output_transform=out)


def _undilated(t: InputTransform, size: int, dim: int) -> InputTransform:
    """Without dilation and flip where truncation leaves one element at most."""
    if t.truncated(size, dim) > 1:
        return t
    t = replace(t, dilation=_set(t.dilation, dim, 1))
    even = t.padding_lower[dim] == t.padding_upper[dim]
    return replace(t, flip=_set(t.flip, dim, False)) if even else t


def _single(full: ConvParams, out: OutputTransform, dim: int) -> OutputTransform:
    """The output's transform without its stride: what the stride skips is truncated."""
    kept = full.get_untransformed_output_size(dim) - out.truncation_lower[dim]
    if kept - out.truncation_upper[dim] < 1:
        return replace(out, stride=_set(out.stride, dim, 1))
    high = _set(out.truncation_upper, dim, kept - 1)
    return replace(out, stride=_set(out.stride, dim, 1), truncation_upper=high)


def _cut(x: InputTransform, size: int, dim: int, low: int, high: int) -> InputTransform | None:
    """The input's transform with `low` and `high` elements less, padding first; None where the
    elements do not suffice."""
    cut_low = max(0, low - x.padding_lower[dim])
    cut_high = max(0, high - x.padding_upper[dim])
    if cut_low + cut_high > x.truncated(size, dim):
        return None
    return replace(
        x,
        padding_lower=_set(x.padding_lower, dim, max(0, x.padding_lower[dim] - low)),
        padding_upper=_set(x.padding_upper, dim, max(0, x.padding_upper[dim] - high)),
        truncation_lower=_set(x.truncation_lower, dim, x.truncation_lower[dim] + cut_low),
        truncation_upper=_set(x.truncation_upper, dim, x.truncation_upper[dim] + cut_high),
    )
