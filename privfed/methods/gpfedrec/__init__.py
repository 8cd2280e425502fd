"""GPFedRec: graph-guided personalisation (Zhang et al., KDD 2024)."""

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Message
from privfed.methods.gpfedrec.clients import GPFedRecClients
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.server import GPFedRecServer
from privfed.methods.method import Method


def personal_direction(message: Message, positions: Int64[Tensor, " n"]) -> Float[Tensor, "n items dim"]:
    """What the server asks each client's table to move towards: its target minus the global table."""
    return message.personal["targets"][positions] - message.shared["items"]


METHOD = Method(
    name="gpfedrec",
    title="item tables pulled towards those of similar users",
    source="GPFedRec, Zhang et al., KDD 2024",
    config=GPFedRecConfig,
    release="individual",
    upload="dense",
    server=GPFedRecServer,
    clients=GPFedRecClients,
    pull=personal_direction,
    reads="every client's whole item table, each round, under a stable pseudonym",
    chunk=256,
)

__all__ = ["METHOD", "GPFedRecClients", "GPFedRecConfig", "GPFedRecServer"]
