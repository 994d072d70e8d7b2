"""What ONNX Slice is asked for: attributes before opset 10, operands since."""

from __future__ import annotations

from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node

__all__ = ["slice_ranges"]

Numbers = tuple[int, ...]
_END = (2**31 - 1, 2**63 - 1)
"""What means the end of the axis, whichever way a slice goes (onnxruntime; ONNX wants -2^63 where
it goes backwards)."""


def slice_ranges(b: Builder, n: Node) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Starts, ends, axes and steps, as the node gives them."""
    if n.version < 10:
        starts, ends = n.ints("starts"), n.ints("ends")
        return starts, ends, n.ints("axes", range(len(starts))), (1,) * len(starts)
    starts, ends = b.ints(n[1], "the starts"), b.ints(n[2], "the ends")
    axes = b.ints(n[3], "the axes") if n.has(3) else tuple(range(len(starts)))
    steps = b.ints(n[4], "the steps") if n.has(4) else (1,) * len(starts)
    if len(ends) == len(steps):
        pairs = zip(ends, steps, strict=True)
        ends = tuple(-(2**63) if step < 0 and end in _END else end for end, step in pairs)
    return starts, ends, axes, steps
