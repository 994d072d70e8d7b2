"""How IPUs are linked: a networkx graph per system, routes, and the load traffic puts on links.

Nodes are IPU numbers and, where pods are joined by gateways, ``("gateway", machine)``. An edge has
``links`` (parallel units) and ``rate`` (bytes per second and direction, efficiency included).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from poplar_py.diagnostics import OptionError
from poplar_py.target.systems import System

if TYPE_CHECKING:
    import networkx as nx

Floats = npt.NDArray[np.float64]


def link_graph(system: System, num_ipus: int) -> nx.Graph[Hashable]:
    """The links between the first ``num_ipus`` IPUs of a system (more than it has: it goes on)."""
    import networkx as nx  # a fifth of a second, which one IPU need not spend

    graph: nx.Graph[Hashable] = nx.Graph()
    graph.add_nodes_from(range(num_ipus))
    if system.topology == "custom":
        for a, b, links in (link for link in system.links if max(link[:2]) < num_ipus):
            _link(graph, system, a, b, links)
        return graph
    for first in range(0, num_ipus, system.pod):
        _ladder(graph, system, first, min(first + system.pod, num_ipus))
    if num_ipus > system.pod:
        _join_pods(graph, system, num_ipus)
    return graph


def _link(graph: nx.Graph[Hashable], system: System, a: int, b: int, links: int) -> None:
    rate = links * system.link_rate.value * system.link_efficiency.value
    graph.add_edge(a, b, links=links, rate=rate)


def _ladder(graph: nx.Graph[Hashable], system: System, first: int, last: int) -> None:
    """Two columns: IPUs 2k and 2k+1 are a rung; with ``torus`` both columns are rings."""
    rung, rail = int(system.links_on_rung.value), int(system.links_on_rail.value)
    for i in range(first, last):
        if (i - first) % 2 == 0 and i + 1 < last:
            _link(graph, system, i, i + 1, rung)
        if i + 2 < last:
            _link(graph, system, i, i + 2, rail)
    if system.topology == "torus" and last - first > 4 and (last - first) % 2 == 0:
        for column in (0, 1):
            _link(graph, system, last - 2 + column, first + column, rail)


def _join_pods(graph: nx.Graph[Hashable], system: System, num_ipus: int) -> None:
    """Every machine's gateway reaches its IPUs, and the same machine of the next pod."""
    per_machine, per_pod = system.ipus_per_machine, system.pod
    machines = range(-(-num_ipus // per_machine))
    for m in machines:
        for i in range(m * per_machine, min((m + 1) * per_machine, num_ipus)):
            graph.add_edge(i, ("gateway", m), links=1, rate=system.host_rate_in.value)
        after = m + per_pod // per_machine
        if after in machines:
            graph.add_edge(
                ("gateway", m), ("gateway", after), links=1, rate=system.gateway_rate.value
            )


@dataclass(frozen=True)
class Routes:
    """Shortest routes between all pairs of IPUs.

    ``hops`` int64[n, n]; ``uses`` float64[n * n, directed links]: 1 where the pair's route takes
    the link; ``rate`` float64[directed links] in bytes per second; ``ends`` names the links.
    """

    hops: npt.NDArray[np.int64]
    uses: Floats
    rate: Floats
    ends: tuple[tuple[Any, Any], ...]

    def seconds(self, traffic: npt.NDArray[Any]) -> float:
        """Time of traffic[source, destination] in bytes, all at once: the slowest link."""
        if len(self.rate) == 0:
            return 0.0
        load = traffic.reshape(-1).astype(np.float64) @ self.uses
        return float((load / self.rate).max(initial=0.0))


@lru_cache(maxsize=32)
def routes(system: System, num_ipus: int) -> Routes:
    """Routes over the link graph. Raises OptionError when two IPUs are not connected."""
    import networkx as nx

    graph = link_graph(system, num_ipus)
    ends: list[tuple[Any, Any]] = []
    for a, b in graph.edges():
        ends += [(a, b), (b, a)]
    index = {e: i for i, e in enumerate(ends)}
    rate = np.array([graph.edges[e]["rate"] for e in ends], np.float64)
    hops = np.zeros((num_ipus, num_ipus), np.int64)
    uses = np.zeros((num_ipus * num_ipus, len(ends)))
    for a in range(num_ipus):
        paths = nx.single_source_shortest_path(graph, a)
        for b in range(num_ipus):
            if b not in paths:
                raise OptionError(
                    f"system {system.name!r} has no link from IPU {a} to IPU {b}",
                    remedy="add links to the machine file, or use fewer IPUs",
                )
            hops[a, b] = len(paths[b]) - 1
            uses[a * num_ipus + b, [index[e] for e in pairwise(paths[b])]] = 1
    return Routes(hops, uses, rate, tuple(ends))
