"""From a loaded model to an executable, for given sizes and values of inputs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from poplar_py.arguments import names_of, whole
from poplar_py.diagnostics import InputError
from poplar_py.driver.cache import cached, key_of
from poplar_py.driver.executable import Executable
from poplar_py.driver.forms import MODEL_FORMS
from poplar_py.driver.memory import give_back
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import (
    Binding,
    Port,
    Signature,
    as_array,
    batch_axis,
    bind_inputs,
    check_names,
)
from poplar_py.frontends.source import LoadedModel, Specialisation, Values
from poplar_py.ir import Module
from poplar_py.types import TensorType

if TYPE_CHECKING:
    from poplar_py.driver.emit import Emitted
    from poplar_py.passes.tile_module import TileModule

__all__ = ["Compiled", "Sizes", "compile_cached", "compile_model", "emit_model", "specialise"]


_compiling = threading.RLock()


@dataclass(frozen=True)
class Sizes:
    """What is known about the inputs: sizes of free dims, shapes (of all replicas together),
    values to compile for, and values that may be used where one is needed."""

    dims: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    consts: Values
    values: Values

    @staticmethod
    def of(
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        consts: Values | None = None,
        values: Values | None = None,
    ) -> Sizes:
        """Raises InputError for what is no dict by names or no array, OptionError for what is no
        size."""
        counts = names_of(dims, "dims").items()
        return Sizes(
            {name: whole(size, f"dim {name}") for name, size in counts},
            {name: _shape(name, s) for name, s in names_of(shapes, "shapes").items()},
            {name: as_array(value, name) for name, value in names_of(consts, "consts").items()},
            names_of(values, "inputs"),
        )


@dataclass(frozen=True)
class Compiled:
    """An executable and the module it was made from."""

    executable: Executable
    module: Module | TileModule


def specialise(
    model: LoadedModel, options: CompileOptions, sizes: Sizes
) -> tuple[Specialisation, Binding]:
    """The module of one replica, and how its inputs are split."""
    options.replica_machine()  # too many replicas is the first thing to tell
    declared = model.inputs
    check_names("dim", sizes.dims, model.dim_names())
    check_names("input", (*sizes.shapes, *sizes.consts), list(declared))
    shapes = dict(sizes.shapes)
    for name, value in sizes.consts.items():
        shapes.setdefault(name, value.shape)
    binding = bind_inputs(declared, sizes.dims, shapes, options.replicas)
    found = model.specialise({}, binding.shapes, sizes.consts, sizes.values)
    return found, binding


def _shape(name: str, shape: Any) -> tuple[Any, ...]:
    """A shape of whole numbers, or the shapes of a sequence's items."""
    if not isinstance(shape, Iterable):
        raise InputError(f"the shape of input {name!r} is {shape!r}", remedy="give a list of sizes")
    items = tuple(cast("Iterable[Any]", shape))
    if any(isinstance(n, (tuple, list)) or (hasattr(n, "shape") and n.shape) for n in items):
        return items
    return tuple(whole(n, f"a size of input {name!r}") for n in items)


def compile_model(model: LoadedModel, options: CompileOptions, sizes: Sizes) -> Compiled:
    """Compiles a model for a machine. Raises what reading, passes and planning raise.

    One compilation at a time: the tables that passes and libraries fill on the way are shared.
    """
    with _compiling:
        try:
            return _compile(model, options, sizes)
        finally:
            give_back()


def _compile(model: LoadedModel, options: CompileOptions, sizes: Sizes) -> Compiled:
    """Passes are imported here: a start that finds its executable in the cache does without."""
    from poplar_py.driver.compile import build, check_complete, run_pipeline
    from poplar_py.frontends.tiles import TileModel, compile_tiles

    if isinstance(model, TileModel):
        return Compiled(compile_tiles(model, options, sizes), model.module)
    check_complete(options)
    options.progress("import")
    found, binding = specialise(model, options, sizes)
    passed = run_pipeline(found.module, options, found.dims, found.shapes)
    options.progress("codelets")
    signature = signature_of(model, passed.model, binding, options.replicas)
    machine = options.machine()
    executable = Executable(
        build(passed.module), signature, model.name, machine.num_ipus, dict(found.consts)
    )
    return Compiled(executable, found.module)


def compile_cached(model: LoadedModel, options: CompileOptions, sizes: Sizes) -> Executable:
    """As `compile_model`, or what an earlier compilation of the same left in the user's cache."""
    fingerprint = model.fingerprint()
    key = None
    if fingerprint is not None:
        known = {"dims": sorted(sizes.dims.items())}
        known |= {f"shape {n}": list(s) for n, s in sizes.shapes.items()}
        key = key_of(fingerprint, options, known, {**sizes.values, **sizes.consts})
    return cached(key, lambda: compile_model(model, options, sizes).executable)


def signature_of(model: LoadedModel, module: Module, binding: Binding, replicas: int) -> Signature:
    """Ports of a module whose types are static; outputs are joined where the batch stands."""
    graph = module.main
    inputs = tuple(
        Port(v.name, v.type, binding.splits.get(v.name) if replicas > 1 else None)
        for v in graph.inputs
    )
    batch = {
        type.shape[axis]
        for name, type in model.inputs.items()
        if (axis := binding.splits.get(name)) is not None and isinstance(type.shape[axis], str)
    }
    declared_outputs = model.outputs
    counted = counted_outputs(module)
    outputs: list[Port] = []
    for index, value in enumerate(graph.outputs):
        name = graph.output_name(index)
        declared = declared_outputs.get(name, value.type)
        if declared.rank != value.type.rank:
            declared = value.type
        axis = output_axis(declared, batch) if replicas > 1 else None
        outputs.append(Port(name, value.type, axis, counted.get(name)))
    return Signature(inputs, tuple(outputs), replicas)


def counted_outputs(module: Module) -> dict[str, int]:
    """The axis along which the device counts the elements of an output, by its name."""
    kinds = [(name, kind.split()) for name, kind, *_ in module.metadata.get("onnx_outputs", ())]
    return {name: int(words[1]) for name, words in kinds if words[0] == "bounded"}


def output_axis(declared: TensorType, batch: set[Any]) -> int | None:
    """Where replicas' outputs are joined: at the batch dim, else along the first axis."""
    if not declared.rank:
        return None
    axis = batch_axis(declared, batch) if batch else 0
    return 0 if axis is None else axis


def emit_model(model: LoadedModel, form: str, options: CompileOptions, sizes: Sizes) -> Emitted:
    """The text form of a model that `poplar-py compile --emit FORM` shows."""
    from poplar_py.driver.emit import emit, emit_tiles
    from poplar_py.frontends.tiles import TileModel, planned

    if isinstance(model, TileModel) and form not in MODEL_FORMS:
        return emit_tiles(form, planned(model, options, sizes, form == "tile-ir"), options)
    found, _ = specialise(model, options, sizes)
    return emit(form, found.module, options, found.dims, found.shapes)
