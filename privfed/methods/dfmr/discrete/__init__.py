"""Discrete federated multi-behaviour recommendation (DFMR): its objective and updates in exact integers.

Pure functions over the arrays of a whole hosted population and a list of called users; outputs are stacked in the
order of that list. Codes are int8, -1 or 1. Nothing here is sent, hidden or drawn: a method decides that.
"""

from privfed.methods.dfmr.discrete.balance import balanced_rows, inverse_root
from privfed.methods.dfmr.discrete.errors import DiscreteError
from privfed.methods.dfmr.discrete.grid import GridError, IntegerGrid
from privfed.methods.dfmr.discrete.item_phase import item_terms, pair_scores, server_field
from privfed.methods.dfmr.discrete.objective import objective
from privfed.methods.dfmr.discrete.start import binarise, binarise_items
from privfed.methods.dfmr.discrete.statistics import UserWeights, field, inertia, weights_of
from privfed.methods.dfmr.discrete.support import EXAMINED, PADDING, PURCHASED, ItemSupport
from privfed.methods.dfmr.discrete.user_phase import update_codes

__all__ = [
    "EXAMINED",
    "PADDING",
    "PURCHASED",
    "DiscreteError",
    "GridError",
    "IntegerGrid",
    "ItemSupport",
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
