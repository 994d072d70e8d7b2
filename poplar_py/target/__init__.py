"""poplar_py: target."""
