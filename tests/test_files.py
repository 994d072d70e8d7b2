"""Output files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from poplar_py.diagnostics import FileError
from poplar_py.files import atomic_path, check_writable, read_bytes, write_text


def test_write_replaces_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail_half_way() -> None:
        with atomic_path(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_missing_folder_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"):
        write_text(tmp_path / "none" / "a.txt", "x")
    with pytest.raises(FileError, match="cannot write"):
        check_writable(tmp_path / "none" / "a.txt")
    with pytest.raises(FileError, match="folder"):
        check_writable(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        read_bytes(tmp_path / "none")
