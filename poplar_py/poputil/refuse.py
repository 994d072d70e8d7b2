"""Refusals of arguments at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from poplar_py.poplar.where import caller, source_text

if TYPE_CHECKING:
    from poplar_py.diagnostics import PoplarPyError

__all__ = ["refuse"]


def refuse(kind: type[PoplarPyError], message: str, remedy: str = "") -> NoReturn:
    """Raise an error at the statement of the user that led here, or the op that is lowered."""
    loc = caller()
    raise kind(message, loc, remedy, source_text(loc))
