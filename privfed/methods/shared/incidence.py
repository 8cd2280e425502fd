"""Histories as a sparse matrix of ones, users by items, for the closed forms that are written in it."""

import numpy as np
from scipy.sparse import csr_array

from privfed.data import Histories


def incidence(histories: Histories) -> csr_array:
    """X `[users, items]`, float64: 1 where a user has an item.

    Args:
        histories: of the users; each item once.
    """
    ones = np.ones(len(histories))
    return csr_array((ones, histories.items, histories.indptr), shape=(histories.n_users, histories.n_items))
