"""Everything secure_agg refuses, by name.

Three families, because a caller does three different things about them: mend the set-up (`ConfigurationError`), drop
the message (`MessageRefused`: the state machine is where it was), or give up the round (`RoundAborted`: the state
machine has deleted its secrets and answers nothing more).
"""


class SecureAggregationError(Exception):
    """Root of every error that secure_agg raises on purpose."""


class ConfigurationError(SecureAggregationError, ValueError):
    """A value chosen at set-up, or an argument of a library function, cannot work."""


class HeadroomError(ConfigurationError):
    """The sum could leave the ring: too few bits for so many clients at this bound and scale."""


class ShareError(ConfigurationError):
    """Secret shares do not belong together: wrong number, party, shape or dtype."""


class MessageRefused(SecureAggregationError):
    """A message was not accepted; nothing changed and nothing was revealed, so the right message may still come."""


class MalformedMessage(MessageRefused):
    """The bytes are not a message of this protocol version: wrong length, field or value."""


class StaleMessage(MessageRefused):
    """The message belongs to another run or round: a replay, or a reply that came too late."""


class UnexpectedStage(MessageRefused):
    """The message is of a stage other than the one the receiver stands in."""


class WrongParty(MessageRefused):
    """The message names another sender or receiver than the one it came from or reached."""


class DuplicateMessage(MessageRefused):
    """The server already holds this client's message of this stage."""


class AlreadyAnswered(MessageRefused):
    """The client has answered its one unmask request of this round and has deleted the secrets."""


class RoundAborted(SecureAggregationError):
    """The round is over for whoever raised this; its secrets are deleted."""


class TermsRefused(RoundAborted):
    """The server's terms are weaker than the client's own floor, or contradict themselves."""


class RosterRefused(RoundAborted):
    """The roster is too small, out of order, without the client, or its neighbours are not the ones the graph gives."""


class KeyRefused(RoundAborted):
    """A public key is of low order, repeated, the client's own, or of the wrong length."""


class SignatureRefused(RoundAborted):
    """A signature is missing, by an unknown identity, or wrong."""


class SharesRefused(RoundAborted):
    """A relayed share did not decrypt as sent by this neighbour in this round, or shares rebuild another secret."""


class UnmaskRefused(RoundAborted):
    """The unmask request asks for what would open a single client: overlapping, foreign or too few survivors."""


class TooFewClients(RoundAborted):
    """Fewer clients remain than the threshold needs; nothing was unmasked."""
