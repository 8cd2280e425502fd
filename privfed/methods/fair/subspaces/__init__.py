"""Nested subspaces of a table, and who trains in which: FAIR's, and those of its baselines.

Pure functions of a table's size, a level and a seed. Nothing here is drawn from a stream, sent or hidden.
"""

from privfed.methods.fair.subspaces.capacities import By, Capacities, Scheme, disclosed
from privfed.methods.fair.subspaces.columns import Columns
from privfed.methods.fair.subspaces.errors import CapacityError, SubspaceError
from privfed.methods.fair.subspaces.low_rank import LowRankTables
from privfed.methods.fair.subspaces.memory import SubspaceMemory
from privfed.methods.fair.subspaces.nesting import collapse, lift
from privfed.methods.fair.subspaces.subspace import Kind, Subspace
from privfed.methods.fair.subspaces.tiers import Grouping, Short, group_tiers

__all__ = [
    "By",
    "Capacities",
    "CapacityError",
    "Columns",
    "Grouping",
    "Kind",
    "LowRankTables",
    "Scheme",
    "Short",
    "Subspace",
    "SubspaceError",
    "SubspaceMemory",
    "collapse",
    "disclosed",
    "group_tiers",
    "lift",
]
