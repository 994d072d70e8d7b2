"""poplar_py: executable."""
