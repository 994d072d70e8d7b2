"""poplar_py: codelets."""
