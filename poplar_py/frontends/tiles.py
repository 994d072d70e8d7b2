"""Tile-level `.pir` text as a model: a dump taken after `lower` runs like the model it came from.

Inputs and outputs are the streams called `input/NAME` and `output/NAME`; their shapes are those of
the tensors they are copied to and from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from poplar_py.diagnostics import OptionError
from poplar_py.driver.compile import build, check_complete, run_passes
from poplar_py.driver.executable import Executable
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import Port, Signature, check_names, counted_axis
from poplar_py.frontends.source import LoadedModel, Specialisation, Values
from poplar_py.passes import parse_pipeline
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar import program
from poplar_py.poplar.streams import DataStream
from poplar_py.poplar.tensor import Tensor
from poplar_py.target import Target
from poplar_py.types import TensorType

if TYPE_CHECKING:
    from poplar_py.frontends.build import Sizes

__all__ = ["TileModel", "compile_tiles", "planned"]


class TileModel(LoadedModel):
    """A program on tiles; `fresh` reads it anew for each compilation, since passes change it."""

    def __init__(self, name: str, module: TileModule, fresh: Callable[[], TileModule]) -> None:
        self.name = name
        self.module = module
        self.fresh = fresh

    @property
    def target(self) -> Target:
        return self.module.graph.target

    @property
    def inputs(self) -> dict[str, TensorType]:
        return _streams(self.module, "from_stream", "input/")

    @property
    def outputs(self) -> dict[str, TensorType]:
        return _streams(self.module, "to_stream", "output/")

    def specialise(
        self, dims: Mapping[str, int], shapes: Mapping[str, Any], consts: Values, values: Values
    ) -> Specialisation:
        raise OptionError(
            f"{self.name} is at the tile level: it has no form above that",
            remedy="`poplar-py run` runs it, `poplar-py opt FILE -p ''` prints it",
        )


def _streams(module: TileModule, kind: str, prefix: str) -> dict[str, TensorType]:
    """Name and type of each stream of one direction, in the order of the copies."""
    found: dict[str, TensorType] = {}
    for step in (step for top in module.programs for step in top.walk()):
        if not isinstance(step, program.Copy) or step.kind != kind:
            continue
        stream, tensor = step.src, step.dst
        if kind == "to_stream":
            stream, tensor = tensor, stream
        if not isinstance(stream, DataStream) or not isinstance(tensor, Tensor):
            continue
        if stream.handle.startswith(prefix):
            shape = tuple(int(d) for d in tensor.shape)
            found[stream.handle.removeprefix(prefix)] = TensorType(tensor.dtype, shape)
    return found


def compile_tiles(model: TileModel, options: CompileOptions, sizes: Sizes) -> Executable:
    """The executable of a tile-level program, for the machine that its text names."""
    done = planned(model, options, sizes)
    options.progress("codelets")
    inputs = tuple(Port(name, type) for name, type in model.inputs.items())
    types = model.outputs
    outputs = tuple(Port(n, type, None, counted_axis(n, types)) for n, type in types.items())
    signature = Signature(inputs, outputs, 1)
    return Executable(build(done), signature, model.name, done.graph.target.num_ipus)


def planned(
    model: TileModel, options: CompileOptions, sizes: Sizes, partly: bool = False
) -> TileModule:
    """The program after the passes; those of the model level are left out of the pipeline.

    `partly`: it may stop before there is an executable. Raises OptionError for several replicas,
    InputError for sizes and values, which the program was made for already.
    """
    check_names("dim", sizes.dims, ())
    check_names("compile-time input", sizes.consts, ())
    if not partly:
        check_complete(options)
    if options.replicas > 1:
        raise OptionError(
            f"{model.name} is at the tile level: it is the program of one replica",
            remedy="give --replicas where the model is compiled",
        )
    module = model.fresh()
    passes = [p for p in parse_pipeline(options.pipeline) if p.level == "tile"]
    target = module.graph.target
    return run_passes(module, passes, options, target)
