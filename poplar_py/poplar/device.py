"""Devices, the device manager and IPUModel: the same names as Poplar, all of them simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from poplar_py.diagnostics import OptionError
from poplar_py.target import Target
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.figures import Figure
from poplar_py.target.systems import SYSTEMS

VERSIONS = {"ipu1": "gc2", "ipu2": "gc200", "ipu21": "gc200"}
"""Poplar's IPU versions and the chips that stand for them."""


@dataclass
class Device:
    """Simulated IPUs that an engine can be loaded on.

    Nothing is exclusive: attaching always succeeds. ``threads`` are host threads (None: as many as
    are free); ``replicas`` how many copies of the program run side by side.
    """

    target: Target
    id: int = 0
    threads: int | None = None
    replicas: int = 1
    attached: bool = False

    def get_id(self) -> int:
        return self.id

    def get_target(self) -> Target:
        return self.target

    def attach(self) -> bool:
        """Take the device; always possible here."""
        self.attached = True
        return True

    def is_attached(self) -> bool:
        return self.attached

    def detach(self) -> None:
        self.attached = False

    def reset(self) -> None:
        """A simulated device has no state of its own: it lives in the engine."""

    def supports_remote_buffers(self) -> bool:
        return True

    def create_virtual_device(self, tiles_per_ipu: int) -> Device:
        """The same IPUs with fewer tiles each."""
        return replace(self, target=self.target.virtual(tiles_per_ipu))

    def get_attributes(self) -> dict[str, str]:
        """What identifies the device."""
        t = self.target
        return {
            "system": t.system.name,
            "IPU version": t.get_target_arch_string(),
            "num IPUs": str(t.num_ipus),
            "tiles per IPU": str(t.tiles_per_ipu),
            "tile clock frequency": f"{t.clock / 1e6:g}MHz",
            "simulated": "yes",
        }

    @staticmethod
    def create_cpu_device(n: int = 1) -> Device:
        """Poplar's CPU target: one tile, one worker."""
        return Device(Target.cpu(), replicas=n)


class DeviceManager:
    """Lists simulated devices: for every system one device with each of its sub-sizes.

    ``system`` names the machine whose devices are offered (m2000, pod16, ..., or a TOML file).
    Device numbers: 0 to IPUs - 1 are single IPUs, then the groups of 2, 4, ... IPUs.
    """

    def __init__(self, system: str = "m2000") -> None:
        self.system = Target.of(system).system
        self._sizes: list[int] = []
        size = 1
        while size <= self.system.num_ipus:
            self._sizes += [size] * (self.system.num_ipus // size)
            size *= 2

    @staticmethod
    def create_device_manager(system: str = "m2000") -> DeviceManager:
        """As the constructor."""
        return DeviceManager(system)

    def get_num_devices(self) -> int:
        return len(self._sizes)

    def get_device(self, ident: int) -> Device:
        """The device of that number. Raises OptionError."""
        if not 0 <= ident < len(self._sizes):
            raise OptionError(
                f"no device {ident}", remedy=f"{self.system.name} has 0 to {len(self._sizes) - 1}"
            )
        return Device(Target.of(self.system, self._sizes[ident]), ident)

    def get_devices(
        self, target_type: str | None = None, num_ipus: int | None = None
    ) -> list[Device]:
        """All devices, or those of a type (IPU, IPU_MODEL, CPU) and a number of IPUs."""
        kind = "IPU" if target_type is None else target_type.upper()
        if kind == "CPU":
            return [Device.create_cpu_device()]
        found: list[Device] = []
        for ident, size in enumerate(self._sizes):
            if num_ipus is None or size == num_ipus:
                target = Target.of(self.system, size)
                found.append(Device(replace(target, target_type=kind), ident))
        return found

    def acquire_available_device(self, num_ipus: int = 1) -> Device:
        """The first device with that many IPUs. Raises OptionError."""
        found = self.get_devices(num_ipus=num_ipus)
        if not found:
            raise OptionError(
                f"{self.system.name} has no device of {num_ipus} IPUs",
                remedy=f"sizes: {', '.join(map(str, sorted(set(self._sizes))))}",
            )
        return found[0]


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
    compile_ipu_code: bool = False
    """Accepted for Poplar's sake: codelets are always compiled for the host."""

    def chip(self) -> Chip:
        """The chip with this model's figures. Raises OptionError for values out of range."""
        if self.ipu_version not in VERSIONS:
            raise OptionError(
                f"unknown IPU version {self.ipu_version!r}", remedy=f"one of {', '.join(VERSIONS)}"
            )
        if self.relative_sync_delay not in ("AUTO", "NO_DELAY"):
            raise OptionError(
                f"relative sync delay {self.relative_sync_delay!r}", remedy="AUTO or NO_DELAY"
            )
        chip = CHIPS[VERSIONS[self.ipu_version]]
        sync = self.min_ipu_sync_delay
        if sync is None and self.relative_sync_delay == "NO_DELAY":
            sync = 0
        path = None if self.data_path_width is None else self.data_path_width // 8
        bus = self.tiles_per_super_tile if self.supports_super_tile_send_receive else 1
        code, rest = self._regions(chip)
        given = {
            "workers": self.num_worker_contexts,
            "bytes_per_tile": self.memory_bytes_per_tile,
            "clock": self.tile_clock_frequency,
            "exchange_bytes_per_cycle": self.exchange_bytes_per_cycle,
            "memcpy_bytes_per_cycle": self.memcpy_bytes_per_cycle,
            "sync_internal": sync,
            "sync_global": self.global_sync_cycles,
            "tiles_per_exchange_bus": bus,
            "code_bytes": code,
            "interleaved_bytes": rest,
            "instruction_bytes": self.instruction_bytes,
            "data_path_bytes": path,
        }
        changes: dict[str, Figure] = {}
        for name, value in given.items():
            if value is None:
                continue
            if value < (0 if name.startswith("sync") else 1):
                raise OptionError(f"{name} of an IPU model is {value}")
            unit = chip.figures()[name].unit
            changes[name] = Figure(float(value), unit, "IPUModel", "set by the program")
        return _changed(chip, changes)

    def _regions(self, chip: Chip) -> tuple[int | None, int | None]:
        """Bytes of the code and the interleaved region where the program sets the border."""
        index = self.interleaved_memory_element_index
        if index is None:
            return None, None
        total = self.memory_bytes_per_tile or int(chip.bytes_per_tile.value)
        code = index * int(chip.element_bytes.value)
        if not 0 < code < total:
            raise OptionError(
                f"interleaved memory from element {index} on",
                remedy=f"a tile has {total // int(chip.element_bytes.value)} elements",
            )
        return code, total - code

    def create_device(self, threads: int | None = None) -> Device:
        """A device of this model."""
        base = SYSTEMS["ipu" if self.num_ipus == 1 else "m2000" if self.num_ipus <= 16 else "pod64"]
        chip = self.chip()
        system = replace(
            base,
            name=f"ipu-model-{self.ipu_version}",
            chip=chip,
            num_ipus=self.num_ipus,
            ipus_per_machine=min(self.num_ipus, 4),
        )
        target = Target.of(system, self.num_ipus, self.tiles_per_ipu)
        return Device(replace(target, target_type="IPU_MODEL"), threads=threads)


def _changed(chip: Chip, changes: dict[str, Figure]) -> Chip:
    values = {**{name: getattr(chip, name) for name in chip.figures()}, **changes}
    return Chip(name=chip.name, arch=chip.arch, **values)
