"""poplar_py: codelets/builtin."""
