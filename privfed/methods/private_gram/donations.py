"""The answers of donors to the queries of `private-gram`, which the server works out from their open histories."""

import numpy as np
import scipy.sparse as sp
import torch

from privfed.compute.devices import on_host
from privfed.data import Histories
from privfed.federation import Message
from privfed.methods.private_gram.model.pooling import OpenMean
from privfed.methods.private_gram.queries import centred, factors
from privfed.methods.shared.vae_clients import UserRows


class Donations:
    """Open histories, and what they would have contributed.

    Args:
        histories: of the donors.
    """

    def __init__(self, histories: Histories) -> None:
        self.people = histories.n_users
        self._rows = UserRows(histories).select(torch.arange(histories.n_users))

    def popularity(self) -> OpenMean:
        """The mean of unit histories."""
        rows = self._rows
        owner, items, counts = (on_host(t) for t in (rows.owner, rows.items, rows.counts))
        shape = (self.people, rows.n_items)
        return OpenMean.from_vectors(sp.csr_array((1 / np.sqrt(counts[owner]), (owner, items)), shape))

    def gram(self, message: Message, *, diagonal: bool) -> OpenMean:
        """The mean of outer products of centred histories on the head that devices are told of."""
        vectors = centred(self._rows, message)[0]
        weights = on_host(factors(vectors, diagonal=diagonal))
        return OpenMean.from_outer_products(on_host(vectors.double()), weights, diagonal=diagonal)
