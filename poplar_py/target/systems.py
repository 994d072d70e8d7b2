"""Systems: how many IPUs, how they are linked, what lies beside them (hosts, gateways, DRAM)."""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.target.chips import BOW, GC200, Chip
from poplar_py.target.figures import Figure, bytes_, count, figures_of, rate, seconds

GIB = 1 << 30


@dataclass(frozen=True)
class System:
    """A machine of one or more IPUs.

    ``topology`` says how IPUs are linked: ``single``, ``ladder`` (two columns, one rung per pair of
    IPUs), ``torus`` (a ladder whose ends are joined) or ``custom`` (``links`` lists them).
    """

    name: str
    chip: Chip
    num_ipus: int
    ipus_per_machine: int
    """IPUs that share one gateway and its streaming memory."""
    pod: int
    """IPUs joined by IPU-Links; more IPUs form several pods, joined by their gateways."""
    topology: str
    link_rate: Figure
    """Per link unit and direction."""
    links_on_rung: Figure
    """Parallel links between the two IPUs of a rung."""
    links_on_rail: Figure
    """Parallel links between neighbours of a column."""
    link_efficiency: Figure
    hop_latency: Figure
    host_rate_in: Figure
    """Host to device, per IPU."""
    host_rate_out: Figure
    """Device to host, per IPU."""
    host_machine_rate: Figure
    """All IPUs of a machine together, per direction."""
    host_sync: Figure
    """One handshake with the host."""
    remote_rate: Figure
    """Streaming memory (DRAM beside the IPUs), per machine and direction."""
    remote_bytes: Figure
    """Streaming memory per machine."""
    remote_latency: Figure
    gateway_rate: Figure
    """Link between pods, per machine and direction."""
    links: tuple[tuple[int, int, int], ...] = ()
    """``(ipu, ipu, parallel links)`` of a custom topology."""

    def figures(self) -> dict[str, Figure]:
        """All figures of the system by name (the chip's are in ``chip.figures()``)."""
        return figures_of(self)


def _system(name: str, chip: Chip, ipus: int, topology: str) -> System:
    return System(
        name=name,
        chip=chip,
        num_ipus=ipus,
        ipus_per_machine=min(ipus, 4),
        pod=max(ipus, 64),
        topology=topology,
        link_rate=rate(16e9, "poplibs", "a unit of 128 Gb/s, half an IPU-Link"),
        links_on_rung=count(4, "poplibs", "units between a pair: 54 GB/s; citadel measured 55"),
        links_on_rail=count(2, "poplibs", "units up or down: 27.2 GB/s; clt measured 26.5"),
        link_efficiency=Figure(0.85, "", "poplibs", "of the raw rate"),
        hop_latency=seconds(15e-9, "poplibs", "one hop"),
        host_rate_in=rate(8e9, "tutorials", "40 MB in 6.66 M cycles at 1.33 GHz, one IPU"),
        host_rate_out=rate(8e9, "chosen", "as host to device"),
        host_machine_rate=rate(25e9, "datasheet", "two 100 GbE ports to the host, per direction"),
        host_sync=seconds(0.363e-6, "clt", "4095 host syncs in 1485 us"),
        remote_rate=rate(20e9, "cambrian", "sustained, per machine"),
        remote_bytes=bytes_(256 * GIB, "datasheet", "two DDR4 DIMMs per machine, at most"),
        remote_latency=seconds(1e-6, "chosen", "about a DRAM access behind PCIe and a gateway"),
        gateway_rate=rate(25e9, "datasheet", "two 100 GbE ports, 400 Gb/s both directions"),
    )


SYSTEMS: dict[str, System] = {
    s.name: s
    for s in (
        _system("ipu", GC200, 1, "single"),
        _system("m2000", GC200, 4, "ladder"),
        _system("bow2000", BOW, 4, "ladder"),
        _system("pod16", GC200, 16, "ladder"),
        _system("pod64", GC200, 64, "torus"),
        _system("bow-pod64", BOW, 64, "torus"),
    )
}
