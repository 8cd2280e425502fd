"""Keys, codes and announced rows of the secret-shared sums of one run.

Keys follow from the simulation's seed and addresses from cohort and query, so a resumed run sends the very messages of
the rounds it repeats, and two runs of one seed share their streams: a simulation hides nothing.
"""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int64

from privfed.compute.devices import on_host
from privfed.contracts import Schema
from privfed.data import Histories
from privfed.engines.aggregation.announced_rows import AnnouncedRows
from privfed.federation import SERVER, Purpose, Streams
from privfed.guards.share_code import ShareCode
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from privfed.updates import RowPattern, Rows
from secure_agg.encoding import Ring, RingElements
from secure_agg.sparse import ClientCiphers, ClientRows, KeyStreams, agree_keys, masked_share

_KEY_WORDS = 8


class ShareDealer:
    """Makes the shares of one run.

    Args:
        mechanism: of the plan.
        population: number of users.
        streams: the simulation's keys; clients agree theirs with aggregators from them.
        support: rows that every user announced, padding included; None where clients name the rows they send.
        protocol: whether real shares are made.
    """

    def __init__(
        self, mechanism: SecretSharing, population: int, streams: Streams, support: Histories | None, *, protocol: bool
    ) -> None:
        self.mechanism, self.protocol = mechanism, protocol
        self.announced = AnnouncedRows(support)
        self._population, self._streams = population, streams
        self._ciphers: list[ClientCiphers] = []
        self._lanes: dict[int, list[KeyStreams]] = {}
        self._codes: dict[tuple[Any, ...], ShareCode] = {}
        self._named: WeakKeyDictionary[RowPattern, tuple[ClientRows, Int64[np.ndarray, " clients"]]] = (
            WeakKeyDictionary()
        )

    @property
    def enrolment_bytes(self) -> int:
        """Bytes in which all clients name their rows to all aggregators before the first round."""
        return self.announced.enrolment_bytes * self.mechanism.aggregators

    def code(self, schema: Schema, max_clients: int) -> ShareCode:
        """The code of a query; see `ShareCode` for what is refused."""
        key = tuple(schema.items())
        if key not in self._codes:
            self._codes[key] = ShareCode(self.mechanism, schema, max_clients)
        return self._codes[key]

    def named(
        self, part: Rows, clients: Int64[np.ndarray, " clients"], rows: int
    ) -> tuple[ClientRows, Int64[np.ndarray, " clients"]]:
        """The rows of a table that these clients name, and how many each does; one pattern is counted once."""
        known = None if part.pattern is None else self._named.get(part.pattern)
        if known is None or known[0].rows != rows or not np.array_equal(known[0].clients, clients):
            counts = np.bincount(on_host(part.owner), minlength=len(clients))
            known = ClientRows(clients, on_host(part.ids), rows), counts
            if part.pattern is not None:
                self._named[part.pattern] = known
        return known

    def split(
        self,
        lane: int,
        address: tuple[int, int],
        clients: Int64[np.ndarray, " clients"],
        counts: Int64[np.ndarray, " clients"],
        ring_elements: RingElements,
    ) -> list[RingElements]:
        """Every aggregator's share of the ring elements of some clients, `counts[j]` of client `clients[j]`.

        Args:
            lane: which array of the query.
            address: cohort and query.
            clients: ascending.
            counts: number of ring elements of each.
            ring_elements: of one client after another.
        """
        if not self._ciphers:
            key = self._streams.words(Purpose.SHARE, 0, 0, [SERVER], _KEY_WORDS)[0].tobytes()
            keys = agree_keys(self._population, self.mechanism.aggregators, key)
            self._ciphers = [ClientCiphers(of_one) for of_one in keys]
        ring = Ring(self.mechanism.bits)
        if lane not in self._lanes:
            self._lanes[lane] = [KeyStreams(own, ring, lane) for own in self._ciphers]
        # Clients and aggregators generate the same streams from the same keys; in one process once will do.
        taken = [own.take(*address, clients, counts) for own in self._lanes[lane]]
        return [masked_share(ring_elements, taken), *taken]
