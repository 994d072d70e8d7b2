"""From a module to an executable: chooses how many IPUs, runs the passes, builds the image."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from poplar_py import ir
from poplar_py.diagnostics import OptionError, OutOfTileMemory
from poplar_py.driver.options import CompileOptions
from poplar_py.executable.build import BuildOptions, build_from_module
from poplar_py.executable.executable import Executable as TileExecutable
from poplar_py.passes import Pass, PassContext, PassManager, parse_pipeline
from poplar_py.passes.place import MEMORY_SHARE
from poplar_py.passes.tile_module import TileModule
from poplar_py.target import Target

__all__ = ["Passed", "build", "check_complete", "pass_context", "run_passes", "run_pipeline"]

Shapes = Mapping[str, tuple[int, ...]]


def pass_context(
    options: CompileOptions, target: Target, dims: Mapping[str, int], shapes: Shapes
) -> PassContext:
    """The context of one run of the passes for a target."""
    dumps = options.dumps
    return PassContext(
        dims=dims,
        shapes=shapes,
        target=target,
        placement=options.placement,
        replicas=options.replicas,
        options=options,
        before=dumps.before,
        after=dumps.after,
        after_all=dumps.after_all,
        diff=dumps.diff,
        dump_dir=dumps.dump_dir,
        inline_resources=dumps.inline_resources,
        time_passes=dumps.time_passes,
        stop_after=dumps.stop_after,
        progress=options.progress,
    )


@dataclass(frozen=True)
class Passed:
    """What passes left: `module` of either level, the model-level module on the way (types bound,
    ops optimised), and the context with timings."""

    module: Any
    model: ir.Module
    context: PassContext


def run_passes(
    module: Any,
    passes: list[Pass],
    options: CompileOptions,
    target: Target,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
) -> Any:
    """Runs passes on a module of either level; returns what they leave."""
    context = pass_context(options, target, dims or {}, shapes or {})
    return PassManager(context).run(module, passes)


def run_pipeline(
    module: ir.Module,
    options: CompileOptions,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
) -> Passed:
    """Runs the pipeline of the options on copies of `module`, for more and more IPUs until it fits.

    Raises OutOfTileMemory of the last attempt when even all IPUs of the machine do not hold the
    model.
    """
    passes = parse_pipeline(options.pipeline)
    failure: OutOfTileMemory | None = None
    for target in candidate_targets(module, options):
        model = ir.clone_module(module)
        context = pass_context(options, target, dims or {}, shapes or {})
        try:
            return Passed(PassManager(context).run(model, passes), model, context)
        except OutOfTileMemory as error:
            failure = error.with_traceback(None)
        # The failed attempt's graph, weights and plans: the next one needs their room.
        del model, context
        gc.collect()
    assert failure is not None
    raise failure


def candidate_targets(module: ir.Module, options: CompileOptions) -> Iterator[Target]:
    """The targets to try: one for placement one and spread, from fewest to all for auto.

    `on ipu N` blocks need N + 1 IPUs at least; auto starts where the weights may fit.
    """
    machine = options.replica_machine()
    needed = 1 + max((op.ipu for op in module.walk() if op.ipu is not None), default=0)
    if needed > machine.num_ipus:
        raise OptionError(
            f"the model places ops on {needed} IPUs, {options.system} gives each replica "
            f"{machine.num_ipus}",
            remedy="use fewer replicas or a larger --system",
        )
    if options.placement == "spread":
        yield machine
        return
    if options.placement == "one":
        if needed > 1:
            raise OptionError(
                f"--placement one, but the model places ops on {needed} IPUs",
                remedy="leave --placement out",
            )
        yield replace(machine, num_ipus=1)
        return
    first = max(needed, min(machine.num_ipus, ipus_for_weights(module, machine)))
    for count in range(first, machine.num_ipus + 1):
        yield replace(machine, num_ipus=count)


def ipus_for_weights(module: ir.Module, machine: Target) -> int:
    """A lower bound on the IPUs that can hold the constants."""
    constants = [op for op in module.walk() if op.opname == "core.constant"]
    nbytes = sum(op.result.type.nbytes for op in constants)
    one = machine.bytes_per_tile * machine.tiles_per_ipu * MEMORY_SHARE
    return 1 + int(nbytes // one)


def check_complete(options: CompileOptions) -> None:
    """Raises OptionError for passes that are to stop before there is an executable."""
    stop = options.dumps.stop_after
    if stop in [p.name for p in parse_pipeline(options.pipeline)[:-1]]:
        raise OptionError(
            f"--stop-after={stop} ends the passes before there is an executable",
            remedy="see the program there with --emit model-ir or tile-ir, or with --dump-dir",
        )


def build(tiles: Any) -> TileExecutable:
    """The executable of a tile-level module, as the pipeline leaves it.

    Raises OptionError for a module of the model level: the pipeline ended before `lower`.
    """
    if not isinstance(tiles, TileModule):
        raise OptionError(
            "the passes end before `lower`: there is nothing to execute",
            remedy="use @default, or --emit model-ir to see the module",
        )
    return build_from_module(tiles, BuildOptions())
