"""Options that were given though the command cannot heed them: they are told, never ignored."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.core import ParameterSource

__all__ = ["COMPILING", "DUMPING", "MACHINE", "SIZES", "given", "refuse"]

MACHINE = ("system", "ipus", "tiles_per_ipu")
SIZES = ("dims", "shapes", "consts")
DUMPING = (
    "print_ir_before",
    "print_ir_after",
    "print_ir_after_all",
    "print_ir_diff",
    "dump_dir",
    "time_passes",
    "stop_after",
    "inline_resources",
)
COMPILING = (*MACHINE, "placement", "replicas", "passes", *SIZES, *DUMPING)
"""Names of the parameters that say how a model is compiled."""


def given(names: Iterable[str]) -> list[str]:
    """The options among parameters of the running command that its command line holds."""
    context = click.get_current_context()
    texts = {p.name: p.opts[-1] for p in context.command.params}
    source = context.get_parameter_source
    return [texts[n] for n in names if n in texts and source(n) is ParameterSource.COMMANDLINE]


def refuse(names: Iterable[str], why: str) -> None:
    """Raises UsageError when some of the parameters were given: `OPTIONS: why`."""
    found = given(names)
    if found:
        raise click.UsageError(f"{', '.join(found)}: {why}")
