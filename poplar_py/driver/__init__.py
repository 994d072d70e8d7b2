"""poplar_py: driver."""
