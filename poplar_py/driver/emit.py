"""The text forms of `poplar-py compile --emit`: one for each level a program passes through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from poplar_py import ir
from poplar_py.codegen.emit import emit_kernel
from poplar_py.codegen.jit import Jit
from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet_text import print_codelet
from poplar_py.diagnostics import OptionError
from poplar_py.driver.compile import build, check_complete, run_passes, run_pipeline
from poplar_py.driver.forms import FORMS, MODEL_FORMS
from poplar_py.driver.options import CompileOptions
from poplar_py.driver.signature import Array
from poplar_py.executable.executable import Executable
from poplar_py.files import write_text
from poplar_py.ir.resources import save_resources
from poplar_py.passes import module_text, parse_pipeline
from poplar_py.passes.memory_fit import region_use
from poplar_py.passes.tile_module import TileModule

__all__ = ["FORMS", "Emitted", "emit", "emit_executable", "emit_tiles"]

_TILES_SHOWN = 64
"""Tiles listed one by one in a memory map: the fullest ones."""


@dataclass(frozen=True)
class Emitted:
    """A text form, and the large arrays it names by hash (none when they are in the text)."""

    text: str
    resources: dict[str, Array] = field(default_factory=dict[str, Array])

    def save(self, path: str | Path) -> None:
        """Writes the text, and its arrays into `resources/` beside it."""
        if self.resources:
            save_resources(Path(path).parent / "resources", self.resources)
        write_text(path, self.text)


def emit(
    form: str,
    module: ir.Module,
    options: CompileOptions,
    dims: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
) -> Emitted:
    """One form. Raises OptionError for a form that is unknown or that the passes do not reach, and
    what passes raise."""
    if form not in FORMS:
        raise OptionError(f"unknown form {form!r}", remedy=f"use {', '.join(FORMS)}")
    if form in MODEL_FORMS:
        lowered = model_level(module, options, dims, shapes)
        return Emitted(dot(lowered)) if form == "dot" else _ir_text(lowered, options)
    if form != "tile-ir":
        check_complete(options)
    return emit_tiles(form, run_pipeline(module, options, dims, shapes).module, options)


def emit_tiles(form: str, tiles: Any, options: CompileOptions) -> Emitted:
    """A form below the model level, of the module that the passes have left. Raises OptionError."""
    if not isinstance(tiles, TileModule):
        raise OptionError(
            f"the passes end before `lower`: there is no {form}",
            remedy="use @default, or --emit model-ir to see the module",
        )
    return _ir_text(tiles, options) if form == "tile-ir" else emit_executable(form, build(tiles))


def emit_executable(form: str, executable: Executable) -> Emitted:
    """A form that an executable still holds. Raises OptionError for the others."""
    if form == "memory-map":
        return Emitted(memory_map(executable))
    if form in (*MODEL_FORMS, "tile-ir"):
        raise OptionError(f"an executable holds no {form}", remedy="emit it from the model")
    return Emitted("\n".join(_codelet_texts(form, executable.codelets)))


def _ir_text(module: Any, options: CompileOptions) -> Emitted:
    """`.pir` text of a module of either level."""
    if options.dumps.inline_resources:
        return Emitted(module_text(module, inline_resources=True))
    found: dict[str, Array] = {}
    text = module_text(module, resources=found)
    return Emitted(text, found)


def model_level(
    module: ir.Module,
    options: CompileOptions,
    dims: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
) -> ir.Module:
    """The module after those passes of the pipeline that stay on the model level."""
    passes = parse_pipeline(options.pipeline)
    kept = [p for p in passes if p.level == "model" and (p.leaves or p.level) == "model"]
    target = options.replica_machine()
    return run_passes(ir.clone_module(module), kept, options, target, dims, shapes)


def _codelet_texts(form: str, codelets: Iterable[Codelet]) -> Iterable[str]:
    """Codelet IR, LLVM text or assembly of all codelets, each once."""
    jit = Jit() if form == "asm" else None
    for codelet in sorted(codelets, key=lambda c: c.name):
        if form == "codelet-ir":
            yield print_codelet(codelet.ir)
            continue
        _, text = emit_kernel(codelet, checked=not codelet.builtin)
        head = f"; {codelet.name}\n" if jit is None else f"# {codelet.name}\n"
        yield head + (text if jit is None else jit.assembly(text))


def dot(module: ir.Module) -> str:
    """The model-level graph for Graphviz: ops as boxes, one cluster per IPU."""
    lines = ["digraph model {", "  rankdir=TB;", '  node [shape=box, fontname="monospace"];']
    graph = module.main
    node_of: dict[ir.Value, str] = {}
    for k, value in enumerate(graph.inputs):
        node_of[value] = f"in{k}"
        lines.append(f'  in{k} [shape=ellipse, label="{_escape(value.name)}\\n{value.type}"];')
    groups: dict[int | None, list[str]] = {}
    edges: list[str] = []
    shown = [op for op in graph.ops if op.opname != "core.constant"]
    for k, op in enumerate(shown):
        types = ", ".join(str(value.type) for value in op.results)
        groups.setdefault(op.ipu, []).append(f'op{k} [label="{op.opname}\\n{types}"];')
        edges += [f"  {node_of[v]} -> op{k};" for v in op.operands() if v in node_of]
        node_of.update(dict.fromkeys(op.results, f"op{k}"))
    for ipu, nodes in groups.items():
        lines += _cluster(ipu, nodes)
    lines += edges
    for k, value in enumerate(graph.outputs):
        lines.append(f'  out{k} [shape=ellipse, label="{_escape(graph.output_name(k))}"];')
        if value in node_of:
            lines.append(f"  {node_of[value]} -> out{k};")
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(ipu: int | None, nodes: list[str]) -> list[str]:
    if ipu is None:
        return [f"  {node}" for node in nodes]
    inside = [f"    {node}" for node in nodes]
    return [f"  subgraph cluster_ipu{ipu} {{", f'    label="IPU {ipu}";', *inside, "  }"]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def memory_map(executable: Executable) -> str:
    """Bytes per tile, and what lies at which offset on the fullest tiles."""
    memory, items, target = executable.memory, executable.items, executable.target
    total = memory.total
    limit = target.bytes_per_tile
    executable_use, interleaved_use = region_use(memory, target)
    lines = [
        f"target {target.system.name}: {target.num_ipus} IPUs x {target.tiles_per_ipu} tiles x "
        f"{limit:,} bytes",
        f"used {int(total.sum()):,} bytes; fullest tile {int(total.max(initial=0)):,}; "
        f"live-load bound {int(memory.bound.sum()):,}, planned {int(memory.data.sum()):,}",
        f"executable region {int(target.chip.code_bytes.value):,} bytes, fullest tile "
        f"{int(executable_use.max(initial=0)):,}; interleaved region "
        f"{int(target.chip.interleaved_bytes.value):,}, fullest tile "
        f"{int(interleaved_use.max(initial=0)):,}",
        "",
        "tile   code  state  always live  data  bound  free",
    ]
    order = np.argsort(-total, kind="stable")[:_TILES_SHOWN]
    shown = [int(t) for t in order if total[t] > 0]
    for tile in shown:
        cells = (memory.code, memory.state, memory.always, memory.data, memory.bound)
        numbers = "  ".join(f"{int(cell[tile]):,}" for cell in cells)
        lines.append(f"{tile}: {numbers}  {limit - int(total[tile]):,}")
    for tile in shown[:4]:
        lines += ["", f"tile {tile}, offsets in its data area"]
        entries = np.flatnonzero((items.tile == tile) & (items.nbytes > 0))
        for entry in entries[np.argsort(memory.at[entries], kind="stable")].tolist():
            item, at = int(items.item[entry]), int(memory.at[entry])
            end = at + int(items.nbytes[entry])
            kind = "always live" if items.always[item] else "now and then"
            where = items.locs[item].short
            lines.append(f"  {at:8,} to {end:8,}  {kind:12}  {items.names[item]}  {where}".rstrip())
    return "\n".join(lines) + "\n"
