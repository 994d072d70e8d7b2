"""Cycle estimates users register for their vertices: called once per distinct shape of vertex."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.poplar.arrays import I8, Ints, as_ints
from poplar_py.poplar.errors import TensorTypeError, UnknownField
from poplar_py.poplar.faults import fail
from poplar_py.poplar.groups import StateVectors, VertexGroup
from poplar_py.target import Target
from poplar_py.types import DType


@dataclass(frozen=True, slots=True)
class VertexPerfEstimate:
    """Worker cycles (tile cycles of a MultiVertex) and floating-point operations of a vertex."""

    cycles: int
    flops: int = 0


@dataclass(frozen=True, slots=True)
class FieldData:
    """One field of a vertex: ``size()`` elements; of a list of vectors, their number, and
    ``size(i)`` those of one; ``get_initial_value()`` of state."""

    name: str
    dtype: DType
    rank: int
    sizes: tuple[int, ...]
    value: Any = None

    def size(self, i: int | None = None) -> int:
        """Elements of the field, or of its vector ``i``."""
        if i is not None:
            return self.sizes[i]
        return len(self.sizes) if self.rank == 2 else self.sizes[0]

    def get_size_at_index(self, i: int) -> int:
        return self.sizes[i]

    def get_initial_value(self) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class VertexIntrospector:
    """What an estimator may ask about a vertex."""

    name: str
    fields: dict[str, FieldData]

    def get_field_info(self, name: str) -> FieldData:
        """The field of that name. Raises UnknownField."""
        found = self.fields.get(name)
        if found is None:
            fail(UnknownField, f"{self.name} has no field {name!r}", ", ".join(self.fields))
        return found


Estimator = Callable[[VertexIntrospector, Target], VertexPerfEstimate | int]


def estimate_group(group: VertexGroup, function: Estimator, target: Target) -> Ints:
    """Cycles of every vertex of a group: int64[n]. Equal vertices are asked about once."""
    n = group.n
    if n == 0:
        return np.zeros(0, I8)
    key = _signature(group)
    order = np.lexsort(key.T)
    same = (key[order][1:] == key[order][:-1]).all(axis=1)
    new = np.concatenate([[True], ~same])
    kind = np.empty(n, I8)
    kind[order] = np.cumsum(new) - 1
    found: list[int] = []
    for v in order[new].tolist():
        answer = function(introspect(group, v), target)
        cycles = answer.cycles if isinstance(answer, VertexPerfEstimate) else int(answer)
        if cycles < 0:
            fail(TensorTypeError, f"the estimate for {group.codelet.name} is {cycles} cycles")
        found.append(cycles)
    return as_ints(found)[kind]


def _signature(group: VertexGroup) -> Ints:
    """Rows that are equal only for vertices of equal field sizes and state."""
    n = group.n
    columns: list[Ints] = []
    for e in group.edges.values():
        sizes = e.sizes()
        if e.vptr is None:
            columns.append(sizes)
            continue
        columns.append(np.diff(e.vptr))
        columns.append(_hash_lists(e.vptr, sizes))
    for value in group.state.values():
        if isinstance(value, StateVectors):
            columns.append(np.diff(value.ptr))
            columns.append(_hash_lists(value.ptr, _bits(value.values)))
        else:
            columns.append(_bits(value))
    return np.stack(columns, axis=1) if columns else np.zeros((n, 1), I8)


def _bits(values: Any) -> Ints:
    a = np.ascontiguousarray(values)
    if a.dtype.kind == "f" or a.dtype.itemsize == 8:
        return a.view(f"i{a.dtype.itemsize}").astype(I8)
    return a.astype(I8)


def _hash_lists(ptr: Ints, values: Ints) -> Ints:
    """One number per list, different (almost surely) for different lists."""
    rank = np.arange(len(values), dtype=I8) - np.repeat(ptr[:-1], np.diff(ptr))
    mixed = (values + 1) * 0x2545F4914F6CDD1D ^ (rank + 1) * 0x1B873593CC9E2D51
    mixed = (mixed ^ (mixed >> 29)) * 0x369DEA0F31A53F85
    total = np.zeros(len(values) + 1, I8)
    np.cumsum(mixed, out=total[1:])
    return total[ptr[1:]] - total[ptr[:-1]]


def introspect(group: VertexGroup, v: int) -> VertexIntrospector:
    """One vertex of a group as an estimator sees it."""
    fields: dict[str, FieldData] = {}
    for f in group.codelet.fields:
        if f.kind == "state":
            value = _state_of(group, f.name, v)
            size = int(np.size(value)) if value is not None else 0
            fields[f.name] = FieldData(f.name, f.dtype, f.rank, (size,), value)
            continue
        e = group.edges[f.name]
        first, last = (v, v + 1) if e.vptr is None else (int(e.vptr[v]), int(e.vptr[v + 1]))
        part = e.sizes()[first:last]
        fields[f.name] = FieldData(f.name, f.dtype, f.rank, tuple(part.tolist()))
    return VertexIntrospector(group.codelet.name, fields)


def _state_of(group: VertexGroup, name: str, v: int) -> Any:
    value = group.state.get(name)
    if value is None:
        return None
    if isinstance(value, StateVectors):
        return value.values[int(value.ptr[v]) : int(value.ptr[v + 1])]
    return value[v].item()
