"""popops.rearrange: values stay, and what lies side by side is what was asked for."""

from __future__ import annotations

import numpy as np

from poplar_py.poplar import Tensor
from poplar_py.popops import rearrange
from poplar_py.poputil import detect_dim_groupings
from poplar_py.types import DType, f32, f64, i32, u8
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES"]


def grouped(lab: Lab, array: Array, dim: int, dtype: DType) -> Tensor:
    """A tensor that holds the array with its elements along `dim` side by side on one tile."""
    order = [d for d in range(array.ndim) if d != dim] + [dim]
    shape = tuple(array.shape[d] for d in order)
    var = lab.graph.add_variable(dtype, shape)
    rows = var.reshape((-1, shape[-1]))
    for i in range(rows.shape[0]):
        lab.graph.set_tile_mapping(rows.index(i), lab.pick(0, 15))
    return lab.put(array, like=var.dim_shuffle(np.argsort(order).tolist()))


def _shape(lab: Lab) -> tuple[int, ...]:
    return tuple(4 * n for n in lab.shape(2, 3, 3))


def _regroup(lab: Lab) -> None:
    for dtype in (lab.dtype, u8):
        shape = _shape(lab)
        a, b = lab.rng.permutation(len(shape))[:2].tolist()
        x = lab.values(shape, 0, 9, dtype)
        sizes = [(1, 2, 4, shape[d])[lab.pick(0, 3)] for d in (a, b)]
        t = grouped(lab, x, a, dtype)
        out = rearrange.regroup_tensor(lab.graph, t, lab.prog, (a, sizes[0]), (b, sizes[1]))
        lab.expect(out, x, exact=True)
        if sizes[1] > 1:
            dim, size = detect_dim_groupings(lab.graph, out)[0]
            assert dim == b
            assert size % sizes[1] == 0
    x = lab.values(_shape(lab))
    t = lab.put(x)
    lab.expect(rearrange.regroup_tensor(lab.graph, t, lab.prog, (0, 2), (0, 4)), x, exact=True)


def _if_possible(lab: Lab) -> None:
    grain = rearrange.get_minimum_regroup_grain_size(lab.dtype)
    shape = _shape(lab)
    x = lab.values(shape)
    t = grouped(lab, x, 0, lab.dtype)
    out = rearrange.regroup_if_possible(lab.graph, t, lab.prog, (1, grain))
    assert detect_dim_groupings(lab.graph, out)[0][0] == 1
    lab.expect(out, x, exact=True)
    same = rearrange.regroup_if_possible(lab.graph, t, lab.prog, (0, grain))
    odd = rearrange.regroup_if_possible(lab.graph, t, lab.prog, (1, 1))
    assert same is t
    assert odd is t


def _if_beneficial(lab: Lab) -> None:
    shape = _shape(lab)
    x, y = lab.values(shape), lab.values(shape, dtype=i32)
    last = len(shape) - 1
    t, ref = grouped(lab, x, 0, lab.dtype), grouped(lab, y, last, i32)
    for preferred in (ref, 4, 64):
        out = rearrange.regroup_if_beneficial(lab.graph, t, preferred, lab.prog)
        assert detect_dim_groupings(lab.graph, out)[0][0] == last
        lab.expect(out, x, exact=True)
    row = lab.put(lab.values((8,)))
    assert rearrange.regroup_if_beneficial(lab.graph, row, 4, lab.prog) is row


def _grain(lab: Lab) -> None:
    """64 bits hold so many elements; groups of them are moved."""
    sizes = {d: rearrange.get_minimum_regroup_grain_size(d) for d in (lab.dtype, f64, u8)}
    assert sizes == {lab.dtype: 2 if lab.dtype is f32 else 4, f64: 1, u8: 8}
    _if_possible(lab)


def _partial_transpose(lab: Lab) -> None:
    x = lab.values(lab.shape(2, 4, 9))
    out = rearrange.partial_transpose(lab.graph, lab.put(x), lab.prog)
    lab.expect(out, np.swapaxes(x, -1, -2), exact=True)


CASES: dict[str, Case] = {
    "regroup_tensor": _regroup,
    "regroup_if_possible": _if_possible,
    "regroup_if_beneficial": _if_beneficial,
    "get_minimum_regroup_grain_size": _grain,
    "partial_transpose": _partial_transpose,
}
