"""Short forms in the LLVM text of the driver.

%x = pool TYPE WORD          a word of the pool block (see program_words.Pool)
%x = at TYPE %p BYTES        what lies so many bytes behind a pointer
$WORD@                       the byte offset of a word of the pool block
%x = wake %p one             futex: who sleeps at an address, ``one`` or ``all``
%x = sleep %p %v ever        futex: sleep while an address holds a value, or ``for %time``
"""

from __future__ import annotations

import re
from re import Match

from poplar_py.codegen.program_words import Pool

_CALL = (
    "call i64 (i64, ...) @syscall(i64 $FUTEX, ptr {at}, i64 {what}, i64 {value}, {time}, "
    "i64 0, i64 0)"
)
_WAIT, _WAKE, _ALL = 128, 129, 2147483647
_LOAD = re.compile(r"^  (%\w+) = (?:pool (\w+) (\w+)|at (\w+) (%\w+) (\d+))$", re.MULTILINE)
_SLEEP = re.compile(r"= (wake|sleep) (%\w+) (.*)$", re.MULTILINE)


def expand(text: str) -> str:
    """The text in plain LLVM."""
    text = _SLEEP.sub(_futex, _LOAD.sub(_load, text))
    return re.sub(r"\$(\w+)@", lambda m: str(int(Pool[m[1]]) * 8), text)


def _load(m: Match[str]) -> str:
    """A load through a pointer of its own."""
    name, kind, word, other, base, offset = m.groups()
    if kind is not None:
        other, base, offset = kind, "%pool", f"${word}@"
    pointer = f"{name}.at"
    place = f"  {pointer} = getelementptr i8, ptr {base}, i64 {offset}"
    return f"{place}\n  {name} = load {other}, ptr {pointer}"


def _futex(m: Match[str]) -> str:
    """A system call; who sleeps for ever is woken by hand."""
    what, at, rest = m.groups()
    if what == "wake":
        count = _ALL if rest == "all" else 1
        return "= " + _CALL.format(at=at, what=_WAKE, value=count, time="i64 0")
    value, _, until = rest.partition(" ")
    time = "ptr %time" if until == "for %time" else "i64 0"
    return "= " + _CALL.format(at=at, what=_WAIT, value=value, time=time)
