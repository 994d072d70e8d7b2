"""Views joined along an axis; neighbours that continue each other in memory become one part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from poplar_py.poplar.view_core import Runs, View
from poplar_py.poplar.views import Affine, Cat

SameVariable = Callable[[int, int], bool]


def concat_views(views: Sequence[View], axis: int, same: SameVariable) -> View:
    """Join views along an axis; neighbours that continue each other in memory become one part.

    ``same`` tells whether two addresses belong to one variable: a part never spans two.
    """
    if len(views) == 1:
        return views[0]
    joined = Cat(axis, views)
    if all(isinstance(p, Runs) for p in joined.parts):
        return joined.as_runs()
    parts = _fuse(joined.parts, axis, same)
    return parts[0] if len(parts) == 1 else Cat(axis, parts)


def _fuse(parts: list[View], axis: int, same: SameVariable) -> list[View]:
    """Join neighbouring Affine parts of which the second starts where the first ends."""
    out = parts[:1]
    for p in parts[1:]:
        last = out[-1]
        joined = _fuse_two(last, p, axis, same)
        if joined is None:
            out.append(p)
        else:
            out[-1] = joined
    return out


def _fuse_two(a: View, b: View, axis: int, same: SameVariable) -> Affine | None:
    if not isinstance(a, Affine) or not isinstance(b, Affine):
        return None
    da, db = a.dims[axis], b.dims[axis]
    if len(da) != 1 or len(db) != 1:
        return None
    (na, sa), (nb, sb) = da[0], db[0]
    step = b.offset - a.offset
    if na == 1:
        sa = step if nb == 1 else sb
    if (nb != 1 and sb != sa) or step != na * sa or sa == 0:
        return None
    for d in range(len(a.dims)):
        if d != axis and a.dims[d] != b.dims[d]:
            return None
    if not same(a.offset, b.offset):
        return None
    return Affine(a.offset, (*a.dims[:axis], ((na + nb, sa),), *a.dims[axis + 1 :]))
