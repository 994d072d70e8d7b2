"""What a command shows: progress and tables on standard error, results on standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import click
import numpy as np

if TYPE_CHECKING:
    from rich.status import Status
    from rich.table import Table

    from poplar_py.driver.signature import Array

__all__ = ["Screen", "array_text", "json_text"]


class Screen:
    """Standard error for people; `as_json` makes standard output a single JSON document."""

    def __init__(self, as_json: bool = False) -> None:
        from rich.console import Console

        self.as_json = as_json
        self.console = Console(stderr=True)
        if not self.console.is_terminal:
            self.console = Console(stderr=True, width=160)
        self._status: Status | None = None

    @contextmanager
    def live(self) -> Generator[None]:
        """Shows the current step while the block runs, on a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status("starting") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def progress(self, step: str) -> None:
        """Names the step that begins now."""
        if self._status is not None:
            self._status.update(step)

    def table(self, table: Table) -> None:
        """Prints a table on standard error."""
        self.console.print(table)

    def note(self, text: str) -> None:
        """Prints a line on standard error."""
        self.console.print(text, highlight=False, markup=False)

    def json(self, document: Mapping[str, object]) -> None:
        """Prints the JSON document on standard output."""
        click.echo(json_text(document))


def json_text(document: object) -> str:
    """Strict JSON: NaN and infinities become the strings "nan", "inf", "-inf"."""
    return json.dumps(_finite(document), indent=2, allow_nan=False)


def _finite(item: object) -> object:
    if isinstance(item, float) and not math.isfinite(item):
        return str(item)
    if isinstance(item, np.generic):
        return _finite(cast("object", item.item()))
    if isinstance(item, dict):
        entries = cast("dict[object, object]", item)
        return {str(k): _finite(v) for k, v in entries.items()}
    if isinstance(item, (list, tuple)):
        return [_finite(v) for v in cast("list[object]", item)]
    return item


def array_text(name: str, array: Array) -> str:
    """An output as text: `name: float32[2,3]` and its (shortened) values."""
    shape = ",".join(map(str, array.shape))
    values = np.array2string(array, threshold=32, edgeitems=4, precision=6, max_line_width=98)
    return f"{name}: {array.dtype}[{shape}]\n{values}"
