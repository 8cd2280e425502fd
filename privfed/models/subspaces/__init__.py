"""Nested subspaces of a table, and who trains in which: FAIR's, and those of its baselines.

Pure functions of a table's size, a level and a seed. Nothing here is drawn from a stream, sent or hidden.
"""

from privfed.models.subspaces.capacities import By, Capacities, Scheme, disclosed
from privfed.models.subspaces.columns import Columns
from privfed.models.subspaces.errors import CapacityError, SubspaceError
from privfed.models.subspaces.low_rank import LowRank
from privfed.models.subspaces.memory import Memory
from privfed.models.subspaces.nesting import collapse, lift
from privfed.models.subspaces.subspace import Kind, Subspace
from privfed.models.subspaces.tiers import Grouping, Short, group_tiers

__all__ = [
    "By",
    "Capacities",
    "CapacityError",
    "Columns",
    "Grouping",
    "Kind",
    "LowRank",
    "Memory",
    "Scheme",
    "Short",
    "Subspace",
    "SubspaceError",
    "collapse",
    "disclosed",
    "group_tiers",
    "lift",
]
