"""lower: model-level ops to variables, vertices and programs on tiles.

Before:

    %y: f32[64,256] = nn.matmul(%x, %w)
    %z: f32[64,256] = nn.relu(%y)

After:

    tile @main {
      var %x: f32[64,784] map linear(...)
      compute_set %cs0 "matmul" { vertices poplin... }
      compute_set %cs1 "relu" { vertices ... }
      program 0 { copy stream input/x -> %x; execute %cs0; ... }
    }

Every op has one rule in `LOWER`; a rule calls the libraries (popops, poplin, popnn, poprand),
which choose layouts and mappings. Layout-only ops become views of their operand and cost nothing.
Constants stay on the host until a consumer asks for them in the layout it wants.

Inputs come through streams called `input/NAME`, outputs leave through `output/NAME`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from poplar_py.diagnostics import Location
from poplar_py.ir import use_counts
from poplar_py.passes.context import PassContext
from poplar_py.passes.least_memory import check_sizes, origin
from poplar_py.passes.lower_context import LOWER, LowerContext, lower_ops
from poplar_py.passes.registry import Pass, register
from poplar_py.passes.tile_module import TileModule
from poplar_py.poplar import program
from poplar_py.poplar.where import located
from poplar_py.poplin import create_mat_mul_input
from poplar_py.poplin.place import reserve
from poplar_py.poputil.layout import fresh

if TYPE_CHECKING:
    from poplar_py.ir import Graph, Module, Value

__all__ = ["LOWER", "Lower", "LowerContext", "lower_graph"]

for _name in ("control", "math", "nn", "tensor"):
    import_module(f"poplar_py.passes.lower_{_name}")  # each enters its rules in LOWER


@register
@dataclass(frozen=True)
class Lower(Pass):
    """Model-level ops to variables, vertices and programs on tiles."""

    name = "lower"
    level = "model"
    leaves = "tile"
    after = ("infer-shapes",)

    def run(self, module: Module, ctx: PassContext) -> bool:
        check_sizes(module, ctx.target)
        ctx.replace(lower_graph(module.main, ctx.target))
        return True


def lower_graph(graph: Graph, target: Any) -> TileModule:
    """The tile-level module of a model graph; program 0 runs it once."""
    ctx = LowerContext(target)
    ctx.uses = use_counts(graph)
    reserve(ctx.whole, _weight_bytes(graph))
    home = _first_ipus(graph)
    matrices = _matrix_inputs(graph)
    for value in graph.inputs:
        ctx.graph = ctx.part(home.get(value))
        with located(origin(value)):
            _add_input(ctx, value, value in matrices)
    lower_ops(ctx, graph)
    for index, value in enumerate(graph.outputs):
        name = graph.output_name(index)
        with located(value.loc if value.loc.known else Location("", 0, 0, f"output {name}")):
            _add_output(ctx, value, name)
    return TileModule(ctx.whole, [ctx.prog], ["main"])


def _weight_bytes(graph: Graph) -> int:
    """Bytes of what products and other ops read that does not depend on inputs."""
    fixed: set[Value] = set()
    total = 0
    for op in graph.ops:
        operands = list(op.operands())
        if all(v in fixed for v in operands) and not op.regions():
            fixed.update(op.results)
            continue
        total += sum(v.type.nbytes for v in operands if v in fixed)
    return total


def _first_ipus(graph: Graph) -> dict[Value, int | None]:
    """The IPU of the first op that uses each value."""
    home: dict[Value, int | None] = {}
    for op in graph.walk():
        for value in op.operands():
            home.setdefault(value, op.ipu)
    return home


def _matrix_inputs(graph: Graph) -> set[Value]:
    """Inputs that only products with constants read, as their first operand."""
    found = set(graph.inputs) - set(graph.outputs)
    for op in graph.walk():
        product = op.opname == "nn.matmul"
        second: Value | None = getattr(op, "b", None) if product else None
        owner = None if second is None else second.owner
        constant = owner is not None and owner.opname == "core.constant"
        first = getattr(op, "a", None) if constant else None
        found.difference_update(v for v in op.operands() if v is not first)
    return found


def _add_input(ctx: LowerContext, value: Value, matrix: bool) -> None:
    """A variable filled from the stream input/NAME; a `matrix` as products read it."""
    shape = value.type.static_shape
    tensor = create_mat_mul_input(ctx.graph, value.dtype, shape, value.name) if matrix else None
    if tensor is None:
        tensor = fresh(ctx.graph, value.dtype, shape, value.name)
    ctx.set(value, tensor)
    if tensor.numel == 0:
        return
    stream = ctx.whole.add_host_to_device_fifo(f"input/{value.name}", value.dtype, tensor.numel)
    ctx.prog.add(program.Copy(stream, tensor))


def _add_output(ctx: LowerContext, value: Value, name: str) -> None:
    """A copy to the stream output/NAME."""
    tensor = ctx.tensor(value)
    if tensor.numel == 0:
        return
    stream = ctx.whole.add_device_to_host_fifo(f"output/{name}", value.dtype, tensor.numel)
    ctx.prog.add(program.Copy(tensor, stream))
