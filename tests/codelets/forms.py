"""Compile and run one codelet from its source, for tests of the vertex language."""

from __future__ import annotations

import numpy as np

from poplar_py.codegen.run_codelet import Result, run_codelet
from poplar_py.codelets import Codelet, CodeletLibrary
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet


def compiled(source: str, name: str) -> Codelet:
    """An instance whose text form parses back to the same codelet."""
    library = CodeletLibrary()
    library.add_source(source, "forms.py")
    codelet = library.get(name)
    text = print_codelet(codelet.ir)
    again = parse_codelet(text)
    assert print_codelet(again) == text
    assert again.digest == codelet.digest
    return codelet


def run_both(codelet: Codelet, row: dict[str, object]) -> Result:
    """Runs checked and unchecked code, whose bits must agree."""
    first, second = (run_codelet(codelet, row, checked=checked) for checked in (True, False))
    for name, value in first.edges.items():
        for a, b in zip(_arrays(value), _arrays(second[name]), strict=True):
            np.testing.assert_array_equal(a, b)
    assert first.ctx[1] == 0
    return second


def _arrays(value: object) -> list[np.ndarray]:
    return value if isinstance(value, list) else [np.asarray(value)]
