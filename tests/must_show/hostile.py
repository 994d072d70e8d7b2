"""Runs many command lines in one process of its own, with a bound on its memory.

A command that ends the process (a signal, a hang, too much memory) is found by name: the process
tells of every command before and after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY = 4 << 30
"""Bytes of address space of the process: a bound on what a hostile file can make it allocate."""


@dataclass(frozen=True)
class Outcome:
    """How one command line ended: exit code, standard error, seconds."""

    arguments: tuple[str, ...]
    code: int
    err: str
    seconds: float

    def check(self, codes: Sequence[int] = (1,), seconds: float = 10.0) -> None:
        """Fails unless it ended with one of the exit codes, in time, in an error that tells."""
        assert self.code in codes, self
        assert self.seconds < seconds, self
        assert "Traceback" not in self.err, self
        if self.code == 1:
            assert self.err.lstrip().startswith("error["), self
        if self.code == 2:
            assert "Error" in self.err, self


def run_all(commands: Sequence[Sequence[str]], folder: Path, timeout: float = 240) -> list[Outcome]:
    """The outcome of each command line, run in `folder`; fails when the process dies or hangs."""
    listed = folder / "commands.json"
    listed.write_text(json.dumps([list(c) for c in commands]), encoding="utf-8")
    child = subprocess.run(
        [sys.executable, __file__, str(listed)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    listed.unlink()
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    if len(lines) < len(commands) or child.returncode:
        tail = child.stderr[-2000:]
        died = commands[len(lines)] if len(lines) < len(commands) else "the end"
        raise AssertionError(f"the process ended with {child.returncode} at {died}: {tail}")
    return [Outcome(tuple(c), *line) for c, line in zip(commands, lines, strict=True)]


def _main(listed: str) -> None:
    import contextlib
    import io
    import resource
    import time

    from poplar_py.cli.main import run_cli

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        for arguments in json.loads(Path(listed).read_text(encoding="utf-8")):
            err = io.StringIO()
            begin = time.perf_counter()
            with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
                code = run_cli(arguments)
            taken = time.perf_counter() - begin
            out.write(json.dumps([code, err.getvalue()[-4000:], taken]) + "\n")
            out.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
