"""Machine code of an executable: its vertex kernels and the copy kernels it uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from poplar_py.codegen.emit import emit_kernel, kernel_symbol
from poplar_py.codegen.jit import Jit
from poplar_py.codegen.program_copy import CopyKernel, copy_kernels
from poplar_py.codelets import Codelet
from poplar_py.codelets.concat import Concat, concat_of
from poplar_py.executable.executable import Executable


@cache
def _copies(wide: bool) -> dict[str, CopyKernel]:
    return copy_kernels(wide=wide)


def load_kernels(exe: Executable, jit: Jit, *, checked: bool | None) -> dict[str, int]:
    """Address of every kernel the tables name. ``checked``: None checks user codelets only."""
    symbols: dict[str, str] = {}
    texts: dict[str, str | Callable[[], str]] = {}
    for name in sorted({t.kernel for t in exe.tables}):
        kind, _, what = name.partition(":")
        if kind == "copy":
            kernel = _copies(exe.wide)[what]
            symbols[name], texts[kernel.symbol] = kernel.symbol, kernel.text
            continue
        codelet = exe.codelets[int(what)]
        check = is_checked(exe, int(what), checked)
        symbol = kernel_symbol(codelet, checked=check, wide=exe.wide)
        symbols[name], texts[symbol] = symbol, partial(_text, codelet, check, exe.wide)
    addresses = jit.load(texts)
    return {name: addresses[symbol] for name, symbol in symbols.items()}


def is_checked(exe: Executable, number: int, checked: bool | None) -> bool:
    """Whether a codelet runs with bounds checks; None: user codelets do, and those of a file that
    is not trusted, unless its rows prove that they stay in the arena."""
    if checked is not None:
        return checked
    return not exe.codelets[number].builtin and number not in exe.proved


def mergeable(exe: Executable, *, checked: bool | None) -> dict[str, Concat]:
    """By kernel, how neighbouring rows may be put together. Checked code keeps its rows, so that
    errors name the vertex; so does what was proved row by row."""
    found: dict[str, Concat] = {}
    for name in {t.kernel for t in exe.tables if t.kernel.startswith("vertex:")}:
        number = int(name.partition(":")[2])
        codelet = exe.codelets[number]
        plain = codelet.builtin and not is_checked(exe, number, checked)
        how = concat_of(codelet) if plain else None
        if how is not None:
            found[name] = how
    return found


def _text(codelet: Codelet, checked: bool, wide: bool) -> str:
    """LLVM text of a kernel, made only when no cache has its object."""
    return emit_kernel(codelet, checked=checked, wide=wide)[1]


def raw_copy(jit: Jit) -> int:
    """Address of the copy kernel for rows of 64-bit words (source, target, bytes)."""
    kernel = _copies(True)["run"]
    return jit.load({kernel.symbol: kernel.text})[kernel.symbol]
