"""Poplar's enumerations. Every member is the text that functions here take as well."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "CodeletFileType",
    "FunctionBufferMappingType",
    "RelativeSyncDelayType",
    "ReplicatedStreamMode",
    "SerializationFormat",
    "SyncType",
    "TargetType",
    "TensorCloneDuplicationMethod",
    "TensorCloneMethod",
    "UpsampleMethod",
    "VariableMappingMethod",
]


class VariableMappingMethod(StrEnum):
    """How ``Graph.add_variable`` places a new variable."""

    NONE = "none"
    LINEAR = "linear"


class TensorCloneMethod(StrEnum):
    """In which memory order ``Graph.clone`` lays out the new variable."""

    PRESERVE_ORDER_AND_ALIASES = "preserve_order_and_aliases"
    CREATE_NEW_ORDER = "create_new_order"
    PRESERVE_ORDER_UNLESS_ALIASES = "preserve_order_unless_aliases"
    GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES = "gather_and_preserve_tile_order_and_aliases"


class TensorCloneDuplicationMethod(StrEnum):
    """How ``Graph.clone_n`` lays out its clones: one after the other, or those of a tile
    together."""

    DUPLICATE_BY_OUTER_DIMENSION = "duplicate_by_outer_dimension"
    DUPLICATE_BY_TILE_CONTIGUOUS_REGION = "duplicate_by_tile_contiguous_region"


class UpsampleMethod(StrEnum):
    """What ``Tensor.upsample`` puts between elements."""

    REPEAT = "repeat"


class ReplicatedStreamMode(StrEnum):
    """Whether replicas get data of their own from a stream, or all the same."""

    REPLICATE = "replicate"
    BROADCAST = "broadcast"


class SyncType(StrEnum):
    """Who waits for whom in ``program.Sync``."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    GLOBAL = "global"


class TargetType(StrEnum):
    """What a target stands for."""

    IPU = "IPU"
    IPU_MODEL = "IPU_MODEL"
    CPU = "CPU"


class CodeletFileType(StrEnum):
    """What a codelet file holds, for Poplar's compiler; here a file holds Python vertices."""

    AUTO = "auto"
    CPP_SOURCE = "cpp_source"
    C_SOURCE = "c_source"
    ASM_SOURCE = "asm_source"
    PREPROCESSED_ASM_SOURCE = "preprocessed_asm_source"
    IR_SOURCE = "ir_source"
    OBJECT = "object"


class RelativeSyncDelayType(StrEnum):
    """How tiles of an IPU model sync: in the chip's time, or in none."""

    AUTO = "AUTO"
    NO_DELAY = "NO_DELAY"


class FunctionBufferMappingType(StrEnum):
    """Where the code of a function buffer waits."""

    REMOTE = "remote"


class SerializationFormat(StrEnum):
    """How ``Graph.serialize_tensors`` writes."""

    JSON = "json"
