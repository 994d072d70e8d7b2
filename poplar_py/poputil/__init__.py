"""poputil: layouts, mappings and placement that all libraries share."""

from __future__ import annotations

from poplar_py.poputil.tile_mapping import (
    broadcast_to_match,
    calc_linear_tile_mapping,
    clone_to_ipu,
    copy_to_ipu,
    create_broadcast_operand,
    duplicate,
    expand_to_match_ranks,
    get_tile_imbalance,
    map_tensor_linearly,
    map_tensor_linearly_with_offset,
    split_regions_between_workers,
)

__all__ = [
    "broadcast_to_match",
    "calc_linear_tile_mapping",
    "clone_to_ipu",
    "copy_to_ipu",
    "create_broadcast_operand",
    "duplicate",
    "expand_to_match_ranks",
    "get_tile_imbalance",
    "map_tensor_linearly",
    "map_tensor_linearly_with_offset",
    "split_regions_between_workers",
]
