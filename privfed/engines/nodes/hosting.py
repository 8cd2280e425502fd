"""The party that lives in a folder, as what answers a server there: a node, or the helper."""

from pathlib import Path

from privfed.engines.nodes.helper import Helper
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.party import Party


def hosted(folder: Path | str) -> Node | Helper:
    """The node or the helper whose key, policy and federation file lie in a folder.

    Raises:
        StateError: the folder cannot be read, or the key in it is the server's.
    """
    party = Party.load(Path(folder))
    if party.seat == party.federation.helper_seat:
        return Helper(folder, party=party)
    return Node(folder, party=party)
