"""poplar_py: profile."""
