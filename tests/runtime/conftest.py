"""Makes the graphs of this folder importable as ``tests_runtime``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "tests_runtime", Path(__file__).with_name("graphs.py")
)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules["tests_runtime"] = _module
_spec.loader.exec_module(_module)
