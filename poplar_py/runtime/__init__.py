"""poplar_py: runtime."""
