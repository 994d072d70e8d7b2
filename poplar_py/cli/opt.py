"""`poplar-py opt`: run passes on a .pir file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from poplar_py.cli.options import check_target, dump_options
from poplar_py.cli.output import Screen
from poplar_py.diagnostics import OptionError
from poplar_py.driver.options import CompileOptions, Dumps

__all__ = ["opt_command"]


@click.command("opt", short_help="Run passes on a .pir file.")
@click.argument("file")
@click.option("-p", "--passes", "pipeline", required=True, metavar="SPEC", help="Passes to run.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="OUT.pir", help="Output file."
)
@click.option("--system", default="m2000", show_default=True, help="Machine to lower for.")
@click.option("--ipus", type=click.IntRange(min=1), help="IPUs of the machine.")
@click.option("--tiles-per-ipu", type=click.IntRange(min=1), help="Tiles of each IPU.")
@dump_options
def opt_command(
    *,
    file: str,
    pipeline: str,
    output: str | None,
    system: str,
    ipus: int | None,
    tiles_per_ipu: int | None,
    dumps: Dumps,
) -> None:
    """Parses and verifies FILE.pir (- is standard input), runs passes, prints the result.

    An empty SPEC parses, verifies and prints.

    \b
    poplar-py opt model.pir -p ''
    poplar-py opt model.pir -p 'infer-shapes,fuse{max-ops=4}' -o fused.pir
    poplar-py compile m.onnx --emit model-ir --inline-resources | poplar-py opt - -p simplify
    """
    from poplar_py.files import check_writable
    from poplar_py.frontends.optimise import optimise, read_pir
    from poplar_py.passes.tile_module import TileModule

    kind = Path(file).suffix.lower()
    if kind in (".onnx", ".pml", ".pexe"):
        remedy = (
            f"poplar-py compile {file} --emit model-ir --inline-resources | poplar-py opt - ..."
        )
        shown = "its model is not in it" if kind == ".pexe" else remedy
        raise OptionError(f"opt reads .pir text, {file} is no such file", remedy=shown)
    if output is not None:
        check_writable(output)
    screen = Screen()
    options = CompileOptions(
        system, ipus, tiles_per_ipu, pipeline=pipeline, dumps=dumps, progress=screen.progress
    )
    with screen.live():
        module = read_pir(file)
        if isinstance(module, TileModule):
            check_target(module.graph.target, options)
        result = optimise(module, options)
    if output is None:
        sys.stdout.write(result.text(inline_resources=dumps.inline_resources))
    else:
        result.save(output, inline_resources=dumps.inline_resources)
