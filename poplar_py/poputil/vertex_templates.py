"""`templateVertex`: the name of an instance of a vertex template."""

from __future__ import annotations

from enum import Enum

from poplar_py.types import DType

__all__ = ["template_vertex"]


def template_vertex(name: str, *parameters: DType | bool | int | str | Enum) -> str:
    """`template_vertex("ns::V", FLOAT, 4, True)` is "ns::V<float,4,true>".

    Parameters are element types, whole numbers, bools, members of enums (by their names, as the
    codelet's file has them) and texts.
    """
    if not parameters:
        return name
    return f"{name}<{','.join(_text(p) for p in parameters)}>"


def _text(parameter: DType | bool | int | str | Enum) -> str:
    if isinstance(parameter, DType):
        return parameter.poplar
    if isinstance(parameter, Enum):
        return f"{type(parameter).__name__}::{parameter.name}"
    return str(parameter).lower() if isinstance(parameter, bool) else str(parameter)
