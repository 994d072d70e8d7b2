"""poplar_py: an open graph compiler and runtime in the manner of Poplar."""
