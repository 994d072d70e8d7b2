"""Lets the tests of this folder import each other's helpers; both kinds of code for a codelet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=[False, True], ids=["unchecked", "checked"])
def checked(request) -> bool:
    """Whether a codelet runs as checked code."""
    return request.param
