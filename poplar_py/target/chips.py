"""Chip descriptions: GC2 (Mk1), GC200 (Mk2) and Bow, each figure with its source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from poplar_py.target.figures import Figure, bytes_, count, cycles, figures_of, hertz, per_cycle

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """One kind of IPU. Durations are in tile cycles."""

    name: str
    arch: str
    """Poplar's architecture string: ipu1, ipu2."""
    tiles: Figure
    workers: Figure
    clock: Figure
    bytes_per_tile: Figure
    memory_base: Figure
    """Address of the first byte of tile memory."""
    code_bytes: Figure
    """Region 0, from the base: the only place instructions run from."""
    interleaved_bytes: Figure
    """Region 1: pairs of memory elements, 128-bit loads."""
    element_bytes: Figure
    """One memory element (bank): two accesses in a cycle conflict."""
    data_path_bytes: Figure
    load_bytes_per_cycle: Figure
    store_bytes_per_cycle: Figure
    memcpy_bytes_per_cycle: Figure
    copy_call: Figure
    """Fixed part of a copy within a tile by all workers."""
    exchange_bytes_per_cycle: Figure
    """Into and out of a tile at the same time."""
    tiles_per_exchange_bus: Figure
    """Tiles of one group may receive the same data together at a multiple of the rate."""
    fragment_cycles: Figure
    """Per fragment that does not continue the one before in the tile's own memory."""
    sync_internal: Figure
    """Sync of one IPU's tiles."""
    sync_global: Figure
    """Sync of tiles of several IPUs, without the hops between them."""
    conv_units_f16_f16: Figure
    """Convolution units for halves into halves."""
    conv_units_f16_f32: Figure
    conv_units_f32: Figure
    conv_depth_f16: Figure
    """Steps of a unit's pipeline: weights it holds for each element of its input."""
    conv_depth_f32: Figure
    conv_elems_f16: Figure
    """Elements of its input a unit takes in a cycle."""
    conv_elems_f32: Figure
    conv_load_bytes_per_cycle: Figure
    """Coefficients into the units."""
    rpt_count_max: Figure
    """Longest hardware repeat."""
    atomic_store_bytes: Figure
    """Smallest store that needs no read first."""
    instruction_bytes: Figure
    worker_scratch_bytes: Figure

    def figures(self) -> dict[str, Figure]:
        """All figures by name."""
        return figures_of(self)

    @property
    def mac_f16_f16(self) -> Figure:
        """Multiply-adds of halves into halves, per cycle and tile."""
        return _mac(self.conv_units_f16_f16, self.conv_elems_f16)

    @property
    def mac_f16_f32(self) -> Figure:
        """Multiply-adds of halves into floats, per cycle and tile."""
        return _mac(self.conv_units_f16_f32, self.conv_elems_f16)

    @property
    def mac_f32(self) -> Figure:
        """Multiply-adds of floats, per cycle and tile."""
        return _mac(self.conv_units_f32, self.conv_elems_f32)


def _mac(units: Figure, elems: Figure) -> Figure:
    return Figure(units.value * elems.value, "MAC/cycle/tile", "derived", "units by elements")


GC200 = Chip(
    name="gc200",
    arch="ipu2",
    tiles=count(1472, "datasheet"),
    workers=count(6, "user-guide"),
    clock=hertz(1.325e9, "datasheet", "some logs say 1.33 GHz"),
    bytes_per_tile=bytes_(624 * KIB, "datasheet", "897 MiB over 1472 tiles; 0x4C000 to 0xE7FFF"),
    memory_base=Figure(0x4C000, "", "analyser", "first address of region 0"),
    code_bytes=bytes_(208 * KIB, "analyser", "region 0: 0x4C000 to 0x7FFFF"),
    interleaved_bytes=bytes_(416 * KIB, "analyser", "region 1: 0x80000 to 0xE7FFF"),
    element_bytes=bytes_(16 * KIB, "analyser"),
    data_path_bytes=bytes_(8, "poplibs", "64-bit: two floats, four halves"),
    load_bytes_per_cycle=per_cycle(16, "user-guide", "128-bit loads from interleaved elements"),
    store_bytes_per_cycle=per_cycle(8, "user-guide"),
    memcpy_bytes_per_cycle=per_cycle(8, "ipu21-stack", "16 where both sides are interleaved"),
    copy_call=cycles(288, "ipu21-stack", "a copy call on six workers"),
    exchange_bytes_per_cycle=per_cycle(4, "datasheet", "8 TB/s = 1472 x 4 B x clock"),
    tiles_per_exchange_bus=count(2, "poplibs", "poplin's exchange estimator"),
    fragment_cycles=cycles(
        1, "chosen", "one instruction; messages that go on in memory cost none (citadel: gather)"
    ),
    sync_internal=cycles(118, "elk", "per exchange phase of one IPU, fitted"),
    sync_global=cycles(600, "ipu21-stack", "budget for a sync that leaves the IPU"),
    conv_units_f16_f16=count(16, "poplibs", "4 cycles for 16 x 16; 249.7 TFLOPS"),
    conv_units_f16_f32=count(8, "poplibs", "8 units of 4"),
    conv_units_f32=count(8, "poplibs", "8 cycles for 8 x 16; 62.4 TFLOPS"),
    conv_depth_f16=count(4, "poplibs", "chains of four"),
    conv_depth_f32=count(4, "poplibs", "chains of four"),
    conv_elems_f16=count(4, "poplibs", "64 bits"),
    conv_elems_f32=count(2, "poplibs", "64 bits"),
    conv_load_bytes_per_cycle=per_cycle(16, "poplibs", "8 without 128-bit loads"),
    rpt_count_max=count(4095, "poplibs", "a field of 12 bits"),
    atomic_store_bytes=bytes_(4, "poplibs", "estimators of multiUpdate"),
    instruction_bytes=bytes_(4, "user-guide", "a dual-issue bundle is two"),
    worker_scratch_bytes=bytes_(48, "user-guide", "WORKER_SCRATCH_SIZE"),
)

BOW = replace(
    GC200, name="bow", clock=hertz(1.85e9, "datasheet", "wafer-on-wafer GC200 at a higher clock")
)

GC2 = replace(
    GC200,
    name="gc2",
    arch="ipu1",
    tiles=count(1216, "citadel"),
    clock=hertz(1.6e9, "citadel"),
    bytes_per_tile=bytes_(256 * KIB, "citadel"),
    memory_base=Figure(0x40000, "", "user-guide", "Mk1 tile memory begins at 256 KiB"),
    code_bytes=bytes_(128 * KIB, "chosen", "half, as the split of Mk1 is not published"),
    interleaved_bytes=bytes_(128 * KIB, "chosen", "the other half"),
    element_bytes=bytes_(32 * KIB, "analyser"),
    exchange_bytes_per_cycle=per_cycle(4, "citadel", "6.315 GB/s a tile measured: 3.95"),
    sync_internal=cycles(90, "poplibs", "assumption of a planner; latency 0.133 us end to end"),
    conv_units_f16_f16=count(8, "poplibs", "as mixed precision: 64 MACs are not reached on Mk1"),
    conv_units_f32=count(4, "poplibs", "31.1 TFLOPS"),
)

CHIPS: dict[str, Chip] = {c.name: c for c in (GC2, GC200, BOW)}
