"""The `.pml` language: models people write."""

from __future__ import annotations

from poplar_py.frontends.pml.load import PmlSource, load_pml, parse_pml, read_pml

__all__ = ["PmlSource", "load_pml", "parse_pml", "read_pml"]
