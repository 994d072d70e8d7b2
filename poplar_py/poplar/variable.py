"""Variables: what owns elements. Views (tensors) refer to them by global element address."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import Location
from poplar_py.poplar.arrays import I8, Bools, as_ints
from poplar_py.poplar.mapping import Mapping, replay
from poplar_py.types import DType

_COMPACT_AT = 1 << 16
"""Log entries after which a mapping log is folded into intervals."""


class Variable:
    """``size`` elements of one type at global addresses ``[base, base + size)``.

    ``constant`` holds the values of a constant, ``initial`` the first contents of a variable with
    ``initial_mask`` saying which elements were given (None: all). ``always_live`` keeps its memory
    for the whole program. ``replica_index``: a constant that holds each replica's own number.
    """

    __slots__ = (
        "_log_end",
        "_log_start",
        "_log_tile",
        "_mapping",
        "_partial",
        "always_live",
        "base",
        "constant",
        "dtype",
        "id",
        "initial",
        "initial_mask",
        "loc",
        "name",
        "replica_index",
        "shape",
        "size",
        "version",
    )

    def __init__(
        self,
        ident: int,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        base: int,
        size: int,
        loc: Location,
    ) -> None:
        self.id = ident
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.base = base
        self.size = size
        self.loc = loc
        self.constant: npt.NDArray[Any] | None = None
        self.initial: npt.NDArray[Any] | None = None
        self.initial_mask: Bools | None = None
        self.always_live = False
        self.replica_index = False
        self.version = 0
        self._mapping: Mapping | None = None
        self._partial: tuple[int, bool] = (-1, True)
        self._log_start = array("q")
        self._log_end = array("q")
        self._log_tile = array("q")

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.size

    @property
    def mapping(self) -> Mapping:
        """Intervals in global addresses; unmapped elements are on tile -1."""
        if self._log_tile or self._mapping is None:
            self._mapping = self._fold()
        return self._mapping

    @mapping.setter
    def mapping(self, value: Mapping) -> None:
        self._clear_log()
        self._mapping = value
        self.version += 1

    @property
    def has_unmapped(self) -> bool:
        """Whether some element is on no tile (kept until the mapping changes)."""
        if self._partial[0] != self.version:
            self._partial = (self.version, bool((self.mapping.tile < 0).any()))
        return self._partial[1]

    def log(self, start: int, end: int, tile: int) -> None:
        """One more mapping of addresses ``[start, end)``; the last call wins."""
        self._log_start.append(start)
        self._log_end.append(end)
        self._log_tile.append(tile)
        self.version += 1
        if len(self._log_tile) > _COMPACT_AT:
            self._mapping = self._fold()

    def log_many(self, start: npt.ArrayLike, end: npt.ArrayLike, tile: npt.ArrayLike) -> None:
        """``log`` for arrays of equal length (``tile`` may be one number)."""
        s = as_ints(start)
        self._log_start.frombytes(s.tobytes())
        self._log_end.frombytes(as_ints(end).tobytes())
        self._log_tile.frombytes(np.broadcast_to(as_ints(tile), s.shape).tobytes())
        self.version += 1
        if len(self._log_tile) > _COMPACT_AT:
            self._mapping = self._fold()

    def _clear_log(self) -> None:
        self._log_start = array("q")
        self._log_end = array("q")
        self._log_tile = array("q")

    def _fold(self) -> Mapping:
        start, end, tile = (
            np.array(a, I8) for a in (self._log_start, self._log_end, self._log_tile)
        )
        self._clear_log()
        old = self._mapping
        if old is not None:
            keep = old.tile >= 0
            start = np.concatenate([old.bounds[:-1][keep], start])
            end = np.concatenate([old.bounds[1:][keep], end])
            tile = np.concatenate([old.tile[keep].astype(I8), tile])
        return replay(self.base, self.size, start, end, tile)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {self.dtype.name}{list(self.shape)}>"
