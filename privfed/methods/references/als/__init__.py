"""eALS and VALS, trained centrally: what matrix factorisation with a closed form reaches without federation.

eALS (He et al., SIGIR 2016) learns from purchases, VALS (Ding et al., IJCAI 2018) also from what users examined.
They have no privacy by design. In round 0 every client of the cohort sends its whole lists as one row over the
catalogue; from then on the server solves alone, one pass over users and items per round. It sends the items' factors
and weights, and each device solves for its own.
"""

from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.als.client import ALSClients
from privfed.methods.references.als.config import EALSConfig, VALSConfig
from privfed.methods.references.als.published import EALS_AS_PUBLISHED, VALS_AS_PUBLISHED
from privfed.methods.references.als.server import HISTORY, ALSServer
from privfed.methods.references.shared.central import CentralTraining


class ALSTraining(CentralTraining):
    """Histories are collected once; the server alternates least squares over users and items, a pass a round."""

    server = ALSServer
    clients = ALSClients
    passes = 16
    host_work = "least squares, for items and for users"


class VALSTraining(ALSTraining):
    """The same with examinations between purchases and everything else."""

    def examined(self, config: VALSConfig, data: ClientData) -> Histories | None:
        """Behaviours that count as examinations; None where the settings name no behaviour."""
        return None if config.examinations == () else data.examined(config.examinations)

    def rows_sent(self, config: VALSConfig, data: ClientData) -> float:
        """Purchases and examinations."""
        return float(data.positives.union(data.examined(config.examinations)).counts.mean())


EALS = Method(
    name="eals",
    title="matrix factorisation by least squares, trained centrally on everybody's purchases",
    display_name="eALS",
    source="eALS, He et al., SIGIR 2016",
    config=EALSConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=ALSTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole purchase list"),
    presets={PUBLISHED: EALS_AS_PUBLISHED},
)

VALS = Method(
    name="vals",
    title="matrix factorisation by least squares, trained centrally on everybody's purchases and examinations",
    display_name="VALS",
    source="VALS, Ding et al., IJCAI 2018",
    config=VALSConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=VALSTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole purchase list and whole list of examinations"),
    presets={PUBLISHED: VALS_AS_PUBLISHED},
)

__all__ = ["EALS", "VALS", "ALSClients", "ALSServer", "EALSConfig", "VALSConfig"]
