"""eALS and VALS, trained centrally: what matrix factorisation with a closed form reaches without federation.

eALS (He et al., SIGIR 2016) learns from purchases, VALS (Ding et al., IJCAI 2018) also from what users examined.
They have no privacy by design. In round 0 every client of the cohort sends its whole lists as one row over the
catalogue; from then on the server solves alone, one pass over users and items per round. It sends the items' factors
and weights, and each device solves for its own.
"""

from privfed.methods.method import Method
from privfed.methods.references.als.clients import ALSClients
from privfed.methods.references.als.config import EALSConfig, VALSConfig
from privfed.methods.references.als.server import HISTORY, ALSServer

EALS = Method(
    name="eals",
    title="matrix factorisation by least squares, trained centrally on everybody's purchases",
    source="eALS, He et al., SIGIR 2016",
    config=EALSConfig,
    release="individual",
    upload="rows",
    server=ALSServer,
    clients=ALSClients,
    reads="every user's whole purchase list",
    step=None,
    uploads_once=True,
    host_work="least squares, for items and for users",
    item_block=HISTORY,
)

VALS = Method(
    name="vals",
    title="matrix factorisation by least squares, trained centrally on everybody's purchases and examinations",
    source="VALS, Ding et al., IJCAI 2018",
    config=VALSConfig,
    release="individual",
    upload="rows",
    server=ALSServer,
    clients=ALSClients,
    reads="every user's whole purchase list and whole list of examinations",
    step=None,
    uploads_once=True,
    host_work="least squares, for items and for users",
    item_block=HISTORY,
)

__all__ = ["EALS", "VALS", "ALSClients", "ALSServer", "EALSConfig", "VALSConfig"]
