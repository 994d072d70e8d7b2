"""poplar_py: an open graph compiler and runtime in the manner of Poplar.

    import poplar_py as pp
    exe = pp.compile(pp.load("model.onnx"), system="m2000", shapes={"x": (1, 3, 48, 320)})
    out = pp.Engine(exe).run({"x": x})

Poplar's own vocabulary lies in the packages `poplar`, `popops`, `poplin`, `popnn`, `poprand` and
`poputil`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poplar_py.api import Engine, Executable, compile, load
    from poplar_py.diagnostics import PoplarPyError
    from poplar_py.frontends.source import LoadedModel

__all__ = ["Engine", "Executable", "LoadedModel", "PoplarPyError", "compile", "load"]

_HOMES = {
    "Engine": "poplar_py.api",
    "Executable": "poplar_py.api",
    "LoadedModel": "poplar_py.frontends.source",
    "PoplarPyError": "poplar_py.diagnostics",
    "compile": "poplar_py.api",
    "load": "poplar_py.api",
}


def __getattr__(name: str) -> Any:
    """The API is imported on first use: `import poplar_py.types` must not load a compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module 'poplar_py' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
