"""Machine descriptions, link topology and the cycle model; every figure carries its source."""

from typing import TYPE_CHECKING

from poplar_py.lazy import lazy_names
from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.cycles import CycleModel, ExchangeCost
from poplar_py.target.figures import Figure
from poplar_py.target.lanes import tile_cycles
from poplar_py.target.systems import SYSTEMS, System
from poplar_py.target.target import Target

if TYPE_CHECKING:
    from poplar_py.target.machine_file import load_system

__all__ = [
    "CHIPS",
    "SYSTEMS",
    "Chip",
    "CycleModel",
    "ExchangeCost",
    "Figure",
    "System",
    "Target",
    "load_system",
    "tile_cycles",
]

__getattr__ = lazy_names(__name__, {"poplar_py.target.machine_file": ("load_system",)})
