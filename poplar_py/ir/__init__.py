"""poplar_py: ir."""
