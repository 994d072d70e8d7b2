"""`poplar-py compile`: a model to a .pexe file, or to the text of one of its levels."""

from __future__ import annotations

from dataclasses import replace

import click

from poplar_py.cli.options import Binding, binding_options, check_output, machine_options
from poplar_py.cli.output import Screen
from poplar_py.driver.forms import FORMS
from poplar_py.driver.options import CompileOptions

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

    Free dimensions need --dim or --shape, inputs that decide shapes --const.

    \b
    poplar-py compile model.onnx --dim batch=1 -o model.pexe
    poplar-py compile mlp.pml --dim batch=8 --emit tile-ir
    """
    check_output(output, model)
    screen = Screen(as_json)
    options = replace(options, progress=screen.progress)
    if emit is not None:
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
        emitted = emit_model(source, form, options, sizes)
    if output is not None:
        emitted.save(output)
    if screen.as_json:
        screen.json(
            {"form": form, "file": output} if output else {"form": form, "text": emitted.text}
        )
    elif output is None:
        click.echo(emitted.text, nl=not emitted.text.endswith("\n"))
