"""A client's minimum requirements on a round, whatever the server proposes.

The server writes the terms. The client holds its requirements from another source (its own configuration, not the
server's message) and takes part only in rounds that meet them.
"""

from dataclasses import dataclass

from secure_agg.encoding.ring import MIN_BITS
from secure_agg.errors import ConfigurationError, RosterRefused, TermsRefused
from secure_agg.masking.parameters import GRINDING_BITS, MIN_CIRCLE, log2_insecure
from secure_agg.masking.terms import Suite, Terms


@dataclass(frozen=True, slots=True)
class ClientRequirements:
    """Minimum requirements of a client.

    Attributes:
        min_clients: minimum number of clients in a sum, which reveals the more about each the fewer they are. Checked
            against the roster always, and against the survivors in the complete graph and under signed terms, where
            lists are of all clients.
        min_threshold: minimum number of shares that rebuild a secret; up to `min_threshold - 1` neighbours may collude
            with the server.
        min_neighbours: minimum number of clients that it shares masks with.
        min_bits: minimum width of a ring element.
        require_signatures: whether terms must be signed, so that a server that lies opens nothing. `False` assumes a
            server that follows the protocol: without signatures one that lies opens any client's vector, on a sparse
            graph without a single colluding client. It is for simulations, and for a server that is trusted that far.
        max_corrupt: number of clients that may collude with a server that lies, under signed terms. The server chooses
            the roster, and can invite all of them and few others: so this is their number and no share of all clients.
        security_bits: under signed terms on a sparse graph secrecy fails with probability at most 2^-security_bits,
            against a server that tries 2^64 rosters and rounds for a graph in which its clients stand well.
        suites: accepted cipher suites.
    """

    min_clients: int
    min_threshold: int
    min_neighbours: int = 2
    min_bits: int = MIN_BITS
    require_signatures: bool = True
    max_corrupt: int = 0
    security_bits: int = 40
    suites: frozenset[Suite] = frozenset(Suite)

    def __post_init__(self) -> None:
        for name, number, minimum in (
            ("min_clients", self.min_clients, 3),
            ("min_threshold", self.min_threshold, 2),
            ("min_neighbours", self.min_neighbours, 2),
            ("security_bits", self.security_bits, 1),
        ):
            if number < minimum:
                raise ConfigurationError(f"{name} is {number}; give at least {minimum}, as less hides nobody")

    def check_terms(self, terms: Terms) -> None:
        """Refuse terms that do not meet the requirements.

        Raises:
            TermsRefused: naming the first term that falls short, and by how much.
        """
        for name, offered, minimum in (
            ("a threshold", terms.threshold, self.min_threshold),
            ("ring elements", terms.bits, self.min_bits),
            ("neighbours", terms.neighbours or self.min_neighbours, self.min_neighbours),
        ):
            if offered < minimum:
                raise TermsRefused(f"the server offers {name} of {offered}; this client requires {minimum}")
        if self.require_signatures and not terms.signed:
            raise TermsRefused("the server offers unsigned terms; this client requires signatures")
        if terms.suite not in self.suites:
            raise TermsRefused(f"the server offers the {terms.suite.name} suite; this client does not accept it")

    def check_roster(self, terms: Terms, clients: int) -> None:
        """Refuse a roster of too few clients.

        Raises:
            RosterRefused: the roster is too small, or the threshold does not fit it.
        """
        if clients < self.min_clients:
            raise RosterRefused(f"{clients} clients are on the roster; this client requires {self.min_clients}")
        if terms.degree(clients) < self.min_neighbours:
            raise RosterRefused(
                f"the roster gives {terms.degree(clients)} neighbours; this client requires {self.min_neighbours}"
            )
        if not terms.allows_roster_of(clients):
            raise RosterRefused(
                f"a threshold of {terms.threshold} does not keep a client's two secrets apart in a roster of {clients} "
                f"with {terms.degree(clients)} neighbours each"
                + (f", and signed terms need {MIN_CIRCLE} times as many clients" if terms.signs_inputs else "")
            )
        if terms.signed and not terms.neighbours and terms.max_corrupt(clients) < self.max_corrupt:
            raise RosterRefused(
                f"a threshold of {terms.threshold} in a roster of {clients} lets {terms.max_corrupt(clients)} clients "
                f"collude with the server; this client requires {self.max_corrupt}"
            )
        if terms.signs_inputs:
            self._check_circle(terms, clients)

    def _check_circle(self, terms: Terms, clients: int) -> None:
        insecure = log2_insecure(clients, terms.neighbours, terms.threshold, self.max_corrupt)
        if insecure > -(self.security_bits + GRINDING_BITS):
            raise RosterRefused(
                f"with {self.max_corrupt} colluding clients of {clients}, {terms.neighbours} neighbours and a "
                f"threshold of {terms.threshold} fail with a probability of up to 2^{insecure:.1f} for each graph; "
                f"this client requires 2^-{self.security_bits + GRINDING_BITS}"
            )
