"""Programs: the tree of steps a graph runs. Values are shared by reference, as in Poplar."""

from __future__ import annotations

from poplar_py.poplar.program_control import (
    Block,
    Call,
    If,
    Loop,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Switch,
)
from poplar_py.poplar.program_core import (
    Program,
    Sequence,
)
from poplar_py.poplar.program_data import (
    AssumeEqualAcrossReplicas,
    Copy,
    CrossReplicaCopy,
    Endpoint,
    Execute,
    WriteUndef,
    check_writable,
)
from poplar_py.poplar.program_report import (
    Abort,
    AbortOnCondition,
    CycleCount,
    ErrorProgram,
    PrintTensor,
    PrintTensorFmt,
    Sync,
)

__all__ = [
    "Abort",
    "AbortOnCondition",
    "AssumeEqualAcrossReplicas",
    "Block",
    "Call",
    "Copy",
    "CrossReplicaCopy",
    "CycleCount",
    "Endpoint",
    "ErrorProgram",
    "Execute",
    "If",
    "Loop",
    "PrintTensor",
    "PrintTensorFmt",
    "Program",
    "Repeat",
    "RepeatWhileFalse",
    "RepeatWhileTrue",
    "Sequence",
    "Switch",
    "Sync",
    "WriteUndef",
    "check_writable",
]
