"""Sums of ring elements between two servers, messages and all, with every party in this process."""

from privfed.contracts import Schema, schema_digest
from privfed.engines.aggregation.masked_sum import MaskedSum
from secure_agg.encoding import RingElements
from secure_agg.two_server import aggregate_between_two

_MIN_CLIENTS = 3
_SUMS_OF_A_QUERY = 1 << 16


class TwoServerSum(MaskedSum):
    """Keeps every client's ring elements and adds them between two servers: one sum, or one for every set of holders.

    Attributes:
        upload_bytes: of all clients so far.
        server_bytes: between the servers so far.
        sums: opened so far, each in one exchange with the clients and one between the servers.
    """

    upload_bytes = 0
    server_bytes = 0
    sums = 0

    def _opened(self, elements: dict[int, RingElements], schema: Schema, number: int = 0) -> RingElements:
        cohort, query_id = self._query.cohort, self._query.query_id
        opened = aggregate_between_two(
            elements,
            bits=self._code.ring.bits,
            min_clients=_MIN_CLIENTS,
            run=self.name(number),
            round=cohort.round,
            query=query_id * _SUMS_OF_A_QUERY + number,
            bound=bytes.fromhex(schema_digest(schema)),
        )
        self.upload_bytes += opened.upload_bytes
        self.server_bytes += opened.server_bytes
        self.sums += 1
        return opened.total
