"""poplar_py: poputil."""
