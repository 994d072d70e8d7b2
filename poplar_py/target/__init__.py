"""Machine descriptions, link topology and the cycle model; every figure carries its source."""

from poplar_py.target.chips import CHIPS, Chip
from poplar_py.target.figures import Figure
from poplar_py.target.systems import SYSTEMS, System
from poplar_py.target.target import Target

__all__ = ["CHIPS", "SYSTEMS", "Chip", "Figure", "System", "Target"]
