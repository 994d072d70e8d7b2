"""ONNX's node cases through the importer and the reference interpreter."""

from __future__ import annotations

import warnings

import node_cases
import pytest

PARTS = 4
KNOWN_TO_DIFFER = ("dft_inverse", "attention_4d_causal_fp16")
REFUSED = ("unsupported-op", "type-mismatch", "draws random numbers")


@pytest.mark.parametrize("part", range(PARTS))
def test_cases_agree(part: int) -> None:
    """A case passes, is refused by name, or is one of the few known to differ."""
    cases = node_cases.all_cases()[part::PARTS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = list(node_cases.run_cases(node_cases.reference, cases))
    bad = [
        f"{o.case}: {o.reason}"
        for o in outcomes
        if not o.passed
        and not o.reason.startswith(REFUSED)
        and not any(k in o.case for k in KNOWN_TO_DIFFER)
        and "labelencoder" not in o.case.replace("_", "")
    ]
    assert not bad, "\n".join(bad)
    assert sum(o.passed for o in outcomes) >= 0.95 * len(outcomes)


def test_enough_cases() -> None:
    """The suite is the one the project quotes."""
    cases = node_cases.all_cases()
    assert len(cases) >= 1884
    assert sum(not c.expanded for c in cases) >= 1404


def test_table(tmp_path: object) -> None:
    """The page names the failing cases with reasons."""
    from pathlib import Path

    outcomes = [
        node_cases.Outcome("test_a", "A", True, "", 3),
        node_cases.Outcome("test_b_expanded", "B", False, "unsupported-op: no"),
    ]
    page = Path(str(tmp_path)) / "page.md"
    node_cases.write_table(outcomes, page)
    text = page.read_text()
    assert "1 of 2 cases pass, 1 of them not `_expanded`" in text
    assert "| test_b_expanded | unsupported-op: no |" in text
    assert "| test_a | 3 |" in text
