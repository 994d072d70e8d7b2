"""Runs pipelines: verifies after every pass, prints and dumps IR, times, writes reproducers."""

from __future__ import annotations

import difflib
import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

from poplar_py import ir
from poplar_py.diagnostics import OptionError, PassFailed, PoplarPyError, VerifyError
from poplar_py.files import write_text
from poplar_py.ir.resources import save_resources
from poplar_py.passes.context import PassContext, TileLevel
from poplar_py.passes.pipeline import parse_pipeline, pipeline_text
from poplar_py.passes.registry import Pass, pass_names

__all__ = ["PassManager", "module_text", "verify_module"]

AnyModule = Any  # ir.Module or a TileLevel


def level_of(module: AnyModule) -> str:
    return "model" if isinstance(module, ir.Module) else "tile"


def module_text(
    module: AnyModule, *, inline_resources: bool = False, resources: dict[str, Any] | None = None
) -> str:
    """The `.pir` text of a module of either level; arrays named by hash go to `resources`."""
    if isinstance(module, ir.Module):
        return ir.print_module(module, inline_resources=inline_resources, resources=resources)
    return module.print_ir(inline_resources=inline_resources, resources=resources)


def verify_module(module: AnyModule) -> None:
    """Check the invariants of a module of either level. Raises VerifyError."""
    if isinstance(module, ir.Module):
        ir.verify(module)
    else:
        module.verify()


