"""poplar_py: ops."""
