"""`poplar-py compile`: a model to a .pexe file, or to the text of one of its levels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from poplar_py.cli.given import COMPILING, refuse
from poplar_py.cli.options import (
    Binding,
    binding_options,
    check_machine,
    check_output,
    is_pexe,
    machine_options,
)
from poplar_py.cli.output import Screen
from poplar_py.driver.forms import FORMS
from poplar_py.driver.options import CompileOptions

if TYPE_CHECKING:
    from poplar_py.driver.emit import Emitted

__all__ = ["compile_command"]


@click.command("compile", short_help="Compile a model to .pexe, or show one of its levels.")
@click.argument("model")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="OUT", help="Output file.")
@click.option(
    "--emit",
    type=click.Choice(FORMS),
    help="Text to write instead of a .pexe; on standard output without -o.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
@machine_options
@binding_options
def compile_command(
    *,
    model: str,
    output: str | None,
    emit: str | None,
    as_json: bool,
    options: CompileOptions,
    binding: Binding,
    format: str | None,
) -> None:
    """Compiles MODEL (.onnx, .pml, .pir, or - for standard input) for a machine.

    Free dimensions need --dim or --shape, inputs that decide shapes --const. With --stop-after PASS
    there is no executable: --emit model-ir or tile-ir shows what the passes until then have left.
    A .pexe as MODEL can be shown with --emit codelet-ir, llvm, asm and memory-map.

    \b
    poplar-py compile model.onnx --dim batch=1 -o model.pexe
    poplar-py compile mlp.pml --dim batch=8 --emit tile-ir
    """
    check_output(output, model)
    if emit is not None and output is not None and output.endswith(".pexe"):
        raise click.UsageError(f"--emit {emit} writes a text, -o {output} names an executable")
    screen = Screen(as_json)
    options = replace(options, progress=screen.progress)
    if is_pexe(model, format):
        _emit_pexe(screen, model, emit, output)
    elif emit is not None:
        _emit(screen, model, format, emit, output, options, binding)
    elif output is not None:
        _compile(screen, model, format, output, options, binding)
    else:
        raise click.UsageError("say where the result goes: -o OUT.pexe, or --emit FORM")


def _compile(
    screen: Screen,
    model: str,
    format: str | None,
    output: str,
    options: CompileOptions,
    binding: Binding,
) -> None:
    """Writes a .pexe and shows its figures."""
    from poplar_py import api
    from poplar_py.frontends.build import Sizes

    sizes = Sizes.of(binding.dims, binding.shapes, binding.consts)
    with screen.live():
        source = api.load(model, format=format, dims=binding.dims)
        check_machine(source, options)
        executable = api.compile_for(source, options, sizes)
        executable.save(output)
    report = executable.static_report()
    if screen.as_json:
        screen.json({"file": output, **report.to_json()})
        return
    screen.table(report.table())
    screen.note(f"wrote {output}")


def _emit(
    screen: Screen,
    model: str,
    format: str | None,
    form: str,
    output: str | None,
    options: CompileOptions,
    binding: Binding,
) -> None:
    """Writes one text form, on standard output without an output file."""
    from poplar_py import api
    from poplar_py.frontends.build import Sizes, emit_model

    sizes = Sizes.of(binding.dims, binding.shapes, binding.consts)
    with screen.live():
        source = api.load(model, format=format, dims=binding.dims)
        check_machine(source, options)
        emitted = emit_model(source, form, options, sizes)
    _show(screen, form, emitted, output)


def _emit_pexe(screen: Screen, model: str, form: str | None, output: str | None) -> None:
    """Writes a text form that a .pexe still holds."""
    if form is None:
        raise click.UsageError(f"{model} is compiled already; --emit shows what is in it")
    refuse(COMPILING, "a .pexe is compiled already; give this where it is compiled")
    from poplar_py import api
    from poplar_py.driver.emit import emit_executable

    _show(screen, form, emit_executable(form, api.Executable.load(model).tile), output)


def _show(screen: Screen, form: str, emitted: Emitted, output: str | None) -> None:
    """Into the output file, else on standard output."""
    if output is not None:
        emitted.save(output)
    if screen.as_json:
        screen.json(
            {"form": form, "file": output} if output else {"form": form, "text": emitted.text}
        )
    elif output is None:
        click.echo(emitted.text, nl=not emitted.text.endswith("\n"))