class PassManager:
    """Runs passes over a module with the options of a context."""

    def __init__(self, ctx: PassContext | None = None) -> None:
        self.ctx = PassContext() if ctx is None else ctx
        self._number = 0
        self._text: str | None = None
        self._snapshot: ir.Module | None = None
        self._snapshot_from = 0

    def run(self, module: AnyModule, spec: str | list[Pass]) -> AnyModule:
        """The module that the pipeline leaves (the same object, or a tile-level one).

        Raises what passes raise; PassFailed (with a reproducer) when a pass leaves a broken module
        or fails with an error that is not the user's.
        """
        passes = parse_pipeline(spec) if isinstance(spec, str) else list(spec)
        self._check_names(passes)
        begin = time.perf_counter()
        self._dump(module, "input")
        if self.ctx.verify:
            verify_module(module)
        try:
            for index, step in enumerate(passes):
                module = self._step(module, passes, index)
                if step.name == self.ctx.stop_after:
                    break
        finally:  # a pass that refuses the module has taken time as well
            if self.ctx.time_passes:
                self._print_times(time.perf_counter() - begin)
        return module

    def _check_names(self, passes: list[Pass]) -> None:
        names = {p.name for p in passes}
        listed = f"its passes are {', '.join(p.name for p in passes)}" if passes else "it is empty"
        if self.ctx.stop_after and self.ctx.stop_after not in names:
            raise OptionError(
                f"--stop-after={self.ctx.stop_after}: the pipeline has no such pass",
                remedy=listed,
            )
        for name in (*self.ctx.before, *self.ctx.after):
            if name not in names:
                there = "the pipeline has" if name in pass_names() else "there is"
                raise OptionError(
                    f"{there} no pass {name!r} to print the IR around",
                    remedy=listed,
                )

    def _step(self, module: AnyModule, passes: list[Pass], index: int) -> AnyModule:
        step, ctx = passes[index], self.ctx
        if level_of(module) != step.level:
            raise OptionError(
                f"pass {step.name} takes the {step.level} level, the module is at the "
                f"{level_of(module)} level",
                remedy="`poplar-py passes` lists the passes by level, in an order that works",
            )
        if isinstance(module, ir.Module):
            self._snapshot, self._snapshot_from = ir.clone_module(module), index
        if step.name in ctx.before:
            self._print(f"IR before {step.name}", module)
        if ctx.diff and self._text is None:
            self._text = module_text(module)
        ctx.current, ctx.replacement = step.name, None
        ctx.progress(step.name)
        begin = time.perf_counter()
        try:
            step.run(module, ctx)
        except (PoplarPyError, MemoryError):  # the host's memory is no fault of the pass
            raise
        except Exception as error:
            note = self._reproducer(passes, index)
            raise PassFailed(f"pass {step.name} failed: {error!r}", remedy=note) from error
        finally:
            ctx.timings.append((step.name, time.perf_counter() - begin))
        if ctx.replacement is not None:
            module, ctx.replacement = ctx.replacement, None
        self._check(module, passes, index)
        self._after(module, step)
        return module

    def _check(self, module: AnyModule, passes: list[Pass], index: int) -> None:
        step = passes[index]
        wanted = step.leaves or step.level
        if level_of(module) != wanted:
            raise PassFailed(f"pass {step.name} left the {level_of(module)} level, not {wanted}")
        if level_of(module) == "tile" and not isinstance(module, TileLevel):
            raise PassFailed(f"pass {step.name} left a {type(module).__name__}, which is no module")
        if not self.ctx.verify:
            return
        try:
            verify_module(module)
        except PoplarPyError as error:
            if not isinstance(error, VerifyError) and level_of(module) == "tile":
                raise
            note = self._reproducer(passes, index)
            raise PassFailed(
                f"pass {step.name} left a module that does not verify:\n{error}", error.loc, note
            ) from error

    def _after(self, module: AnyModule, step: Pass) -> None:
        ctx = self.ctx
        if ctx.after_all or step.name in ctx.after:
            self._print(f"IR after {step.name}", module)
        if ctx.diff:
            text = module_text(module)
            self._print_diff(step, self._text or "", text)
            self._text = text
        self._dump(module, step.name)

    def _print(self, title: str, module: AnyModule) -> None:
        text = module_text(module, inline_resources=self.ctx.inline_resources)
        self.ctx.out.write(f"// ----- {title} -----\n{text}")

    def _print_diff(self, step: Pass, old: str, new: str) -> None:
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), "before", "after", n=2
        )
        body = "".join(lines)
        self.ctx.out.write(f"// ----- {step.name} changed -----\n{body or '(nothing)'}\n")

    def _dump(self, module: AnyModule, name: str) -> None:
        """`NN-name.pir` in the dump folder, arrays in its `resources`."""
        folder = self.ctx.dump_dir
        if folder is None:
            return
        found: dict[str, Any] = {}
        inline = self.ctx.inline_resources
        text = module_text(module, inline_resources=inline, resources=found)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"cannot make the dump folder {folder}: {error.strerror or error}",
                remedy="choose a folder that can be written to",
            ) from None
        if not inline:
            save_resources(folder / "resources", found)
        write_text(folder / f"{self._number:02d}-{name}.pir", text)
        self._number += 1

    def _print_times(self, total: float) -> None:
        out = self.ctx.out
        out.write("// ----- time per pass -----\n")
        for name, seconds in self.ctx.timings:
            share = 100 * seconds / total if total else 0.0
            out.write(f"{seconds * 1e3:10.2f} ms {share:5.1f} %  {name}\n")
        out.write(f"{total * 1e3:10.2f} ms 100.0 %  all, with checks and dumps\n")

    def _reproducer(self, passes: list[Pass], index: int) -> str:
        """Write the last model-level module and the passes from there; says where it is."""
        if self._snapshot is None:
            return ""
        spec = pipeline_text(passes[self._snapshot_from : index + 1])
        text = ir.print_module(self._snapshot, inline_resources=True)
        text = f"// poplar-py opt THIS_FILE -p '{spec}'\n{text}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        folder = self.ctx.reproducer_dir or self.ctx.dump_dir or Path(tempfile.gettempdir())
        path = folder / f"poplar-py-{passes[index].name}-{digest}.pir"
        try:
            write_text(path, text)
        except PoplarPyError:
            return "the reproducer could not be written"
        return f"to see it again: poplar-py opt {path} -p '{spec}'"
