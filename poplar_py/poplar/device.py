"""Devices, the device manager and IPUModel: the same names as Poplar, all of them simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from poplar_py.arguments import text, whole
from poplar_py.diagnostics import OptionError
from poplar_py.poplar.enums import TargetType
from poplar_py.target import Target


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
        if not 1 <= whole(n, "the number of replicas") <= 1 << 16:
            raise OptionError(f"{n} replicas", remedy="give a number from 1 to 65536")
        return Device(Target.cpu(), replicas=n)

    @staticmethod
    def create_simulator_device(target: Target | None = None) -> Device:
        """As any device here: IPUs of a target (by default one GC200), simulated."""
        found = Target.ipu() if target is None else target
        if not isinstance(cast("object", found), Target):
            raise OptionError(f"a device of {target!r}", remedy="give a Target")
        return Device(found)


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
        ident = whole(ident, "the number of a device")
        if not 0 <= ident < len(self._sizes):
            raise OptionError(
                f"no device {ident}", remedy=f"{self.system.name} has 0 to {len(self._sizes) - 1}"
            )
        return Device(Target.of(self.system, self._sizes[ident]), ident)

    def get_devices(
        self, target_type: str | None = None, num_ipus: int | None = None
    ) -> list[Device]:
        """All devices, or those of a type (IPU, IPU_MODEL, CPU) and a number of IPUs."""
        kind = "IPU" if target_type is None else text(target_type, "a target type").upper()
        if kind not in list(TargetType):
            known = ", ".join(TargetType)
            raise OptionError(f"unknown target type {target_type!r}", remedy=f"one of {known}")
        if num_ipus is not None:
            num_ipus = whole(num_ipus, "a number of IPUs")
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
