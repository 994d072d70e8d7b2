"""The `.pml` language: models people write."""

from __future__ import annotations

from poplar_py.frontends.pml.load import load_pml, parse_pml

__all__ = ["load_pml", "parse_pml"]
