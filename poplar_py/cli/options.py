"""Options that several subcommands share, as decorators, and what their text means."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import numpy as np
import numpy.typing as npt

from poplar_py.cli.given import refuse
from poplar_py.diagnostics import FileError, InputError, Location, OptionError
from poplar_py.driver.options import PLACEMENTS, CompileOptions, Dumps
from poplar_py.files import NPY_ERRORS

if TYPE_CHECKING:
    from poplar_py.frontends.source import LoadedModel
    from poplar_py.target import Target

__all__ = [
    "Binding",
    "binding_options",
    "check_machine",
    "check_output",
    "check_target",
    "dump_options",
    "is_pexe",
    "load_npy",
    "machine_options",
    "split_pair",
]

F = TypeVar("F", bound=Callable[..., Any])
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Binding:
    """What the command line fixes about a model's inputs before it is compiled."""

    dims: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    consts: dict[str, Array]


def split_pair(text: str, option: str) -> tuple[str, str]:
    """NAME=VALUE split at the last `=`, since names of ONNX values may hold one."""
    name, sign, value = text.rpartition("=")
    if not sign or not name or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=f"'{option}'")
    return name, value


def check_output(path: str | None, *sources: str) -> None:
    """Raises FileError unless a file can be written there that is none of the files read."""
    from poplar_py.files import check_writable

    if path is None:
        return
    if path == "-":
        raise OptionError("'-' is no output file", remedy="name a file, or /dev/stdout")
    if any(
        os.path.exists(p) and os.path.exists(path) and os.path.samefile(p, path) for p in sources
    ):
        raise FileError(
            f"the output {path} is an input as well", Location(path, 0, 0), "name another file"
        )
    check_writable(path)


def is_pexe(model: str, format: str | None) -> bool:
    """Whether the model is an executable. Raises OptionError for one on standard input."""
    found = format == "pexe" or (format is None and model.endswith(".pexe"))
    if found and model == "-":
        raise OptionError("a .pexe is not read from standard input", remedy="name a file")
    return found


def check_machine(source: LoadedModel, options: CompileOptions) -> None:
    """Raises UsageError for a machine other than the one that a tile-level program was made for."""
    if source.target is not None:
        check_target(source.target, options)
        refuse(("placement",), "a tile-level program is placed already")


def check_target(made_for: Target, options: CompileOptions) -> None:
    """Raises UsageError when options of the command line name another machine than a program's."""
    machine, name = options.machine(), made_for.system.name
    made = (
        f"the program was made for {made_for.num_ipus} x {made_for.tiles_per_ipu} tiles of {name}"
    )
    if machine.system.name != name:
        refuse(("system",), made)
    if machine.num_ipus < made_for.num_ipus:
        refuse(("ipus",), made)
    if machine.tiles_per_ipu != made_for.tiles_per_ipu:
        refuse(("tiles_per_ipu",), made)


