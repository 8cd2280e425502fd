"""Discrete federated multi-behaviour recommendation (DFMR): its objective and updates in exact integers.

Pure functions over the arrays of a whole hosted population and a list of called users; outputs are stacked in the
order of that list. Codes are int8, -1 or 1. Nothing here is sent, hidden or drawn: a method decides that.
"""

from privfed.models.discrete.balance import balanced_rows, inverse_root
from privfed.models.discrete.errors import DiscreteError
from privfed.models.discrete.grid import Grid, GridError
from privfed.models.discrete.item_phase import item_terms, pair_scores, server_field
from privfed.models.discrete.objective import objective
from privfed.models.discrete.start import binarise, binarise_items
from privfed.models.discrete.statistics import UserWeights, field, inertia, weights_of
from privfed.models.discrete.support import COVER, EXAMINED, PURCHASED, Support
from privfed.models.discrete.user_phase import update_codes

__all__ = [
    "COVER",
    "EXAMINED",
    "PURCHASED",
    "DiscreteError",
    "Grid",
    "GridError",
    "Support",
    "UserWeights",
    "balanced_rows",
    "binarise",
    "binarise_items",
    "field",
    "inertia",
    "inverse_root",
    "item_terms",
    "objective",
    "pair_scores",
    "server_field",
    "update_codes",
    "weights_of",
]
