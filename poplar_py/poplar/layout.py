"""Memory order of tensors: common digits for element-wise work, sorted regions, simplification.

Everything here re-views tensors; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from poplar_py.poplar.arrays import I8, as_ints, coalesce, cut, merge_digits, sort_order
from poplar_py.poplar.mapping import Interval
from poplar_py.poplar.tensor import Tensor
from poplar_py.poplar.view_core import Digit, Dim, Runs, View
from poplar_py.poplar.views import Affine, Cat

MAX_BLOCKS = 64
"""Joined tensors that fall into more blocks than this are better treated as run lists."""


@dataclass(frozen=True)
class AlignedBlock:
    """Some elements of several tensors of one logical shape, in the memory order of the first.

    Element ``i0, i1, ...`` with ``0 <= ik < dims[k]`` of tensor t is at address
    ``offsets[t] + sum(ik * strides[t][k])``. ``strides[0]`` descends and is positive, so walking
    the dims row-major walks the first tensor's memory upwards; ``strides[0][-1]`` is 1 where it has
    runs at all. A stride of 0 is a broadcast: the tensor's element is the same all along that dim.
    """

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    sources: tuple[Tensor, ...]

    @property
    def numel(self) -> int:
        return prod(self.dims)

    def tensor(self, t: int) -> Tensor:
        """Tensor t as a view of shape ``dims``, ready for ``Edges.boxes``."""
        dims = tuple([((n, s),) for n, s in zip(self.dims, self.strides[t], strict=True)])
        source = self.sources[t]
        return Tensor(source.graph, Affine(self.offsets[t], dims, self.dims), source.dtype)

    def mode(self, t: int) -> str:
        """How tensor t varies over the two innermost dims [rows, cols]: full, row (the same for
        every row), col (one per row) or scalar."""
        inner = self.strides[t][-1] if self.dims else 0
        outer = self.strides[t][-2] if len(self.dims) > 1 else 0
        if inner:
            return "full" if outer or len(self.dims) < 2 else "row"
        return "col" if outer else "scalar"


def align_views(out: Tensor, others: Sequence[Tensor]) -> list[AlignedBlock] | None:
    """``out`` and ``others`` (all of one logical shape) re-viewed with one list of dims in the
    memory order of ``out``, collapsed as far as all of them allow.

    For element-wise operations: ``out`` may be any permutation, slice or join of variables (layouts
    such as [N][C/16][H][W][16] shown as [N, C, H, W]), the others may be broadcast views or lie in
    another order. Each block covers some elements of ``out``; blocks do not overlap and together
    cover it. Tensors joined along an axis give one block per stretch between two joints.

    Result None when a common list of digits does not exist: a tensor is stored as a run list,
    ``out`` holds an element twice, the sizes of nested digits do not divide, or there are more than
    MAX_BLOCKS blocks. Then only runs are left: ``Tensor.runs()``, ``Edges.flat``.

    Example: out [N, C, H, W] over memory [N][C/16][H][W][16] and a bias [C] broadcast to it give
    dims (N, C/16, H*W, 16), strides of out (.., .., 16, 1) and of the bias (0, 16, 0, 1): for each
    of the N * C/16 outer indices a [rows = H*W, cols = 16] block with the bias in mode "row".
    """
    sources = (out, *others)
    blocks: list[tuple[View, ...]] = []
    if not _split_joins(tuple([t.view for t in sources]), blocks):
        return None
    result: list[AlignedBlock] = []
    for views in blocks:
        if prod(views[0].shape) == 0:
            continue
        block = _align(views, sources)
        if block is None:
            return None
        result.append(block)
    return result


def _split_joins(views: tuple[View, ...], out: list[tuple[View, ...]]) -> bool:
    """Slice all views at the joints of any Cat until none is left; False when that is too much."""
    joined = next((v for v in views if isinstance(v, Cat)), None)
    if joined is None:
        if any(isinstance(v, Runs) for v in views):
            return False
        out.append(views)
        return len(out) <= MAX_BLOCKS
    axis, at = joined.axis, 0
    if len(joined.parts) > MAX_BLOCKS:
        return False
    for p in joined.parts:
        end = at + p.shape[axis]
        parts = tuple([p if v is joined else v.slice(at, end, axis) for v in views])
        if not _split_joins(parts, out):
            return False
        at = end
    return True


Column = tuple[int, list[int]]
"""Size of a common digit and the stride of every view along it."""


def _align(views: tuple[View, ...], sources: tuple[Tensor, ...]) -> AlignedBlock | None:
    affine = [v for v in views if isinstance(v, Affine)]
    columns: list[Column] = []
    for d in range(len(views[0].shape)):
        common = _common_digits([_plain(v, d) for v in affine])
        if common is None:
            return None
        columns += common
    offsets = [v.offset for v in affine]
    for size, strides in columns:
        if strides[0] == 0:
            return None
        if strides[0] < 0:
            for t, s in enumerate(strides):
                offsets[t] += (size - 1) * s
                strides[t] = -s
    columns.sort(key=lambda c: -c[1][0])
    merged: list[Column] = []
    for size, strides in columns:
        if merged and all(
            [a == size * b for a, b in zip(merged[-1][1], strides, strict=True)]  # noqa: C419
        ):
            merged[-1] = (merged[-1][0] * size, strides)
        else:
            merged.append((size, strides))
    reach = 0
    for size, strides in reversed(merged):  # rows that overlap: an element of out twice
        if strides[0] <= reach:
            return None
        reach += (size - 1) * strides[0]
    return AlignedBlock(
        tuple([n for n, _ in merged]),
        tuple([tuple([s[t] for _, s in merged]) for t in range(len(affine))]),
        tuple(offsets),
        sources,
    )


def _plain(view: Affine, dim: int) -> tuple[Digit, ...]:
    """The digits of a dim, merged and without size 1."""
    digits = view.dims[dim]
    if len(digits) == 1:
        return digits if digits[0][0] != 1 else ()
    return tuple(merge_digits(digits))


def _common_digits(dims: list[tuple[Digit, ...]]) -> list[Column] | None:
    """The coarsest digits that refine those of every view; None when sizes do not divide."""
    if not dims[0] and not any(dims):
        return []
    if all(len(d) == 1 for d in dims):
        return [(dims[0][0][0], [d[0][1] for d in dims])]
    cuts: set[int] = {1}
    total = 1
    for digits in dims:
        total = 1
        for size, _ in reversed(digits):
            total *= size
            cuts.add(total)
    order = sorted(cuts)
    out: list[Column] = []
    for low, high in pairwise(order):
        if high % low:
            return None
        strides = [_stride_at(digits, low, high) for digits in dims]
        if None in strides:
            return None
        out.append((high // low, [s for s in strides if s is not None]))
    return out[::-1]


def _stride_at(digits: tuple[Digit, ...], low: int, high: int) -> int | None:
    """Stride of the sub-digit between inner products ``low`` and ``high``."""
    inner = 1
    for size, stride in reversed(digits):
        if low >= inner * size:
            inner *= size
            continue
        if low % inner or (inner * size) % high:
            return None
        return stride * (low // inner)
    return None


# ------------------------------------------------------------------------- memory order
def memory_order(tensor: Tensor) -> Tensor:
    """The tensor's distinct elements as a vector in ascending address order."""
    aligned = None if isinstance(tensor.view, Runs) else align_views(tensor, [])
    if aligned is not None and len(aligned) == 1:
        return aligned[0].tensor(0).flatten()
    start, length = coalesce(*tensor.runs())
    order = sort_order(start)
    if order is not None:
        start, length = start[order], length[order]
    if len(start) > 1:
        reach = np.maximum.accumulate(start + length)
        start = np.append(start[:1], np.maximum(start[1:], reach[:-1]))
        length = reach - start
        keep = length > 0
        start, length = coalesce(start[keep], length[keep])
    total = int(length.sum())
    return Tensor(tensor.graph, Runs((total,), start, length), tensor.dtype)


