"""poputil: layouts, mappings and placement that all libraries share."""

from __future__ import annotations

from poplar_py.poputil import graphfn
from poplar_py.poputil.built_in import add_codelets
from poplar_py.poputil.grouping import detect_dim_groupings, detect_innermost_grouping
from poplar_py.poputil.kinds import check_kinds
from poplar_py.poputil.partition import create_partitionable_tensor
from poplar_py.poputil.splits import (
    dim_is_split_over_ipus,
    dim_is_split_over_tiles,
    inv_transform_tile_index,
    transform_tile_index,
)
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
from poplar_py.poputil.use_tracker import TensorUseTracker
from poplar_py.poputil.vertex_templates import template_vertex

__all__ = [
    "TensorUseTracker",
    "add_codelets",
    "broadcast_to_match",
    "calc_linear_tile_mapping",
    "clone_to_ipu",
    "copy_to_ipu",
    "create_broadcast_operand",
    "create_partitionable_tensor",
    "detect_dim_groupings",
    "detect_innermost_grouping",
    "dim_is_split_over_ipus",
    "dim_is_split_over_tiles",
    "duplicate",
    "expand_to_match_ranks",
    "get_tile_imbalance",
    "graphfn",
    "inv_transform_tile_index",
    "map_tensor_linearly",
    "map_tensor_linearly_with_offset",
    "split_regions_between_workers",
    "template_vertex",
    "transform_tile_index",
]

check_kinds(globals(), __all__)
check_kinds(graphfn.__dict__, graphfn.__all__)
