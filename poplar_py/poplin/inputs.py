"""One convolution on its way: its sizes, and where its vertices find their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poplar_py.poplin.blocks import Group, base_of
from poplar_py.poplin.generic import planar_input
from poplar_py.poplin.lanes import RowTable, Window, blocked_copy, halo_table, spatial_lanes
from poplar_py.poplin.params import ConvForm
from poplar_py.poplin.place import TileRange, dilate_view, pad_view
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = ["Job", "Shape", "channel_lanes", "input_tables"]

PLANAR_CHANNELS = 8
"""Fewer input channels than this are read as planar rows."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one convolution over three spatial dims."""

    n: int
    c: int
    spatial: tuple[int, int, int]
    o: int
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]

    @property
    def kernel_rows(self) -> int:
        return self.kernel[0] * self.kernel[1]


@dataclass(frozen=True, slots=True)
class Job:
    """Where one convolution goes."""

    graph: Graph
    prog: Sequence
    name: str
    tiles: TileRange
    dtype: DType
    params: ConvForm
    shape: Shape
    unit: int = 0
    matrix: bool = False
    images: bool = False
    source: Ints | None = None
    """Addresses of the input's lanes when they are known already."""

    @property
    def depthwise(self) -> bool:
        return self.params.groups > 1 and self.params.groups == self.shape.c == self.shape.o

    @property
    def planar(self) -> bool:
        few = self.shape.c < PLANAR_CHANNELS
        return few and self.params.groups == 1 and not self.matrix and not self.images

    def lanes(self, x: Tensor) -> Ints | None:
        """Addresses of the lane vectors of x: [input blocks, N, D, H, W], or None."""
        if self.source is not None:
            return self.source
        found = spatial_lanes(self.graph, x)
        return channel_lanes(found, self.shape.n) if found is not None and self.images else found


def channel_lanes(lanes: Ints, n: int) -> Ints:
    """Lanes of images [1, N C, ...] as [C, N, ...]."""
    return np.ascontiguousarray(lanes[0].reshape((n, -1, *lanes.shape[2:])).swapaxes(0, 1))


def input_tables(
    job: Job, x: Tensor, groups: list[Group]
) -> tuple[list[RowTable], list[Window]] | None:
    """The rows of every vertex group, in place where they are whole, else from a copy.

    None when lanes known beforehand do not serve in place.
    """
    if job.planar:
        return _planar_tables(job, x, groups)
    found = _tables_in_place(job, x, groups)
    if found is not None or job.source is not None:
        return found
    params, kw = job.params, job.shape.kernel[2]
    for dim in range(3):
        x = dilate_view(job.graph, x, dim + 2, params.input_dilations[dim])
    low, high = params.pads_lower[2], params.pads_upper[2]
    x = pad_view(job.graph, x, 4, min(low, 0), min(high, 0))
    pads = (max(low, 0), max(high, 0))
    params = replace(
        params,
        pads_lower=(*params.pads_lower[:2], 0),
        pads_upper=(*params.pads_upper[:2], 0),
        input_dilations=(1, 1, 1),
    )
    copy = blocked_copy(job.graph, x, job.prog, f"{job.name}/rows", job.tiles, pads=pads)
    lanes = job.lanes(copy)
    assert lanes is not None
    windows = [Window.of(g.px, params, kw, False) for g in groups]
    tables = _halo_tables(job, params, lanes, groups, windows)
    assert tables is not None
    return tables, windows


def _tables_in_place(
    job: Job, x: Tensor, groups: list[Group]
) -> tuple[list[RowTable], list[Window]] | None:
    """The rows where they lie; None when some are not whole."""
    lanes = job.lanes(x) if job.params.input_dilations == (1, 1, 1) else None
    if lanes is None:
        return None
    windows = [Window.of(g.px, job.params, job.shape.kernel[2], True) for g in groups]
    tables = _halo_tables(job, job.params, lanes, groups, windows)
    if tables is None or not all(t.inside for t in tables):
        return None
    return tables, windows


def _halo_tables(
    job: Job, params: ConvForm, lanes: Ints, groups: list[Group], windows: list[Window]
) -> list[RowTable] | None:
    out, kernel = job.shape.out[:2], job.shape.kernel[:2]
    tables: list[RowTable] = []
    for g, window in zip(groups, windows, strict=True):
        table = halo_table(job.graph, job.dtype, lanes, params, out, kernel, window, g.x0)
        if table is None:
            return None
        tables.append(table)
    return tables


def _planar_tables(job: Job, x: Tensor, groups: list[Group]) -> tuple[list[RowTable], list[Window]]:
    params, s = job.params, job.shape
    planes = planar_input(job.graph, x, params, job.prog, f"{job.name}/planes", job.tiles)
    _, _, depth, height, chans, pitch = planes.shape
    kd, kh, kw = s.kernel
    d = np.arange(s.out[0])[:, None] * params.strides[0] + np.arange(kd) * params.dilations[0]
    h = np.arange(s.out[1])[:, None] * params.strides[1] + np.arange(kh) * params.dilations[1]
    # [N, od, oh, C, kd, kh]
    line = (
        np.arange(s.n).reshape(-1, 1, 1, 1, 1) * depth + d[None, :, None, :, None]
    ) * height + h[None, None, :, None, :]
    row = line[:, :, :, None] * chans + np.arange(chans).reshape(1, 1, 1, -1, 1, 1)
    start = base_of(planes) + row.reshape((s.n * s.out[0] * s.out[1], chans, kd * kh)) * pitch
    tables: list[RowTable] = []
    windows: list[Window] = []
    for g in groups:
        window = Window.of(g.px, params, kw, False)
        shift = (g.x0 * params.strides[2]).reshape(-1, 1, 1, 1)
        length = np.full(kd * kh, window.body, np.int64)
        tables.append(RowTable(start[None] + shift, length, True))
        windows.append(window)
    return tables, windows