def _dimension(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{text!r} is not a size", param_hint=f"'{option}'")
    if len(text) > 18:
        raise click.BadParameter(f"{text[:18]}... is too large", param_hint=f"'{option}'")
    return int(text)


def load_npy(path: str, name: str) -> Array:
    """Reads the array of input `name` from a .npy file; pickles are refused.

    Raises InputError when the file is missing, no .npy file, or holds objects.
    """
    loc = Location(path, 0, 0, name=name)
    try:
        found: Any = np.load(path, allow_pickle=False)
    except MemoryError as error:
        raise InputError(f"input {name!r} is larger than the host's memory", loc) from error
    except NPY_ERRORS as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read input {name!r}: {reason}", loc) from error
    if not isinstance(found, np.ndarray):
        raise InputError(
            f"input {name!r} is an archive of several arrays", loc, remedy="give a .npy file"
        )
    return cast("Array", found)


def _constant(text: str, name: str) -> Array:
    """The value of `--const`: a .npy file, a number, true/false, or a list such as 1,2,3."""
    if text.endswith(".npy"):
        return load_npy(text, name)
    parts = [_number(part.strip(), name) for part in text.strip("[]").split(",") if part.strip()]
    is_list = "," in text or text.startswith("[")
    array = np.array(parts if is_list else parts[0])
    return array.astype(np.int64) if array.dtype.kind == "i" else array


def _number(text: str, name: str) -> int | float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise OptionError(
            f"--const {name}={text}: {text!r} is no number", remedy="give numbers or a .npy file"
        ) from None


def _binding(dims: Sequence[str], shapes: Sequence[str], consts: Sequence[str]) -> Binding:
    return Binding(
        {n: _dimension(v, "--dim") for n, v in _pairs(dims, "--dim").items()},
        {n: _shape(v) for n, v in _pairs(shapes, "--shape").items()},
        {n: _constant(v, n) for n, v in _pairs(consts, "--const").items()},
    )


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Values by name. Raises BadParameter for a name that has two."""
    out: dict[str, str] = {}
    for name, value in (split_pair(t, option) for t in texts):
        if out.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} is {out[name]} and {value}", param_hint=f"'{option}'")
    return out


def _shape(text: str) -> tuple[int, ...]:
    if text in ("scalar", "[]"):
        return ()
    if "," in text:
        raise click.BadParameter(f"{text!r}: sizes are separated by x", param_hint="'--shape'")
    return tuple(_dimension(part, "--shape") for part in text.lower().split("x"))


def _chain(function: F, decorators: Sequence[Callable[[Any], Any]]) -> F:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


_BINDING = (
    click.option(
        "--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a free dimension."
    ),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="INPUT=1x3x48x320",
        help="Shape of an input.",
    ),
    click.option(
        "--const",
        "consts",
        multiple=True,
        metavar="INPUT=VALUE|FILE.npy",
        help="Value of an input that decides shapes, axes or counts.",
    ),
    click.option(
        "--format",
        "format",
        type=click.Choice(["pml", "pir", "onnx", "pexe"]),
        help="Kind of the model when its name does not tell (needed for '-', standard input).",
    ),
)


def binding_options(function: F) -> F:
    """Adds --dim, --shape, --const and --format; passes `binding` and `format`."""

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        dims: tuple[str, ...],
        shapes: tuple[str, ...],
        consts: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        return function(*args, binding=_binding(dims, shapes, consts), **rest)

    return _chain(wrapped, _BINDING)  # type: ignore[return-value]


_MACHINE = (
    click.option(
        "--system",
        default="m2000",
        show_default=True,
        help="Machine: ipu, m2000, bow2000, pod16, pod64, bow-pod64, or FILE.toml.",
    ),
    click.option("--ipus", type=click.IntRange(min=1), help="IPUs of the machine."),
    click.option("--tiles-per-ipu", type=click.IntRange(min=1), help="Tiles of each IPU."),
    click.option(
        "--placement",
        type=click.Choice(PLACEMENTS),
        default="auto",
        show_default=True,
        help="auto: the fewest IPUs that hold the model; one; spread: balance over all.",
    ),
    click.option(
        "--replicas",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Copies of the program that split the batch.",
    ),
    click.option(
        "--passes",
        default="@default",
        show_default=True,
        metavar="SPEC",
        help="Pass pipeline; an executable runs those on tiles that it leaves out as well.",
    ),
)


def machine_options(function: F) -> F:
    """Adds the options of machine, placement and passes; passes `options`: CompileOptions."""

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        system: str,
        ipus: int | None,
        tiles_per_ipu: int | None,
        placement: str,
        replicas: int,
        passes: str,
        dumps: Dumps,
        **rest: Any,
    ) -> Any:
        options = CompileOptions(system, ipus, tiles_per_ipu, placement, replicas, passes, dumps)
        return function(*args, options=options, **rest)

    return dump_options(_chain(wrapped, _MACHINE))  # type: ignore[return-value]


_DUMPS = (
    click.option(
        "--print-ir-before", multiple=True, metavar="PASS", help="Show the IR before a pass."
    ),
    click.option(
        "--print-ir-after", multiple=True, metavar="PASS", help="Show the IR after a pass."
    ),
    click.option("--print-ir-after-all", is_flag=True, help="Show the IR after every pass."),
    click.option("--print-ir-diff", is_flag=True, help="Show what each pass changed."),
    click.option(
        "--dump-dir",
        type=click.Path(file_okay=False),
        help="Folder for one numbered .pir file a pass.",
    ),
    click.option("--time-passes", is_flag=True, help="Show the seconds each pass took."),
    click.option(
        "--stop-after",
        default="",
        metavar="PASS",
        help="Stop after this pass; what is left is shown, not run or compiled.",
    ),
    click.option("--inline-resources", is_flag=True, help="Write large constants into the texts."),
)


def dump_options(function: F) -> F:
    """Adds the options that show IR between passes; passes `dumps`: Dumps."""

    @functools.wraps(function)
    def wrapped(
        *args: Any,
        print_ir_before: tuple[str, ...],
        print_ir_after: tuple[str, ...],
        print_ir_after_all: bool,
        print_ir_diff: bool,
        dump_dir: str | None,
        time_passes: bool,
        stop_after: str,
        inline_resources: bool,
        **rest: Any,
    ) -> Any:
        folder = None if dump_dir is None else Path(dump_dir)
        shown = (print_ir_before, print_ir_after, print_ir_after_all, print_ir_diff, folder)
        always = click.get_current_context().command.name == "opt"
        if not any(shown) and not always and rest.get("emit") not in ("model-ir", "tile-ir"):
            refuse(("inline_resources",), "no IR is shown or written")
        dumps = Dumps(*shown, time_passes, stop_after, inline_resources)
        return function(*args, dumps=dumps, **rest)

    return _chain(wrapped, _DUMPS)  # type: ignore[return-value]
