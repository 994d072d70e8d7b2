"""Target: the machine a graph is built for, as Poplar's Target shows it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

from poplar_py.arguments import text, whole
from poplar_py.diagnostics import OptionError, TypeMismatch
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.systems import SYSTEMS, System
from poplar_py.types import DType, limits

T = TypeVar("T")

VERSIONS = {"ipu1": "gc2", "ipu2": "gc200", "ipu21": "gc200"}
"""Poplar's IPU versions and the chips that stand for them."""

MAX_TILES_PER_IPU = 1 << 16
MAX_IPUS = 1 << 12


def _lookup(table: Mapping[str, T], name: str, what: str) -> T:
    found = table.get(text(name, what))
    if found is not None:
        return found
    near = difflib.get_close_matches(name, table, 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(table)}"
    raise OptionError(f"unknown {what} {name!r}", remedy=remedy)


def _within(value: int, limit: int, what: str) -> int:
    count = whole(value, what)
    if not 1 <= count <= limit:
        raise OptionError(f"{what} is {value}", remedy=f"give a number from 1 to {limit}")
    return count


def _element(dtype: DType) -> DType:
    """Raises TypeMismatch for what is no element type."""
    if not isinstance(cast("object", dtype), DType):
        raise TypeMismatch(f"{dtype!r} is no element type", remedy="for example poplar.FLOAT")
    return dtype


def _named_system(name: str) -> System:
    """A system by name, or from a TOML file."""
    if text(name, "the system").endswith(".toml"):
        from poplar_py.target.machine_file import load_system  # with its TOML reader

        return load_system(name)
    return _lookup(SYSTEMS, name, "system")


