"""What a server and its nodes refuse, by name."""


class NodesError(ValueError):
    """Base of every named error of a federation over processes."""


class MessageError(NodesError):
    """Bytes that are no message, or a message that does not belong here; whoever got them is where it was."""


class NodeRefused(NodesError):
    """A node does not do what it was asked, and says why; it keeps the state it had."""


class PolicyRefused(NodeRefused):
    """The node's own policy forbids what the server asks."""


class StateError(NodesError):
    """A node's or a server's folder cannot be read or written."""
