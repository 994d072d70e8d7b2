"""poplar_py: frontends."""
