"""poputil: which elements lie side by side, found in layouts made for it and in random ones."""

from __future__ import annotations

import numpy as np

from poplar_py import poputil
from poplar_py.poplar import Tensor
from tests.libraries.lab import Case, Lab
from tests.libraries.popops_rearrange_cases import grouped

__all__ = ["CASES", "ELSEWHERE"]


def _together(lab: Lab, t: Tensor, size: int) -> bool:
    """Whether every `size` elements of the flat tensor lie side by side on one tile."""
    address = np.zeros(t.numel, np.int64)
    begin = 0
    for start, length in zip(*t.runs(), strict=True):
        address[begin : begin + length] = start + np.arange(length)
        begin += length
    tile = np.zeros(t.numel, np.int64)
    for number, intervals in enumerate(lab.graph.get_tile_mapping(t)):
        for low, high in intervals:
            tile[low:high] = number
    groups, tiles = address.reshape(-1, size), tile.reshape(-1, size)
    return bool((np.diff(groups) == 1).all() and (tiles == tiles[:, :1]).all())


def _innermost(lab: Lab) -> None:
    """The group found lies together, and none that is larger."""
    for _ in range(4):
        x = lab.values(lab.shape(1, 3, 12))
        t = lab.put(x)
        found = poputil.detect_innermost_grouping(lab.graph, t)
        last = x.shape[-1]
        assert last % found == 0
        fits = [g for g in range(1, last + 1) if last % g == 0 and _together(lab, t, g)]
        assert found == max(fits)
        lab.expect(t, x, exact=True)


def _groupings(lab: Lab) -> None:
    """All elements along a dim on one tile; a variable of one tile, dim after dim."""
    shape = tuple(2 * n for n in lab.shape(2, 3, 4))
    x = lab.values(shape)
    dim = lab.pick(0, len(shape) - 1)
    t = grouped(lab, x, dim, lab.dtype)
    assert poputil.detect_dim_groupings(lab.graph, t)[0] == (dim, shape[dim])
    whole = lab.put(x, like=lab.graph.add_variable(lab.dtype, shape, mapping=3))
    order = [(d, n) for d, n in enumerate(shape)]
    assert poputil.detect_dim_groupings(lab.graph, whole) == order[::-1]
    turned = whole.transpose()
    assert [n for _, n in poputil.detect_dim_groupings(lab.graph, turned)] == list(shape[::-1])
    lab.expect(turned, x.T, exact=True)


CASES: dict[str, Case] = {
    "detect_innermost_grouping": _innermost,
    "detect_dim_groupings": _groupings,
}
ELSEWHERE = {
    "template_vertex": "gives a name; tests/popops/test_poplar_forms.py::test_names",
}
