"""What a compilation may be told. One frozen object, so that caches can use it as a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from poplar_py.arguments import text, whole
from poplar_py.diagnostics import OptionError
from poplar_py.target import Target

__all__ = ["PLACEMENTS", "CompileOptions", "Dumps", "Progress", "silent"]

PLACEMENTS = ("auto", "one", "spread")

Progress = Callable[[str], None]
"""Called with the name of the step that begins: a pass, "codelets", "run", ..."""


def silent(_step: str) -> None:
    """The progress of a compilation nobody watches."""


@dataclass(frozen=True)
class Dumps:
    """Where and when the IR is shown while passes run; pass names as `poplar-py passes` lists them.

    `dump_dir` gets one numbered file a pass. The others print to standard error.
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_all: bool = False
    diff: bool = False
    dump_dir: Path | None = None
    time_passes: bool = False
    stop_after: str = ""
    inline_resources: bool = False


@dataclass(frozen=True)
class CompileOptions:
    """Machine, placement and passes of one compilation.

    `ipus` and `tiles_per_ipu` override the system's own numbers. `placement` is auto (the fewest
    IPUs that hold the model), one, or spread (all IPUs of the system share the work). `replicas`
    copies of the program split the batch; each gets `ipus // replicas` IPUs at most.
    """

    system: str = "m2000"
    ipus: int | None = None
    tiles_per_ipu: int | None = None
    placement: str = "auto"
    replicas: int = 1
    pipeline: str = "@default"
    dumps: Dumps = field(default_factory=Dumps)
    progress: Progress = field(default=silent, compare=False)

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise OptionError(
                f"unknown placement {self.placement!r}", remedy=f"use {', '.join(PLACEMENTS)}"
            )
        text(self.pipeline, "the pass pipeline")
        object.__setattr__(self, "replicas", whole(self.replicas, "the number of replicas"))
        if not callable(self.progress):
            raise OptionError("progress cannot be called", remedy="give a function of a text")
        if self.replicas < 1:
            raise OptionError(f"{self.replicas} replicas", remedy="give a number of 1 or more")

    def machine(self) -> Target:
        """The whole machine, all replicas included. Raises OptionError for unknown systems."""
        return Target.of(self.system, ipus=self.ipus, tiles_per_ipu=self.tiles_per_ipu)

    def replica_machine(self) -> Target:
        """The IPUs one replica may use.

        Raises OptionError when the machine has fewer IPUs than there are replicas.
        """
        machine = self.machine()
        share = machine.num_ipus // self.replicas
        if share == 0:
            raise OptionError(
                f"{self.replicas} replicas need {self.replicas} IPUs, {self.system} has "
                f"{machine.num_ipus}",
                remedy=f"use --replicas {machine.num_ipus} at most, or a larger --system",
            )
        return replace(machine, num_ipus=share)
