"""Fixtures of the whole suite: an own cache folder for compiled objects, model files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# `make test` tries the same examples every time; `make test-all` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="write what file tests gave as what they expect"
    )


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled objects of a test run never come from, or end in, the user's cache."""
    folder = tmp_path_factory.getbasetemp().parent / "poplar-py-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POPLAR_PY_CACHE_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The folder of the checkout."""
    return Path(__file__).resolve().parents[1]
