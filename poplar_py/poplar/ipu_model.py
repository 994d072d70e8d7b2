"""IPUModel: Poplar's hardware-free model, a chip with some of its figures set by the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from poplar_py.arguments import number, text, whole
from poplar_py.diagnostics import OptionError
from poplar_py.poplar.device import Device
from poplar_py.poplar.enums import RelativeSyncDelayType, TargetType
from poplar_py.poplar.options import ENGINE_OPTIONS, OptionFlags, check_options
from poplar_py.target import Target
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.figures import Figure
from poplar_py.target.systems import SYSTEMS
from poplar_py.target.target import VERSIONS

__all__ = ["IPUModel"]

FIGURES = {
    "num_worker_contexts": "workers",
    "memory_bytes_per_tile": "bytes_per_tile",
    "exchange_bytes_per_cycle": "exchange_bytes_per_cycle",
    "memcpy_bytes_per_cycle": "memcpy_bytes_per_cycle",
    "min_ipu_sync_delay": "sync_internal",
    "global_sync_cycles": "sync_global",
    "tiles_per_super_tile": "tiles_per_exchange_bus",
    "instruction_bytes": "instruction_bytes",
    "fp16_conv_unit_max_pipeline_depth": "conv_depth_f16",
    "fp32_conv_unit_max_pipeline_depth": "conv_depth_f32",
    "fp16_conv_unit_input_load_elems_per_cycle": "conv_elems_f16",
    "fp32_conv_unit_input_load_elems_per_cycle": "conv_elems_f32",
    "fp16_in_fp16_out_conv_units_per_tile": "conv_units_f16_f16",
    "fp16_in_fp32_out_conv_units_per_tile": "conv_units_f16_f32",
    "fp32_in_fp32_out_conv_units_per_tile": "conv_units_f32",
    "conv_unit_coeff_load_bytes_per_cycle": "conv_load_bytes_per_cycle",
    "rpt_count_max": "rpt_count_max",
    "atomic_store_granularity": "atomic_store_bytes",
}
"""Fields that are a figure of the chip."""

UNUSED = (
    "fp8_conv_unit_max_pipeline_depth",
    "fp8_conv_unit_input_load_elems_per_cycle",
    "fp8_in_fp16_out_conv_units_per_tile",
)


@dataclass
class IPUModel:
    """Poplar's hardware-free model with its fields; ``create_device`` gives a device to run on.

    A field left at None keeps the figure of the chip. Unlike Graphcore's model, replication, remote
    buffers and per-tile random seeds work, and exceeding tile memory is an error.
    """

    ipu_version: str = "ipu2"
    num_ipus: int = 1
    tiles_per_ipu: int | None = None
    num_worker_contexts: int | None = None
    memory_bytes_per_tile: int | None = None
    tile_clock_frequency: float | None = None
    exchange_bytes_per_cycle: int | None = None
    memcpy_bytes_per_cycle: int | None = None
    min_ipu_sync_delay: int | None = None
    relative_sync_delay: str = "AUTO"
    """AUTO, or NO_DELAY: tiles of an IPU sync in no time."""
    global_sync_cycles: int | None = None
    tiles_per_super_tile: int | None = None
    supports_super_tile_send_receive: bool = True
    """False: the tiles of a group never receive together, as if each had a bus of its own."""
    interleaved_memory_element_index: int | None = None
    """The memory element that begins the interleaved region; code lies in the elements before."""
    instruction_bytes: int | None = None
    data_path_width: int | None = None
    """In bits."""
    fp16_conv_unit_max_pipeline_depth: int | None = None
    """Steps of a convolution unit's pipeline: weights it holds for each element it takes."""
    fp32_conv_unit_max_pipeline_depth: int | None = None
    fp16_conv_unit_input_load_elems_per_cycle: int | None = None
    fp32_conv_unit_input_load_elems_per_cycle: int | None = None
    fp16_in_fp16_out_conv_units_per_tile: int | None = None
    """Units times elements a cycle are the multiply-adds of a tile in a cycle."""
    fp16_in_fp32_out_conv_units_per_tile: int | None = None
    fp32_in_fp32_out_conv_units_per_tile: int | None = None
    conv_unit_coeff_load_bytes_per_cycle: int | None = None
    rpt_count_max: int | None = None
    atomic_store_granularity: int | None = None
    fp8_conv_unit_max_pipeline_depth: int | None = None
    """The fields of 8-bit floats are accepted for Poplar's sake: no type here uses them."""
    fp8_conv_unit_input_load_elems_per_cycle: int | None = None
    fp8_in_fp16_out_conv_units_per_tile: int | None = None
    compile_ipu_code: bool = False
    """Accepted for Poplar's sake: codelets are always compiled for the host."""

    def chip(self) -> Chip:
        """The chip with this model's figures. Raises OptionError for values out of range."""
        chip = self._base()
        counts = {name: self._count(name) for name in (*FIGURES, *UNUSED, "data_path_width")}
        given: dict[str, float | None] = {FIGURES[name]: counts[name] for name in FIGURES}
        if counts["min_ipu_sync_delay"] is None and self._no_delay():
            given["sync_internal"] = 0
        if not self.supports_super_tile_send_receive:
            given["tiles_per_exchange_bus"] = 1
        width = counts["data_path_width"]
        given["data_path_bytes"] = None if width is None else width // 8
        given["clock"] = self._clock()
        given["code_bytes"], given["interleaved_bytes"] = self._regions(chip)
        figures = chip.figures()
        changes = {
            name: Figure(float(value), figures[name].unit, "IPUModel", "set by the program")
            for name, value in given.items()
            if value is not None
        }
        values = {**{name: getattr(chip, name) for name in figures}, **changes}
        return Chip(name=chip.name, arch=chip.arch, **values)

    def _base(self) -> Chip:
        version = text(self.ipu_version, "the IPU version")
        if version not in VERSIONS:
            known = ", ".join(VERSIONS)
            raise OptionError(f"unknown IPU version {version!r}", remedy=f"one of {known}")
        return CHIPS[VERSIONS[version]]

    def _no_delay(self) -> bool:
        delay = text(self.relative_sync_delay, "the relative sync delay").upper()
        if delay not in list(RelativeSyncDelayType):
            raise OptionError(f"relative sync delay {delay!r}", remedy="AUTO or NO_DELAY")
        return delay == RelativeSyncDelayType.NO_DELAY

    def _count(self, name: str) -> int | None:
        """A field that counts; durations may be 0."""
        value = getattr(self, name)
        if value is None:
            return None
        least = 0 if "sync" in name else 8 if name == "data_path_width" else 1
        if whole(value, f"{name} of an IPU model") < least:
            raise OptionError(f"{name} of an IPU model is {value}", remedy=f"at least {least}")
        return int(value)

    def _clock(self) -> float | None:
        if self.tile_clock_frequency is None:
            return None
        clock = number(self.tile_clock_frequency, "tile_clock_frequency of an IPU model")
        if not 0 < clock < 1e15:
            raise OptionError(f"a tile clock of {clock} Hz", remedy="give it in Hz")
        return clock

    def _regions(self, chip: Chip) -> tuple[int | None, int | None]:
        """Bytes of the code and the interleaved region where the program sets the border."""
        if self.interleaved_memory_element_index is None:
            return None, None
        index = whole(self.interleaved_memory_element_index, "interleaved_memory_element_index")
        total = self.memory_bytes_per_tile or int(chip.bytes_per_tile.value)
        code = index * int(chip.element_bytes.value)
        if not 0 < code < total:
            raise OptionError(
                f"interleaved memory from element {index} on",
                remedy=f"a tile has {total // int(chip.element_bytes.value)} elements",
            )
        return code, total - code

    def create_device(
        self,
        options: Mapping[str, Any] | None = None,
        accurate_half: bool = False,
        *,
        threads: int | None = None,
    ) -> Device:
        """A device of this model. Halves are always accurate here, and the engine options of
        ``options`` count where the engine gets them. ``threads``: as of Device. Raises
        OptionError."""
        check_options(OptionFlags(options), ENGINE_OPTIONS)
        chip = self.chip()
        ipus = whole(self.num_ipus, "the number of IPUs")
        base = SYSTEMS["ipu" if ipus == 1 else "m2000" if ipus <= 16 else "pod64"]
        system = replace(
            base,
            name=f"ipu-model-{self.ipu_version}",
            chip=chip,
            num_ipus=ipus,
            ipus_per_machine=min(ipus, 4),
        )
        target = Target.of(system, ipus, self.tiles_per_ipu)
        return Device(replace(target, target_type=TargetType.IPU_MODEL.value), threads=threads)
