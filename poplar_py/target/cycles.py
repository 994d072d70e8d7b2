"""The cycle model of everything but codelets: exchange, sync, links, host streams, remote memory.

Every number used is a ``Figure`` of the target's chip or system, which names its source. Parts of a
step add: a superstep takes sync, then exchange, then compute of its slowest tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.target.lanes import tile_cycles
from poplar_py.target.target import Target
from poplar_py.target.topology import Routes, routes

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExchangeCost:
    """Cycles of one exchange phase; the rows add."""

    data: int
    """Bytes of the busiest tile at the exchange rate."""
    fragments: int
    """Instructions for data that is scattered in a tile's memory."""
    links: int
    """Time on the busiest link between IPUs, with its hops."""
    sync: int

    @property
    def total(self) -> int:
        return self.data + self.fragments + self.links + self.sync


@dataclass(frozen=True)
class CycleModel:
    """Cycles of a target's phases; see the functions for what they take."""

    target: Target

    @cached_property
    def routes(self) -> Routes:
        """Routes between the target's IPUs."""
        return routes(self.target.system, self.target.num_ipus)

    def to_cycles(self, seconds: float) -> int:
        """Seconds as tile cycles, rounded up."""
        return ceil(seconds * self.target.clock - 1e-9)

    # ------------------------------------------------------------------ exchange
    def tile_exchange_cycles(
        self,
        bytes_in: npt.NDArray[Any],
        bytes_out: npt.NDArray[Any],
        shared_in: npt.NDArray[Any] | None = None,
    ) -> Ints:
        """Cycles each tile's exchange takes: int64[tiles].

        A tile receives and sends 4 bytes a cycle, at the same time. ``shared_in`` bytes (a part of
        ``bytes_in``) are received by both tiles of a pair, which together take them twice as fast.
        """
        rate = int(self.target.chip.exchange_bytes_per_cycle.value)
        tiles = int(self.target.chip.tiles_per_exchange_bus.value)
        into = np.asarray(bytes_in, np.int64)
        if shared_in is not None and tiles > 1:
            shared = np.asarray(shared_in, np.int64)
            cycles_in = -(-(into - shared) // rate) + -(-shared // (rate * tiles))
        else:
            cycles_in = -(-into // rate)
        return np.maximum(cycles_in, -(-np.asarray(bytes_out, np.int64) // rate))

    def exchange(
        self,
        bytes_in: npt.NDArray[Any],
        bytes_out: npt.NDArray[Any],
        *,
        fragments: npt.NDArray[Any] | None = None,
        shared_in: npt.NDArray[Any] | None = None,
        traffic: npt.NDArray[Any] | None = None,
    ) -> ExchangeCost:
        """One exchange phase.

        ``bytes_in``, ``bytes_out`` per tile; ``fragments`` per tile: messages (sent or received,
        the larger) that do not continue the one before in its memory; ``traffic[ipu, ipu]`` bytes
        between IPUs. The slowest tile decides; the fragment row is what fragments add to it.
        """
        data = self.tile_exchange_cycles(bytes_in, bytes_out, shared_in)
        plain = int(data.max(initial=0))
        whole = plain
        if fragments is not None:
            extra = np.asarray(fragments, np.int64) * int(self.target.chip.fragment_cycles.value)
            whole = int((data + extra).max(initial=0))
        links, ipus = 0, 1
        if traffic is not None and self.target.num_ipus > 1 and bool(np.asarray(traffic).any()):
            links = self.link_cycles(traffic)
            ipus = self.target.num_ipus
        return ExchangeCost(plain, whole - plain, links, self.sync_cycles(ipus))

    def link_cycles(self, traffic: npt.NDArray[Any]) -> int:
        """Bytes between IPUs over their links: the busiest link, and the longest way in hops."""
        t = np.array(traffic, np.float64)
        np.fill_diagonal(t, 0)
        used = t > 0
        if not bool(used.any()):
            return 0
        hops = int(self.routes.hops[used].max())
        hop = self.target.system.hop_latency.value
        return self.to_cycles(self.routes.seconds(t) + hops * hop)

    # ------------------------------------------------------------------ sync
    def sync_cycles(self, ipus: int = 1) -> int:
        """A barrier of the tiles of one IPU, or of ``ipus`` linked IPUs.

        Between IPUs the sync goes there and back over ``1 + (ipus / 2) / 2`` hops (poplibs).
        """
        chip = self.target.chip
        if ipus <= 1:
            return int(chip.sync_internal.value)
        hops = 1 + (ipus // 2) // 2
        way = self.to_cycles(2 * hops * self.target.system.hop_latency.value)
        return int(chip.sync_global.value) + way

    def host_sync_cycles(self) -> int:
        """A handshake with the host."""
        return self.to_cycles(self.target.system.host_sync.value)

    # ------------------------------------------------------------------ host and remote memory
    def host_cycles(self, bytes_in: npt.ArrayLike, bytes_out: npt.ArrayLike = 0) -> int:
        """A host exchange: bytes per IPU to and from the device, without its sync.

        Directions overlap; the IPUs of a machine share its network ports.
        """
        system = self.target.system
        ways = ((bytes_in, system.host_rate_in.value), (bytes_out, system.host_rate_out.value))
        slowest = 0.0
        for moved, rate in ways:
            per_ipu = np.atleast_1d(np.asarray(moved, np.float64))
            machine = self._per_machine(per_ipu)
            slowest = max(
                slowest,
                float(per_ipu.max(initial=0)) / rate,
                float(machine.max(initial=0)) / system.host_machine_rate.value,
            )
        return self.to_cycles(slowest)

    def remote_cycles(self, bytes_in: npt.ArrayLike, bytes_out: npt.ArrayLike = 0) -> int:
        """Reading and writing streaming memory: bytes per IPU; a machine's IPUs share its DRAM."""
        system = self.target.system
        total = np.asarray(bytes_in, np.float64) + np.asarray(bytes_out, np.float64)
        machine = self._per_machine(np.atleast_1d(total))
        if not bool(machine.any()):
            return 0
        seconds = float(machine.max()) / system.remote_rate.value + system.remote_latency.value
        return self.to_cycles(seconds)

    def _per_machine(self, per_ipu: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        machine = np.arange(len(per_ipu)) // self.target.system.ipus_per_machine
        return np.bincount(machine, per_ipu).astype(np.float64)

    # ------------------------------------------------------------------ compute
    def compute_cycles(
        self,
        tile: npt.NDArray[np.integer],
        cycles: Ints,
        multi: npt.NDArray[np.bool_] | None = None,
    ) -> Ints:
        """Cycles of every tile in a compute set; see ``lanes.tile_cycles``."""
        target = self.target
        return tile_cycles(tile, cycles, target.num_tiles, target.num_workers, multi)

    def copy_cycles(self, nbytes: npt.NDArray[Any]) -> Ints:
        """Copies within a tile's memory, per tile, by all workers together.

        A copy call has a fixed part of 288 cycles (ipu21-stack), then 8 bytes a cycle.
        """
        n = np.asarray(nbytes, np.int64)
        rate = int(self.target.chip.memcpy_bytes_per_cycle.value)
        return np.where(n > 0, int(self.target.chip.copy_call.value) + -(-n // rate), 0)
