"""What a client insists on, whatever the server proposes.

The server writes the terms; the client holds a floor that came to it another way (its own configuration, not the
server's message) and takes part only in rounds at least as strict.
"""

from dataclasses import dataclass

from secure_agg.encoding import FEWEST_BITS
from secure_agg.errors import ConfigurationError, RosterRefused, TermsRefused
from secure_agg.masking.terms import Suite, Terms


@dataclass(frozen=True, slots=True)
class Floor:
    """The least a client accepts.

    Attributes:
        clients: fewest in a sum, which says the more about each the fewer they are. Held against the roster always,
            and against the survivors where every client is a neighbour and can be seen.
        threshold: shares that rebuild a secret; up to `threshold - 1` neighbours may work for the server.
        neighbours: clients it shares masks with.
        bits: width of a ring word.
        signed: whether keys and survivors must be signed by known identities.
        suites: ciphers it agrees to.
    """

    clients: int
    threshold: int
    neighbours: int = 2
    bits: int = FEWEST_BITS
    signed: bool = False
    suites: frozenset[Suite] = frozenset(Suite)

    def __post_init__(self) -> None:
        for name, number, least in (
            ("clients", self.clients, 3),
            ("threshold", self.threshold, 2),
            ("neighbours", self.neighbours, 2),
        ):
            if number < least:
                raise ConfigurationError(f"the floor for {name} is {number}; below {least} a sum hides nobody")

    def accept_terms(self, terms: Terms) -> None:
        """Return quietly when the terms are strict enough.

        Raises:
            TermsRefused: they are not; the sentence says which and by how much.
        """
        for name, offered, least in (
            ("a threshold", terms.threshold, self.threshold),
            ("words", terms.bits, self.bits),
            ("neighbours", terms.neighbours or self.neighbours, self.neighbours),
        ):
            if offered < least:
                raise TermsRefused(f"the server offers {name} of {offered}; this client's floor is {least}")
        if self.signed and not terms.signed:
            raise TermsRefused("the server offers unsigned terms; this client insists on signatures")
        if terms.suite not in self.suites:
            raise TermsRefused(f"the server offers the {terms.suite.name} suite; this client does not accept it")

    def accept_roster(self, terms: Terms, clients: int) -> None:
        """Return quietly when a roster of this size is large enough.

        Raises:
            RosterRefused: it is not, or the threshold does not fit it.
        """
        if clients < self.clients:
            raise RosterRefused(f"{clients} clients are on the roster; this client's floor is {self.clients}")
        if terms.degree(clients) < self.neighbours:
            raise RosterRefused(
                f"the roster gives {terms.degree(clients)} neighbours; this client's floor is {self.neighbours}"
            )
        if not terms.suffices(clients):
            raise RosterRefused(
                f"a threshold of {terms.threshold} does not keep a client's two secrets apart in a roster of {clients} "
                f"with {terms.degree(clients)} neighbours each"
            )
