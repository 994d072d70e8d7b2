"""popops.embedding: planned tables give the same rows; parts are updated where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import popops
from poplar_py.diagnostics import OptionError, ShapeError, TypeMismatch
from poplar_py.poplar import Tensor
from poplar_py.popops import SlicePlan, embedding
from poplar_py.types import i32, u32
from tests.libraries.lab import TILES, Array, Case, Lab
from tests.libraries.popops_index_cases import updated, whole

__all__ = ["CASES"]

TARGETS = ("memory", "cycles")
BAD = (
    {"usedForSlice": "false", "usedForUpdate": "false"},
    {"indicesDistribution": "even"},
    {"planMinimizationTarget": "cycles"},
    {"availableMemoryProportion": "-1"},
    {"availableMemoryProportion": "1e-9"},
)


def _planned(lab: Lab, rows: int, width: int, count: int) -> SlicePlan:
    options = {"planMinimisationTarget": TARGETS[lab.pick(0, 1)]}
    return embedding.plan(lab.graph, lab.dtype, rows, width, [count], options)


def _lookup(lab: Lab) -> None:
    """Tables laid out by the plan and elsewhere; the update in place moves no table."""
    rows, width, count = lab.pick(1, 90), lab.pick(1, 40), lab.pick(1, 30)
    plan = _planned(lab, rows, width, count)
    x = whole(lab, (rows, width))
    updates = whole(lab, (count, width), -2, 2)
    where = lab.values((count, 1), 0, rows - 1, u32)
    index = popops.create_indices_tensor(lab.graph, [0], count, plan)
    lab.put(where, like=index)
    u = lab.put(updates)
    for made in (True, False):
        t = lab.put(x, _table(lab, plan) if made else None)
        before = popops.multi_slice(lab.graph, t, index, lab.prog, plan=plan)
        copies = len(lab.prog.steps)
        popops.multi_update_add(lab.graph, t, index, u, lab.prog, plan=plan)
        assert not made or len(lab.prog.steps) == copies + 1
        lab.expect(before, x[where[:, 0].astype(np.int64)], exact=True)
        lab.expect(t, updated(x, where[:, 0], updates, "add"), exact=True)


def _table(lab: Lab, plan: SlicePlan) -> Tensor:
    shape = (plan.entries, plan.width)
    return popops.create_sliceable_tensor(lab.graph, plan.dtype, shape, [0], plan=plan)


def _bounds(lab: Lab) -> None:
    """The fullest tile holds what the plan says, and less memory asked for means less used."""
    plan = _planned(lab, 64, 48, 16)
    tiles = lab.graph.get_tile_mapping(_table(lab, plan))
    held = [sum(end - begin for begin, end in tile) for tile in tiles]
    assert max(held) * lab.dtype.size <= plan.nbytes
    assert sum(held) == 64 * 48
    assert plan.parts == -(-64 // plan.rows) * (48 // plan.cols)
    fast, small = (
        embedding.plan(lab.graph, lab.dtype, 4000, 96, [300], {"planMinimisationTarget": t})
        for t in ("cycles", "memory")
    )
    assert fast.cycles <= small.cycles
    assert small.nbytes <= fast.nbytes
    for options in BAD:
        with pytest.raises(OptionError):
            embedding.plan(lab.graph, lab.dtype, 64, 48, [16], options)


def _refused(lab: Lab) -> None:
    plan = _planned(lab, 9, 8, 4)
    index = lab.put(np.zeros(4, np.int32))
    wrong: Array = np.zeros((9, 9), lab.dtype.numpy)
    with pytest.raises(ShapeError):
        popops.multi_slice(lab.graph, lab.put(wrong), index, lab.prog, plan=plan)
    with pytest.raises(TypeMismatch):
        popops.create_sliceable_tensor(lab.graph, i32, (9, 8), [0], plan=plan)
    assert plan.parts / 6 <= TILES


def _plan(lab: Lab) -> None:
    _bounds(lab)
    _refused(lab)
    _lookup(lab)


CASES: dict[str, Case] = {"plan": _plan}
