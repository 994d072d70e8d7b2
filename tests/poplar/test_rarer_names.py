"""Names of Poplar that few programs use: DOT text, type limits, time stamps, rounding, splits."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py import popops, poputil
from poplar_py.diagnostics import OptionError
from poplar_py.poplar import (
    DebugContext,
    Engine,
    FloatingPointBehaviour,
    Graph,
    Target,
    program,
    set_floating_point_behaviour,
    set_stochastic_rounding,
)
from poplar_py.types import bf16, bool_, f16, f32, i8, u64


def small() -> tuple[Graph, program.Sequence]:
    graph, prog = Graph(Target.ipu("gc200", 1, 4)), program.Sequence()
    t = graph.add_variable(f32, (64,), "weights", mapping="linear")
    popops.fill(graph, t, 1.0, prog)
    popops.square(graph, t, prog, "squares")
    return graph, prog


def test_dot() -> None:
    graph, _ = small()
    text = graph.output_compute_graph()
    assert text.startswith("digraph compute {\n")
    assert "weights: f32[64]" in text
    assert "squares" in text
    assert text.count("v0 -> c1") == 1
    vertices = sum(g.n for cs in graph.compute_sets for g in cs.groups)
    assert graph.output_vertex_graph().count("shape=box") == vertices


def test_target() -> None:
    target = Target.ipu("gc200", 1, 4)
    assert target.get_type_limits_max(f16) == 65504
    assert target.get_type_limits_min(f32) == np.finfo(np.float32).min
    assert target.get_type_limits_max(bf16) > 3e38
    assert (target.get_type_limits_min(i8), target.get_type_limits_max(u64)) == (-128, 2**64 - 1)
    assert target.get_type_limits_max(bool_) == 1
    assert target.get_ipu_link_domain_size() >= 1
    assert target.get_ipu_link_topology()


def test_time_stamps() -> None:
    graph, prog = small()
    engine = Engine(graph, prog, threads=1)
    assert engine.get_time_stamp() == 0
    engine.run()
    once = engine.get_time_stamp()
    engine.run()
    assert engine.get_time_stamp() == 2 * once > 0
    assert engine.report_timing(0, once).startswith(f"{once} cycles (")
    report = engine.get_report()
    assert report["programs"] == 2
    assert report["cycles"]["total"] == 2 * once
    engine.close()


def test_rounding() -> None:
    graph, prog = small()
    set_stochastic_rounding(graph, prog, False)
    set_floating_point_behaviour(graph, prog, FloatingPointBehaviour())
    with pytest.raises(OptionError, match="esr"):
        set_stochastic_rounding(graph, prog, True)


def test_splits() -> None:
    graph = Graph(Target.ipu("gc200", 2, 2))
    t = graph.add_variable(f32, (4, 8), "t")
    for row in range(4):
        graph.set_tile_mapping(t[row], row)
    assert poputil.dim_is_split_over_tiles(graph, t, 0)
    assert not poputil.dim_is_split_over_tiles(graph, t, 1)
    assert poputil.dim_is_split_over_ipus(graph, t, 0)
    assert not poputil.dim_is_split_over_ipus(graph, t.slice(0, 2, 0), 0)
    for up in (True, False):
        moved = [poputil.transform_tile_index(i, 7, 3, up) for i in range(7)]
        assert sorted(moved) == list(range(7))
        assert [poputil.inv_transform_tile_index(m, 7, 3, up) for m in moved] == list(range(7))


def test_conv_units_of_the_target() -> None:
    """Units times elements a cycle are the multiply-adds of a tile in a cycle."""
    target = Target.ipu("gc200", 1, 4)
    for partials, activations, macs in ((True, True, 16), (True, False, 32), (False, False, 64)):
        depth = target.get_conv_unit_max_pipeline_depth(activations)
        elements = target.get_conv_unit_input_load_elems_per_cycle(activations)
        assert target.get_weights_per_conv_unit(activations) == depth * elements
        units = target.get_num_conv_units(partials, activations)
        assert units * elements == macs, (partials, activations)
    assert target.get_conv_unit_coeff_load_bytes_per_cycle() > 0
    assert target.get_rpt_count_max() == 4095
    assert target.get_num_stride_bits() == 10
    assert target.get_ipu_link_configuration() == "Default"


def test_debug_contexts() -> None:
    inner = DebugContext(DebugContext("layer"), "weights")
    assert inner.get_path_name() == "layer/weights"
    graph, _ = small()
    assert graph.add_variable(f32, (2,), inner).dtype is f32
    assert graph.variables[-1].name == "layer/weights"
