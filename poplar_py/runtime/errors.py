"""Why a run ended early, as an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from poplar_py.codegen import program_words as isa
from poplar_py.diagnostics import (
    InternalError,
    InvalidProgram,
    Location,
    RunTimeout,
    Stopped,
    TileException,
    source_line,
)

if TYPE_CHECKING:
    from poplar_py.runtime.engine import TileEngine

_REASONS = {
    1: "index {index} is out of range of {field}, which has {size} element(s)",
    2: "integer division by zero",
    3: "integer division overflows",
    5: "worker stack or scratch memory overflows",
    6: "the codelet aborted",
}


def raise_for(engine: TileEngine) -> NoReturn:
    """Raise what the context words of a stopped run say."""
    ctx = engine.pool.ctx
    code = int(ctx[isa.ERROR])
    host = engine.take_host_error()
    if host is not None:
        raise host
    if code == isa.ERROR_PROGRAM:
        _raise_message(engine, int(ctx[isa.ERROR_ROW]))
    if code == isa.ERROR_REMOTE:
        raise InvalidProgram(f"row {int(ctx[isa.ERROR_ROW])} of a remote buffer is out of range")
    if code == isa.ERROR_MEETING:
        raise InvalidProgram("replicas took different ways to a copy between them")
    if code in _REASONS:
        _raise_tile(engine, code)
    if engine.stop_reason == "timeout":
        raise RunTimeout(
            "the run took longer than its timeout", remedy="give more seconds, or a smaller batch"
        )
    if engine.stop_reason == "signal":
        raise Stopped("the run was stopped by a signal")
    if engine.stop_reason:
        raise Stopped("the run was stopped")
    raise InternalError(f"the run ended with error code {code}")


def _raise_message(engine: TileEngine, number: int) -> NoReturn:
    message = engine.executable.messages[number]
    text = message.text
    if message.region >= 0:
        value = engine.region(message.region)[0]
        text += ": " + np.array2string(value, separator=", ", threshold=100)
    raise InvalidProgram(text, message.loc)


def _raise_tile(engine: TileEngine, code: int) -> NoReturn:
    ctx = engine.pool.ctx
    found = engine.find_row(int(ctx[isa.ERROR_ROW]))
    detail = {
        "index": int(ctx[isa.ERROR_INDEX]),
        "size": int(ctx[isa.ERROR_SIZE]),
        "field": "an array",
    }
    if found is None:
        raise TileException(_REASONS[code].format(**detail))
    table = engine.executable.tables[found[0]]
    codelet = engine.executable.codelets[int(table.kernel.partition(":")[2])]
    number = int(ctx[isa.ERROR_FIELD])
    if 0 <= number < len(codelet.fields):
        detail["field"] = f"field {codelet.fields[number].name!r}"
    tile = int(table.tiles[found[1]]) if table.tiles is not None else -1
    loc, where = table.location(found[1]), ""
    line = int(ctx[isa.ERROR_LINE])
    if line > 0 and codelet.ir.file:
        where = f" (added at {loc.short})" if loc.known else ""
        loc = _first_column(Location(codelet.ir.file, line, 1))
    raise TileException(
        f"{codelet.name}, vertex {found[1]} on tile {tile} in compute set {table.group!r}{where}: "
        + _REASONS[code].format(**detail),
        loc,
        "check the codelet's indices against the sizes of what is connected",
    )


def _first_column(loc: Location) -> Location:
    """The first character of a statement that is known by its line only."""
    text = source_line(loc) or ""
    return replace(loc, col=len(text) - len(text.lstrip()) + 1)
