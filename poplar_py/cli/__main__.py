"""`python -m poplar_py.cli` is the `poplar-py` command."""

from __future__ import annotations

from poplar_py.cli.main import main

main()