def reorder_to_simplify(reference: Tensor, others: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """All tensors flattened and reordered alike, so that ``reference`` is in memory order (where it
    holds elements twice, its runs are sorted by their start).

    Poplar's reorderToSimplify, with results in place of in-out arguments.
    """
    aligned = align_views(reference, others)
    if aligned is not None and len(aligned) == 1:
        block = aligned[0]
        return block.tensor(0).flatten(), [
            block.tensor(i + 1).flatten() for i in range(len(others))
        ]
    start, length = reference.flatten().runs()
    end = np.cumsum(length)
    order = np.argsort(start, kind="stable")
    begin = (end - length)[order]

    def moved(t: Tensor) -> Tensor:
        s, n, _ = cut(*t.flatten().runs(), begin, begin + length[order])
        return Tensor(t.graph, Runs((t.numel,), *coalesce(s, n)), t.dtype)

    return moved(reference), [moved(t) for t in others]


def sorted_contiguous_regions(
    tensor: Tensor,
    regions: Sequence[tuple[int, int]],
    remove_aliased: bool = False,
) -> list[list[Interval]]:
    """Intervals of the flattened tensor, sorted by memory address; one inner list per stretch that
    is contiguous in memory. ``remove_aliased`` drops elements that an earlier interval covers.
    """
    if not regions:
        return []
    lo, hi = (as_ints([r[i] for r in regions]) for i in (0, 1))
    start, length, window = cut(*tensor.flatten().runs(), lo, hi)
    rank = np.cumsum(length) - length
    first = np.searchsorted(window, window, "left")
    begin = lo[window] + rank - rank[first]
    order = np.argsort(start, kind="stable")
    start, length, begin = start[order], length[order], begin[order]
    if remove_aliased and len(start):
        reach = np.maximum.accumulate(start + length)
        skip = np.zeros(len(start), I8)
        skip[1:] = np.clip(reach[:-1] - start[1:], 0, length[1:])
        start, begin, length = start + skip, begin + skip, length - skip
        keep = length > 0
        start, begin, length = start[keep], begin[keep], length[keep]
    out: list[list[Interval]] = []
    last = -1
    for s, b, n in zip(start.tolist(), begin.tolist(), length.tolist(), strict=True):
        if s != last:
            out.append([])
        group = out[-1]
        if group and group[-1].end == b:
            group[-1] = Interval(group[-1].begin, b + n)
        else:
            group.append(Interval(b, b + n))
        last = s + n
    return out


def find_unbroadcast_tensor(tensor: Tensor) -> Tensor:
    """The tensor without its repeats: every dim shortened to its distinct elements, where the
    repeats are regular; else the tensor itself."""
    view = tensor.view
    if not isinstance(view, Affine):
        return tensor
    dims: list[Dim] = []
    for digits in view.dims:
        kept = tuple([(n, s) for n, s in digits if s != 0 or n == 0]) or ((1, 1),)
        dims.append(kept)
    return Tensor(tensor.graph, Affine(view.offset, tuple(dims)), tensor.dtype)
