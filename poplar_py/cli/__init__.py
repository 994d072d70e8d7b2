"""poplar_py: cli."""
