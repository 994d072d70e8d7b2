"""`poplar-py run`: compile a model for its inputs, run it on the simulated machine, report."""

from __future__ import annotations

from typing import Any

import click

from poplar_py.cli.options import binding_options, machine_options

__all__ = ["run_command"]


@click.command("run", short_help="Run a model or a .pexe file.")
@click.argument("model")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="Array for an input."
)
@click.option(
    "--random-inputs",
    "seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Random values for other inputs.",
)
@click.option("--output", type=click.Path(dir_okay=False), metavar="OUT.npz", help="Write outputs.")
@click.option(
    "--profile", type=click.Path(file_okay=False), metavar="DIR", help="Write a report to DIR."
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Host threads (default: free cores, 1 for a small program).",
)
@click.option("--faithful-exchange", is_flag=True, help="Move every remote byte, poison dead ones.")
@click.option("--check-uninitialised", is_flag=True, help="Report reads of unwritten elements.")
@click.option("--no-merge-vertices", is_flag=True, help="Run every vertex by itself on the host.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.0), metavar="S", help="Seconds a run may take."
)
@click.option("--dry-run", is_flag=True, help="Compile, plan and count without values.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the steps that took most cycles.")
@machine_options
@binding_options
def run_command(**given: Any) -> None:
    """Runs MODEL (.onnx, .pml, .pir, or - for standard input) or FILE.pexe once.

    Free dimensions are taken from the inputs; what the inputs leave open is given by --dim or
    --shape. Outputs go to standard output, tables and progress to standard error. A .pexe takes
    none of the options that say how a model is compiled, from --system to --stop-after.

    \b
    poplar-py run model.onnx --input x=x.npy --output y.npz
    poplar-py run model.onnx --random-inputs 1 --dim batch=8 --replicas 4 --profile report/
    """
    from poplar_py.cli.run_model import Run

    Run(**given).execute()
