"""`python -m poplar_py`: the command line."""

from __future__ import annotations

from poplar_py.cli.main import main

if __name__ == "__main__":
    main()
