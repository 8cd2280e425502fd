"""The communication graph: which clients share masks with which.

Clients are arranged on a circle in a pseudorandom order, and each is joined to the same number on either side (a
k-regular Harary graph). In the complete graph the order does not matter.

The order depends on nothing but run, round, terms and ids, so that a semi-honest server cannot place a client between
colluding ones. A server that deviates chooses round and roster, so it can try many orders before anybody advertises:
the bounds for signed terms on a sparse graph allow for 2^64 of them (`GRINDING_BITS`). It may not choose who colludes
with it after it knows the order.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova 2020, "Secure single-server aggregation with (poly)logarithmic
overhead", section 3 (the k-regular Harary graph under a random order).
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.masking.terms import Terms
from secure_agg.primitives.keys import derive
from secure_agg.primitives.prg import random_uints

Ids = NDArray[np.unsignedinteger[Any]]


def roster_context(terms: Terms, ids: Ids) -> bytes:
    """32 bytes that stand for terms and participants; keys agreed under another roster differ."""
    return hashlib.sha256(terms.context + ids.astype(">u4").tobytes()).digest()


class HararyGraph:
    """The graph over the participants of one round.

    Args:
        terms: terms of the round.
        ids: participants in rising order, `[clients]`.
    """

    def __init__(self, terms: Terms, ids: Ids) -> None:
        self.ids = ids
        self.context = roster_context(terms, ids)
        self.degree = terms.degree(len(ids))
        # Sorting by random 64-bit numbers is a uniform permutation but for ties, which are negligible. `_order` maps a
        # position on the circle to an index into `ids`, `_position` is its inverse.
        ranks = random_uints(len(ids), np.uint64, derive(self.context, 32, label="circle", context=self.context))
        self._order = np.argsort(ranks, kind="stable")
        self._position = np.empty_like(self._order)
        self._position[self._order] = np.arange(len(ids))

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Ids of a participant's neighbours in rising order."""
        if self.degree == len(self.ids) - 1:
            return tuple(self.ids[self.ids != client].tolist())
        position = self._position[np.searchsorted(self.ids, client)]
        distances = np.arange(1, self.degree // 2 + 1)
        around = np.concatenate([position - distances, position + distances]) % len(self.ids)
        return tuple(np.sort(self.ids[self._order[around]]).tolist())
