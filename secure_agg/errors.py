"""All errors that secure_agg raises on purpose.

There are three families, because a caller reacts to them in three ways: correct the configuration
(`ConfigurationError`), drop the message (`MessageRefused`: the state machine is unchanged), or give up the round
(`RoundAborted`: the state machine has deleted its secrets and answers nothing more).
"""

from collections.abc import Iterable, Mapping


class SecureAggregationError(Exception):
    """Base class of every error that secure_agg raises on purpose."""


class ConfigurationError(SecureAggregationError, ValueError):
    """An invalid setting, or an invalid argument of a library function."""


class RingOverflowError(ConfigurationError):
    """The sum could overflow the ring: too few bits for so many clients at this bound and scale."""


class ShareError(ConfigurationError):
    """Secret shares that do not belong together: wrong number, party, shape or dtype."""


class MessageRefused(SecureAggregationError):
    """A message was refused; nothing changed and nothing was revealed, so the right message may still arrive."""


class MalformedMessage(MessageRefused):
    """The bytes are not a message of this protocol version: wrong length, field or value."""


class StaleMessage(MessageRefused):
    """The message belongs to another run or round: a replay, or a reply that came too late."""


class UnexpectedStage(MessageRefused):
    """The message belongs to another stage than the receiver's current one."""


class WrongParty(MessageRefused):
    """The message names another sender or receiver than its actual ones."""


class DuplicateMessage(MessageRefused):
    """The server already holds this client's message of this stage."""


class AlreadyAnswered(MessageRefused):
    """The client has answered its only unmask request of this round and has deleted the secrets."""


class RoundAborted(SecureAggregationError):
    """The round is over for the party that raised this; its secrets are deleted."""


class TermsRefused(RoundAborted):
    """The server's terms are weaker than the client's own requirements, or contradict themselves."""


class RosterRefused(RoundAborted):
    """The roster is too small or unsorted, lacks the client, or contradicts the graph."""


class KeyRefused(RoundAborted):
    """A public key is of low order, repeated, the client's own, or of the wrong length."""


class SignatureRefused(RoundAborted):
    """A signature is missing, invalid, or made by an unknown identity."""


class SharesRefused(RoundAborted):
    """A relayed share did not decrypt as sent by this neighbour in this round, or shares rebuild another secret.

    Attributes:
        suspects: clients that may have sent wrong shares, and why.
    """

    def __init__(self, message: str, suspects: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.suspects = dict(suspects or {})


class PartiesAccused(RoundAborted):
    """Clients lied: evidence shows it, or more speak against them than can lie. Run the round anew without them.

    Attributes:
        clients: who lied.
    """

    def __init__(self, message: str, clients: Iterable[int]) -> None:
        super().__init__(message)
        self.clients = frozenset(clients)


class UnmaskRefused(RoundAborted):
    """The unmask request would unmask a single client: overlapping, foreign or too few survivors."""


class TooFewClients(RoundAborted):
    """Fewer clients remain than the threshold needs; nothing was unmasked."""
