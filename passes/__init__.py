"""Compiler passes, one file each; see `registry` for what a pass is."""

from __future__ import annotations

from poplar_py.passes.context import PassContext, TileLevel
from poplar_py.passes.manager import PassManager, module_text, verify_module
from poplar_py.passes.pipeline import ORDER, PIPELINES, parse_pipeline, pipeline_text
from poplar_py.passes.registry import Pass, get_pass, make_pass, pass_names, register

__all__ = [
    "ORDER",
    "PIPELINES",
    "Pass",
    "PassContext",
    "PassManager",
    "TileLevel",
    "get_pass",
    "make_pass",
    "module_text",
    "parse_pipeline",
    "pass_names",
    "pipeline_text",
    "register",
    "verify_module",
]
