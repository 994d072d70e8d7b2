"""poplar_py: poplin."""
