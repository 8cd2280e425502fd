"""GPFedRec: graph-guided personalisation (Zhang et al., KDD 2024)."""

from privfed.methods.gpfedrec.clients import GPFedRecClients
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.server import GPFedRecServer
from privfed.methods.method import Method

METHOD = Method(
    name="gpfedrec",
    title="item tables pulled towards those of similar users",
    source="GPFedRec, Zhang et al., KDD 2024",
    config=GPFedRecConfig,
    release="individual",
    upload="dense",
    server=GPFedRecServer,
    clients=GPFedRecClients,
    reads="every client's whole item table, each round, under a stable pseudonym",
)

__all__ = ["METHOD", "GPFedRecClients", "GPFedRecConfig", "GPFedRecServer"]