@dataclass(frozen=True)
class Target:
    """IPUs of one system: ``num_ipus`` of them with ``tiles_per_ipu`` tiles each.

    Tile ``t`` belongs to IPU ``t // tiles_per_ipu``. The figures behind the properties, with their
    sources, are in ``system`` and ``chip``.
    """

    system: System
    num_ipus: int
    tiles_per_ipu: int
    target_type: str = "IPU"
    """IPU, IPU_MODEL or CPU, as Poplar's TargetType."""

    @staticmethod
    def ipu(chip: str | Chip = "gc200", ipus: int = 1, tiles_per_ipu: int | None = None) -> Target:
        """A target of ``ipus`` linked chips: gc2, gc200 or bow.

        Raises OptionError for an unknown chip or counts out of range.
        """
        known = chip if isinstance(chip, Chip) else _lookup(CHIPS, chip, "chip")
        ipus = _within(ipus, MAX_IPUS, "the number of IPUs")
        base = SYSTEMS["ipu" if ipus == 1 else "m2000" if ipus <= 16 else "pod64"]
        system = replace(
            base, name=known.name, chip=known, num_ipus=ipus, ipus_per_machine=min(ipus, 4)
        )
        return Target.of(system, tiles_per_ipu=tiles_per_ipu)

    @staticmethod
    def of(
        system: str | System, ipus: int | None = None, tiles_per_ipu: int | None = None
    ) -> Target:
        """A target of a whole system, or of its first ``ipus`` IPUs (more are allowed: the links go
        on as they are). Systems: ipu, m2000, bow2000, pod16, pod64, bow-pod64, or one from a file.
        """
        known = system if isinstance(system, System) else _named_system(system)
        n = _within(known.num_ipus if ipus is None else ipus, MAX_IPUS, "the number of IPUs")
        tiles = int(known.chip.tiles.value) if tiles_per_ipu is None else tiles_per_ipu
        return Target(known, n, _within(tiles, MAX_TILES_PER_IPU, "tiles per IPU"))

    @staticmethod
    def cpu() -> Target:
        """One tile with one worker's worth of everything: Poplar's CPU target."""
        return replace(Target.ipu("gc200", 1, 1), target_type="CPU")

    def virtual(self, tiles_per_ipu: int) -> Target:
        """The same IPUs with fewer tiles each (Poplar's createVirtualTarget)."""
        return replace(self, tiles_per_ipu=_within(tiles_per_ipu, MAX_TILES_PER_IPU, "tiles"))

    @property
    def chip(self) -> Chip:
        """The kind of IPU."""
        return self.system.chip

    @cached_property
    def num_tiles(self) -> int:
        """Tiles of all IPUs."""
        return self.num_ipus * self.tiles_per_ipu

    @cached_property
    def num_workers(self) -> int:
        """Worker contexts of a tile."""
        return 1 if self.target_type == "CPU" else int(self.chip.workers.value)

    @cached_property
    def bytes_per_tile(self) -> int:
        """Tile memory in bytes, code included."""
        return int(self.chip.bytes_per_tile.value)

    @cached_property
    def clock(self) -> float:
        """Tile clock in Hz."""
        return self.chip.clock.value

    @cached_property
    def exchange_bytes_per_cycle(self) -> int:
        """Bytes a tile sends, and at the same time receives, in a cycle."""
        return int(self.chip.exchange_bytes_per_cycle.value)

    def get_num_ipus(self) -> int:
        return self.num_ipus

    def get_num_tiles(self) -> int:
        return self.num_tiles

    def get_tiles_per_ipu(self) -> int:
        return self.tiles_per_ipu

    def get_bytes_per_tile(self) -> int:
        return self.bytes_per_tile

    def get_num_worker_contexts(self) -> int:
        return self.num_workers

    def get_tile_clock_frequency(self) -> float:
        return self.clock

    def get_exchange_bytes_per_cycle(self) -> int:
        return self.exchange_bytes_per_cycle

    def get_memcpy_bytes_per_cycle(self) -> int:
        return int(self.chip.memcpy_bytes_per_cycle.value)

    def get_global_sync_cycles(self) -> int:
        return int(self.chip.sync_global.value)

    def get_min_ipu_sync_delay(self) -> int:
        return int(self.chip.sync_internal.value)

    def get_max_ipu_sync_delay(self) -> int:
        return int(self.chip.sync_internal.value)

    def get_data_path_width(self) -> int:
        """Width of the data path in bits."""
        return 8 * int(self.chip.data_path_bytes.value)

    def get_vector_width(self, dtype: DType) -> int:
        """Elements of a type that the data path holds; at least one."""
        return max(1, int(self.chip.data_path_bytes.value) // _element(dtype).size)

    def get_float_vector_width(self) -> int:
        return int(self.chip.data_path_bytes.value) // 4

    def get_half_vector_width(self) -> int:
        return int(self.chip.data_path_bytes.value) // 2

    def get_atomic_store_granularity(self) -> int:
        """Smallest store in bytes that needs no read first."""
        return int(self.chip.atomic_store_bytes.value)

    def get_tiles_per_shared_exchange_bus(self) -> int:
        return int(self.chip.tiles_per_exchange_bus.value)

    def supports_exchange_bus_sharing(self) -> bool:
        return self.get_tiles_per_shared_exchange_bus() > 1

    def get_target_type(self) -> str:
        return self.target_type

    def get_target_arch_string(self) -> str:
        return self.chip.arch

    def get_type_size(self, dtype: DType) -> int:
        """Bytes of an element on the device."""
        return _element(dtype).size

    def get_type_limits_max(self, dtype: DType) -> float | int:
        """Largest finite value of a type."""
        return limits(_element(dtype))[1]

    def get_type_limits_min(self, dtype: DType) -> float | int:
        """Lowest finite value of a type."""
        return limits(_element(dtype))[0]

    def get_ipu_link_topology(self) -> str:
        """How the system links its IPUs: single, ladder, torus or custom."""
        return self.system.topology

    def get_ipu_link_domain_size(self) -> int:
        """IPUs joined by IPU-Links."""
        return self.system.pod

    def get_ipu_link_configuration(self) -> str:
        """How machines are wired into a pod: always Default, straight columns of IPUs."""
        return "Default"

    def get_rpt_count_max(self) -> int:
        """Longest hardware repeat."""
        return int(self.chip.rpt_count_max.value)

    def get_weights_per_conv_unit(self, float_activations: bool) -> int:
        """Weights one convolution unit holds."""
        chip = self.chip
        pair = (chip.conv_depth_f16, chip.conv_elems_f16)
        depth, elems = (chip.conv_depth_f32, chip.conv_elems_f32) if float_activations else pair
        return int(depth.value * elems.value)

    def get_num_conv_units(self, float_partials: bool, float_activations: bool) -> int:
        """Convolution units that work at the same time on the given types."""
        if float_activations:
            return int(self.chip.conv_units_f32.value)
        found = self.chip.conv_units_f16_f32 if float_partials else self.chip.conv_units_f16_f16
        return int(found.value)

    def get_conv_unit_max_pipeline_depth(self, float_activations: bool) -> int:
        """Steps of a convolution unit's pipeline."""
        chip = self.chip
        return int((chip.conv_depth_f32 if float_activations else chip.conv_depth_f16).value)

    def get_conv_unit_input_load_elems_per_cycle(self, float_activations: bool) -> int:
        """Elements of its input a convolution unit takes in a cycle."""
        chip = self.chip
        return int((chip.conv_elems_f32 if float_activations else chip.conv_elems_f16).value)

    def get_conv_unit_coeff_load_bytes_per_cycle(self) -> int:
        return int(self.chip.conv_load_bytes_per_cycle.value)

    def get_num_stride_bits(self) -> int:
        """Bits of the stride of a strided load."""
        return 10

    # ------------------------------------------------------------------ Poplar's makers
    @staticmethod
    def create_cpu_target() -> Target:
        """As `cpu`."""
        return Target.cpu()

    @staticmethod
    def create_ipu_target(
        num_ipus: int = 1, tiles_per_ipu: int | str | None = None, arch: str = "ipu2"
    ) -> Target:
        """A target by Poplar's IPU version (ipu1, ipu2, ipu21) or by a chip's name; the tiles may
        be left out: ``create_ipu_target(2, "ipu2")``. Raises OptionError."""
        if isinstance(tiles_per_ipu, str):
            tiles_per_ipu, arch = None, tiles_per_ipu
        chip = VERSIONS.get(text(arch, "the architecture"), arch)
        return Target.ipu(chip, num_ipus, tiles_per_ipu)

    def create_virtual_target(
        self, num_ipus: int | None = None, tiles_per_ipu: int | None = None
    ) -> Target:
        """Fewer of the IPUs, with fewer tiles each. Raises OptionError."""
        n = self.num_ipus if num_ipus is None else _within(num_ipus, self.num_ipus, "IPUs")
        tiles = self.tiles_per_ipu if tiles_per_ipu is None else tiles_per_ipu
        return replace(self, num_ipus=n, tiles_per_ipu=_within(tiles, self.tiles_per_ipu, "tiles"))
