"""poplar_py: eval."""
