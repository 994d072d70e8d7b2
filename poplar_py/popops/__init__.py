"""poplar_py: popops."""
