"""DebugContext: a name with the names it stands in, for ports of programs that pass one along."""

from __future__ import annotations

__all__ = ["DebugContext"]


class DebugContext(str):
    """``DebugContext("a")`` is the name ``a``, ``DebugContext(parent, "b")`` the name ``a/b``.

    A text, so it goes wherever a name goes. The user's line is kept without it.
    """

    __slots__ = ()

    def __new__(cls, parent: str = "", name: str = "") -> DebugContext:
        return super().__new__(cls, "/".join(p for p in (parent, name) if p))

    def get_path_name(self) -> str:
        """The whole name."""
        return str(self)
