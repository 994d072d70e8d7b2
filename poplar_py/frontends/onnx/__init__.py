"""poplar_py: frontends/onnx."""
