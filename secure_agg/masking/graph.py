"""Who shares masks with whom.

Clients stand in a circle in an order that nobody picks: it follows from the terms and the list of participants. Each is
joined to the same number on either side. With all joined to all, the order does not matter.

The order depends on nothing but the run, the round, the terms and the ids, so that a curious server cannot seat a
client among its friends; one that deviates could try many rosters, which is why signed terms ask for the complete
graph.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova 2020, "Secure single-server aggregation with (poly)logarithmic
overhead", section 3 (the k-regular Harary graph under a random order).
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.keys import derive
from secure_agg.masking.terms import Terms
from secure_agg.prg import random_words

Ids = NDArray[np.unsignedinteger[Any]]


def roster_context(terms: Terms, ids: Ids) -> bytes:
    """32 bytes that stand for terms and participants; keys agreed under another roster differ."""
    return hashlib.sha256(terms.context + ids.astype(">u4").tobytes()).digest()


class Circle:
    """The participants of one round in their circle.

    Args:
        terms: of the round.
        ids: participants in rising order.
    """

    def __init__(self, terms: Terms, ids: Ids) -> None:
        self.ids = ids
        self.context = roster_context(terms, ids)
        self.degree = terms.degree(len(ids))
        words = random_words(len(ids), np.uint64, derive(self.context, 32, label="circle", context=self.context))
        self._seats = np.argsort(words, kind="stable")
        self._seat_of = np.empty_like(self._seats)
        self._seat_of[self._seats] = np.arange(len(ids))

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Ids of a participant's neighbours in rising order."""
        if self.degree == len(self.ids) - 1:
            return tuple(self.ids[self.ids != client].tolist())
        seat = self._seat_of[np.searchsorted(self.ids, client)]
        half = np.arange(1, self.degree // 2 + 1)
        around = np.concatenate([seat - half, seat + half]) % len(self.ids)
        return tuple(np.sort(self.ids[self._seats[around]]).tolist())
