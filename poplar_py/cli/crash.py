"""The report written when the compiler itself fails: what is needed to see the failure again."""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from poplar_py.diagnostics import FileError
from poplar_py.files import write_text

__all__ = ["write_report"]

_PACKAGES = ("poplar_py", "numpy", "llvmlite", "lark", "onnx", "networkx", "click", "rich")


def _versions() -> list[str]:
    lines = [f"python {sys.version.split()[0]}, {platform.system()} {platform.machine()}"]
    for package in _PACKAGES:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} not installed")
    return lines


def report_text(error: BaseException, arguments: Sequence[str]) -> str:
    """The report: command line, versions, traceback, and the IR a pass failed on if known."""
    parts = [
        "poplar-py reproducer",
        "",
        "command:",
        "  poplar-py " + shlex.join(arguments),
        "",
        "versions:",
        *("  " + line for line in _versions()),
        "",
        "traceback:",
        "".join(traceback.format_exception(error)),
    ]
    ir = getattr(error, "ir_text", None)
    if isinstance(ir, str):
        parts += ["IR:", ir]
    return "\n".join(parts)


def write_report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Writes the report into the current folder, or the temporary one if that is read-only."""
    name = time.strftime("poplar-py-reproducer-%Y%m%d-%H%M%S.txt")
    text = report_text(error, arguments)
    try:
        path = Path.cwd() / name
        write_text(path, text)
    except (FileError, OSError):
        path = Path(tempfile.gettempdir()) / name
        write_text(path, text)
    return path
