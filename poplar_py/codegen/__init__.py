"""poplar_py: codegen."""
