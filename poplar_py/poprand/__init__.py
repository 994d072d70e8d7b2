"""poplar_py: poprand."""
