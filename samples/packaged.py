"""Finds model files inside installed packages, without importing those packages."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["packaged_file"]


def packaged_file(package: str, ending: str) -> Path:
    """The one installed file of a distribution whose path ends so.

    Exits with a hint when the package is not installed.
    """
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        sys.exit(
            f"package {package} is missing: "
            "pip install --no-deps -r requirements-models.txt (or: make setup)"
        )
    for file in files:
        if file.as_posix().endswith(ending):
            return Path(str(file.locate()))
    sys.exit(f"package {package} has no file {ending}")
