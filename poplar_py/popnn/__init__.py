"""poplar_py: popnn."""
