"""Sizes of the fields of vertices that were added one by one."""

from __future__ import annotations

import numpy as np

from poplar_py.poplar.vertex_ref import FieldRef

__all__ = ["field_size"]


def field_size(field: FieldRef) -> int:
    """Vectors of a list field, elements of any other field or of one vector ``v["field"][i]``.

    0 where nothing is connected or given yet. Raises UnknownField.
    """
    group, v, name = field.group, field.index, field.name
    at = group.state_at.get(name)
    if at is not None:
        given = [value for i, value in zip(at, group.state_value[name], strict=True) if i == v]
        return int(np.size(given[-1])) if given else 0
    group.edge_type(name)  # raises for an unknown name
    growing = group.fields[name]
    rows = growing.rows()
    rows = rows[rows[:, 0] == v]
    if growing.rank == 2 and field.sub < 0:
        pairs = np.array(growing.subs, np.int64).reshape(-1, 2)
        counts = pairs[pairs[:, 0] == v, 1]
        return int(max(counts.max(initial=0), (rows[:, 1] + 1).max(initial=0)))
    if field.sub >= 0:
        rows = rows[rows[:, 1] == field.sub]
    return int((rows[:, 3] * rows[:, 4]).sum())
