"""Model op declarations by family: core.*, math.*, tensor.*, nn.*. Importing this registers all."""

from __future__ import annotations

from poplar_py.ops import core, elementwise, nn, tensor

__all__ = ["core", "elementwise", "nn", "tensor"]
