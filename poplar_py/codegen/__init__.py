"""Code generation: codelet IR and programs to LLVM IR, and LLVM IR to machine code."""
