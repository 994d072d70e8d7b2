"""Functions of the `.pml` language that are more than one op with its own arguments.

Every model op can also be called by its name, short (`relu`) or full (`nn.relu`): see ops.py. The
functions here give ops the defaults people expect, or compose them. Each family enters its own
into the table.
"""

from __future__ import annotations

from poplar_py.frontends.pml import builtin_layout, builtin_math, builtin_nn
from poplar_py.frontends.pml.builtin_table import BUILTINS

__all__ = ["BUILTINS", "builtin_layout", "builtin_math", "builtin_nn"]
