"""poplar_py: poplar."""
