"""The figures of the host that plans assume can be measured."""

from __future__ import annotations

import pytest
from host_costs import MEASURES, one_cycle


@pytest.mark.slow
def test_every_figure_is_measured() -> None:
    cycle = one_cycle(1)
    assert 0 < cycle < 1e-7
    named = {row[0] for measure in MEASURES.values() for row in measure(cycle, 1)}
    assert named == {"LATENCY", "PARTIAL", "WEIGHT_CYCLES", "COPIED", "copy_cost"}
