"""Names of the text forms a compilation can be shown in; apart, so that `--help` is quick."""

from __future__ import annotations

__all__ = ["FORMS", "MODEL_FORMS"]

FORMS = ("model-ir", "tile-ir", "codelet-ir", "llvm", "asm", "memory-map", "dot")
MODEL_FORMS = ("model-ir", "dot")
