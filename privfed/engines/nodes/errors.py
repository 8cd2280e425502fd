"""What a server and its nodes refuse, by name, and the codes that refusals carry over the wire."""

from enum import StrEnum
from typing import ClassVar


class RefusalCode(StrEnum):
    """Why a node refuses, for the server to act on; the sentence beside it is for people."""

    REFUSED = "refused"
    UNKNOWN_RUN = "unknown_run"
    BAD_MESSAGE = "bad_message"
    BAD_SIGNATURE = "bad_signature"
    OTHER_FEDERATION = "other_federation"
    OTHER_PROTOCOL = "other_protocol"
    ROLLED_BACK = "rolled_back"
    POLICY = "policy"
    ABORTED_ROUND = "aborted_round"
    NODE_FAILED = "node_failed"

    @classmethod
    def from_wire(cls, value: object) -> "RefusalCode":
        """The code in a message; one that is not known here is a plain refusal."""
        return cls(value) if isinstance(value, str) and value in list(cls) else cls.REFUSED


class NodesError(ValueError):
    """Base of every named error of a federation over processes.

    Attributes:
        code: with which a node refuses because of it.
        general: what a peer is told instead of the sentence, which may name files of this machine; empty where the
            sentence is made for peers and names nothing but what they sent, what was announced, and the policy.
    """

    code: ClassVar[RefusalCode] = RefusalCode.REFUSED
    general: ClassVar[str] = "this party cannot do what was requested; its own log says why"

    @property
    def public(self) -> str:
        """What a peer is told."""
        return self.general or str(self)


class MessageError(NodesError):
    """Bytes that are no message, or a message that does not belong here; whoever got them is where it was."""

    code = RefusalCode.BAD_MESSAGE
    general = ""


class UnknownRunError(MessageError):
    """A request of a run that was not announced to this node."""

    code = RefusalCode.UNKNOWN_RUN

    def __init__(self) -> None:
        super().__init__("the request is of a run that was not announced to this node; announce it first")


class SignatureError(MessageError):
    """A message that its sender did not sign, or signed for another federation."""

    code = RefusalCode.BAD_SIGNATURE


class OtherFederationError(MessageError):
    """A run of another version of the federation file than this party pins."""

    code = RefusalCode.OTHER_FEDERATION


class OtherProtocolError(MessageError):
    """A version of the messages that the two parties do not both speak, or did not choose."""

    code = RefusalCode.OTHER_PROTOCOL


class NodeRefused(NodesError):
    """A node does not answer a request, and says why; it keeps the state it had."""

    general = ""


class PolicyRefused(NodeRefused):
    """The node's own policy forbids what the server requests."""

    code = RefusalCode.POLICY


class RolledBackError(NodeRefused):
    """What the node keeps is older than a receipt that it signed: noise of later queries is out already."""

    code = RefusalCode.ROLLED_BACK


class StateError(NodesError):
    """A node's or a server's folder cannot be read or written."""

    general = "this party cannot read or write its own folder; its own log says more"
