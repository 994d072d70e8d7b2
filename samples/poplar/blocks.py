"""Grids cut into one block a tile."""

from __future__ import annotations

from collections.abc import Iterator

from poplar_py import poplar

__all__ = ["blocks", "rolled", "row_list"]


def blocks(height: int, width: int, tiles: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(tile, top, bottom, left, right) of nearly square blocks, one a tile, covering the grid."""
    down = max(d for d in range(1, tiles + 1) if d * d <= tiles)
    down = min(down, height)
    across = min(tiles // down, width)
    for i in range(down):
        top, bottom = height * i // down, height * (i + 1) // down
        for j in range(across):
            yield i * across + j, top, bottom, width * j // across, width * (j + 1) // across


def row_list(
    grid: poplar.Tensor, top: int, bottom: int, left: int, right: int
) -> list[poplar.Tensor]:
    """The rows of a block, each a vector; a grid of planes gives the rows of all planes."""
    if grid.rank == 3:
        planes = [row_list(grid[k], top, bottom, left, right) for k in range(grid.dim(0))]
        return [row for plane in planes for row in plane]
    block = grid.slice([top, left], [bottom, right])
    return [block[i] for i in range(bottom - top)]


def rolled(grid: poplar.Tensor, dy: int, dx: int) -> poplar.Tensor:
    """The view whose cell (y, x) is the grid's cell (y - dy, x - dx) on a torus."""
    height, width = grid.shape
    dy, dx = dy % height, dx % width
    if dy:
        grid = poplar.concat([grid.slice(height - dy, height, 0), grid.slice(0, height - dy, 0)], 0)
    if dx:
        grid = poplar.concat([grid.slice(width - dx, width, 1), grid.slice(0, width - dx, 1)], 1)
    return grid
