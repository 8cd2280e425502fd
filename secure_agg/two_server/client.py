"""A client of two servers: one message, and it may be silent ever after."""

import secrets

from secure_agg.checks import check_integer
from secure_agg.errors import ConfigurationError, StaleMessage, TermsRefused
from secure_agg.primitives.keys import Identity
from secure_agg.primitives.prg import RingElements
from secure_agg.two_server.shares import SEED_BYTES
from secure_agg.two_server.terms import MAX_CLIENTS, SumTerms
from secure_agg.two_server.uploads import make_parts


class SumClient:
    """One client of a run: it holds terms against its own configuration and answers rising numbers only.

    A client that answered one number twice, after it was restored from a backup for instance, would have two vectors
    in the servers' hands: `last` must come from a place that does not go back.

    Args:
        client: its id.
        identity: its signing key, whose public part is in the servers' directory.
        run: run that it takes part in.
        servers: public keys of the two servers, pinned beforehand.
        roster: digest of who takes part, known beforehand.
        min_clients: the smallest sum that it accepts to be in.
        last: round and query that it answered last, `None` before the first.

    Raises:
        ConfigurationError: an id out of its range.
    """

    def __init__(
        self,
        client: int,
        identity: Identity,
        *,
        run: bytes,
        servers: tuple[bytes, bytes],
        roster: bytes,
        min_clients: int,
        last: tuple[int, int] | None = None,
    ) -> None:
        if check_integer("client", client, minimum=0) >= MAX_CLIENTS:
            raise ConfigurationError(f"client is {client}; ids are below {MAX_CLIENTS}")
        self.client, self.last = int(client), last
        self._identity, self._run, self._servers, self._roster = identity, run, servers, roster
        self._min_clients = check_integer("min_clients", min_clients, minimum=2)

    def upload(self, terms: SumTerms, elements: RingElements) -> tuple[bytes, bytes]:
        """The parts for server 0 and server 1: all that this client sends for this sum.

        Args:
            terms: of the sum.
            elements: the client's vector, `[length]`; read as centred integers where the terms bound their norm.

        Raises:
            TermsRefused: other servers, another run or roster, or a smaller sum than this client accepts.
            StaleMessage: a number that this client answered already, or an earlier one.
            ConfigurationError: elements of another ring or length, or outside the bound.
        """
        self.accept(terms)
        terms.ring.check(elements)
        if elements.shape != (terms.length,):
            raise ConfigurationError(f"elements of shape {elements.shape} were given; give ({terms.length},)")
        shares = terms.shares.split(terms.client_context(self.client), elements, secrets.token_bytes(SEED_BYTES))
        self.last = terms.number
        return make_parts(terms, self.client, self._identity, shares)

    def accept(self, terms: SumTerms) -> None:
        """Return quietly where this client would upload under the terms; nothing changes.

        Raises:
            TermsRefused, StaleMessage: as `upload`.
        """
        if terms.run != self._run or terms.servers != self._servers or terms.roster != self._roster:
            raise TermsRefused("the terms name another run, other servers or another roster than this client knows")
        if terms.min_clients < self._min_clients:
            raise TermsRefused(
                f"the terms allow a sum of {terms.min_clients} clients; this client accepts {self._min_clients} or more"
            )
        if self.last is not None and terms.number <= self.last:
            raise StaleMessage(f"round and query {terms.number} do not follow {self.last}, which this client answered")
