"""Compiler passes, one file each; see `registry` for what a pass is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.lazy import lazy_names

if TYPE_CHECKING:
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

_HOMES = {
    "poplar_py.passes.context": ("PassContext", "TileLevel"),
    "poplar_py.passes.manager": ("PassManager", "module_text", "verify_module"),
    "poplar_py.passes.pipeline": ("ORDER", "PIPELINES", "parse_pipeline", "pipeline_text"),
    "poplar_py.passes.registry": ("Pass", "get_pass", "make_pass", "pass_names", "register"),
}

__getattr__ = lazy_names(__name__, _HOMES)
