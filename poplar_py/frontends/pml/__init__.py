"""poplar_py: frontends/pml."""
