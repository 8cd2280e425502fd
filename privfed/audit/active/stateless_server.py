"""`StatelessServer`: the base of servers that make queries for an audit, and learn nothing."""

from collections.abc import Mapping

from torch import Tensor

from privfed.federation import Message


class StatelessServer:
    """All of a `Server` but its schema and its rounds."""

    def public(self) -> Message:
        """Nothing."""
        return Message({})

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Nothing."""
        del state
