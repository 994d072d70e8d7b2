"""The `poplar-py` command: its subcommands, and the one place where errors become exit codes.

Exit codes: 0 good, 1 an error in the user's model, input or option, 2 wrong usage of the command
line, 3 an internal error (a file with what is needed to reproduce it is written), 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from poplar_py.cli.compile import compile_command
from poplar_py.cli.crash import write_report
from poplar_py.cli.opt import opt_command
from poplar_py.cli.run import run_command
from poplar_py.cli.show import info_command, ops_command, passes_command
from poplar_py.diagnostics import InternalError, PassFailed, PoplarPyError

__all__ = ["cli", "main"]

EXIT_USER, EXIT_USAGE, EXIT_INTERNAL, EXIT_INTERRUPTED = 1, 2, 3, 130


def _version() -> str:
    try:
        return version("poplar_py")
    except PackageNotFoundError:
        return "unknown (not installed)"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), "--version", prog_name="poplar-py")
def cli() -> None:
    """Compile models to the tiles of simulated IPUs, run them, and see every IR on the way.

    \b
    poplar-py run model.onnx --random-inputs 1 --dim batch=1
    poplar-py run mlp.pml --input x=x.npy --output y.npz --profile report/
    poplar-py compile model.onnx --emit tile-ir
    poplar-py passes
    """


for _command in (
    run_command,
    compile_command,
    opt_command,
    info_command,
    passes_command,
    ops_command,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits the process with the code that says how it went."""
    sys.exit(run_cli(sys.argv[1:] if arguments is None else list(arguments)))


def run_cli(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code. Never raises."""
    try:
        result: object = cli.main(list(arguments), prog_name="poplar-py", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        return EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_USER
    except (PassFailed, InternalError) as error:
        return _internal(error, arguments)
    except PoplarPyError as error:
        click.echo(str(error), err=True)
        return EXIT_USER
    except MemoryError:
        click.echo("error[out-of-memory]: the host has too little memory for this", err=True)
        return EXIT_USER
    except Exception as error:
        return _internal(error, arguments)
    return result if isinstance(result, int) else 0


def _internal(error: BaseException, arguments: Sequence[str]) -> int:
    """Tells of an error of the compiler itself and where the report of it lies."""
    click.echo(f"internal error: {type(error).__name__}: {error}", err=True)
    path = write_report(error, arguments)
    click.echo(f"This is a bug in poplar-py. Please report it with {path}", err=True)
    return EXIT_INTERNAL
