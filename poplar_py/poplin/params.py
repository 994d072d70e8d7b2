"""The form of a convolution that the kernels know: strides, pads, dilations, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail

__all__ = ["ConvForm"]

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvForm:
    """A convolution over `rank` spatial dims (1 to 3). Every tuple holds one entry a dim.

    The input is dilated (`input_dilations`: zeros between elements), then padded (negative pads cut
    off), then correlated with the dilated kernel at every `strides`-th place.
    """

    strides: Sizes
    pads_lower: Sizes
    pads_upper: Sizes
    dilations: Sizes
    input_dilations: Sizes
    groups: int = 1

    def __post_init__(self) -> None:
        lists = (self.pads_lower, self.pads_upper, self.dilations, self.input_dilations)
        if any(len(t) != self.rank for t in lists):
            fail(ShapeError, f"a number for each of {self.rank} dims: {self}")
        if min((*self.strides, *self.dilations, *self.input_dilations, self.groups)) < 1:
            fail(ShapeError, f"strides, dilations and groups of at least 1: {self}")

    @staticmethod
    def of(
        rank: int,
        *,
        strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        input_dilations: Sequence[int] | None = None,
        groups: int = 1,
    ) -> ConvForm:
        """Parameters from ONNX-like attributes: `pads` lists lower pads, then upper ones."""
        pad = tuple(pads) if pads is not None else (0,) * (2 * rank)
        if len(pad) != 2 * rank:
            fail(ShapeError, f"{2 * rank} pads are needed for {rank} spatial dims, not {len(pad)}")
        params = ConvForm(
            _sizes(strides, rank, "strides"),
            pad[:rank],
            pad[rank:],
            _sizes(dilations, rank, "dilations"),
            _sizes(input_dilations, rank, "input dilations"),
            groups,
        )
        if groups < 1:
            fail(ShapeError, f"a convolution needs at least one group, not {groups}")
        return params

    @property
    def rank(self) -> int:
        return len(self.strides)

    def dilated_input(self, spatial: Sequence[int]) -> Sizes:
        """Spatial sizes after input dilation, before padding."""
        dil = self.input_dilations
        return tuple((n - 1) * d + 1 if n else 0 for n, d in zip(spatial, dil, strict=True))

    def padded_input(self, spatial: Sequence[int]) -> Sizes:
        """Spatial sizes after input dilation and padding."""
        sizes = self.dilated_input(spatial)
        low, high = self.pads_lower, self.pads_upper
        return tuple(n + a + b for n, a, b in zip(sizes, low, high, strict=True))

    def output_spatial(self, spatial: Sequence[int], kernel: Sequence[int]) -> Sizes:
        """Spatial sizes of the result. Raises ShapeError when the kernel does not fit."""
        out: list[int] = []
        rows = zip(self.padded_input(spatial), kernel, self.dilations, self.strides, strict=True)
        for size, k, d, s in rows:
            reach = (k - 1) * d + 1
            if size < reach:
                fail(
                    ShapeError,
                    f"a kernel that reaches over {reach} does not fit an input of {size} with pads",
                    remedy="pad the input or use a smaller kernel",
                )
            out.append((size - reach) // s + 1)
        return tuple(out)

    def output_shape(self, x: Sequence[int], w: Sequence[int]) -> Sizes:
        """[N, O, *spatial] from x [N, C, *spatial] and w [O, C/groups, *kernel]; checks them."""
        rank = self.rank
        if len(x) != rank + 2 or len(w) != rank + 2:
            fail(ShapeError, f"convolution over {rank} dims of x {tuple(x)} and w {tuple(w)}")
        if x[1] != w[1] * self.groups or w[0] % self.groups:
            fail(
                ShapeError,
                f"channels do not fit: x {tuple(x)}, w {tuple(w)}, {self.groups} groups",
                remedy="w must be [outputs, inputs / groups, ...], outputs a multiple of groups",
            )
        return (x[0], w[0], *self.output_spatial(x[2:], w[2:]))


def _sizes(values: Sequence[int] | None, rank: int, what: str) -> Sizes:
    if values is None:
        return (1,) * rank
    if len(values) != rank or min(values, default=1) < 1:
        fail(ShapeError, f"{what} {tuple(values)} must be {rank} numbers of at least 1")
    return tuple(int(v) for v in values)
