"""`private-gram`: one noisy item Gram matrix, and recommendations from it that are made on the device.

Every user answers two queries and trains nothing: for the direction of its history, whose sum is the popularity of
items, and for the outer product of what its history has beyond popularity, on the most popular items. Both vectors have
norm 1 whatever the history, so noise on the two sums protects a whole user (where noise drowns popularity, the second
also says which of these items a history has, within the same norm), and all that follows is post-processing:
public content is fitted, eigenpairs that stand out of the noise are kept, shrunk and smoothed, and the device scores
with its own full history, which stays there. What others can learn of a user from everything but that user's own screen
is bounded (joint differential privacy: Kearns, Pai, Roth and Ullman 2014).

The pieces have long been known: a noisy covariance of clipped rows (Blum, Dwork, McSherry and Nissim 2005; McSherry and
Mironov, "Differentially private recommender systems", KDD 2009; Dwork, Talwar, Thakurta and Zhang, STOC 2014) and
shrinkage of eigenpairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from privfed.contracts import DefaultClip, MethodTraits
from privfed.federation import Clients, Server, Streams
from privfed.methods.attack_surface import NoItemRows
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, PlannedQuery, PublicInfo, ServerReads, Training
from privfed.methods.private_gram.client import PrivateGramClients
from privfed.methods.private_gram.config import HeadShown, PrivateGramConfig, PrivateGramConstants
from privfed.methods.private_gram.history_model import GramModel
from privfed.methods.private_gram.refreshed import RefreshedGramClients, RefreshedGramConfig, RefreshedGramServer
from privfed.methods.private_gram.server import NoFeaturesError, PrivateGramServer
from privfed.methods.shared.popular_head import ORDER


class PrivateGramTraining(Training):
    """Two sums are released once; the server estimates, and devices score."""

    server: Callable[[Any, PublicInfo, Streams], Server] = PrivateGramServer
    clients: Callable[[Any, ClientData, Streams], Clients] = PrivateGramClients
    step = None
    popularity_order = ORDER
    post_processing = frozenset({"select", "beyond_head", "smoothing", "year_scale", "rank", "threshold"})
    chunk = 1024
    host_work = "the estimate of the weights from the released sums"
    learns_from_donors = True

    def program(self, server: PrivateGramServer) -> Sequence[PlannedQuery]:
        """All queries of the one round."""
        return server.program()


class RefreshedGramTraining(PrivateGramTraining):
    """Two sums are released at every refresh of a year, under one account."""

    server = RefreshedGramServer
    clients = RefreshedGramClients
    post_processing = frozenset()

    def rounds(self, config: RefreshedGramConfig) -> int:
        """One for each refresh."""
        return config.refreshes


METHOD = Method(
    name="private-gram",
    title="one noisy Gram matrix of items, scored on the device",
    display_name="Private Gram",
    source="noisy item covariance after McSherry and Mironov, KDD 2009, with spiked-model shrinkage and public content",
    config=PrivateGramConfig,
    traits=MethodTraits(release="total", upload="rows", uploads_once=True),
    training=PrivateGramTraining(),
    attack_surface=NoItemRows(),
    disclosure=ServerReads(
        "sums over everybody: of unit histories, and of outer products of centred ones on the most popular items, "
        "beside unit histories over these items where noise drowns popularity"
    ),
    history_model=GramModel,
    clip_norms=(
        DefaultClip(
            "upload",
            1.0,
            1,
            "the queries of a user have a joint norm of 1, whatever the history, so nothing is clipped",
        ),
    ),
    refreshed="private-gram-year",
)

YEAR = replace(
    METHOD,
    name="private-gram-year",
    title="private-gram, published at every refresh of a year for the epsilon of one release",
    display_name="Private Gram, a year",
    source="running totals by the square-root mechanism of Fichtenberger, Henzinger and Upadhyay, 2023",
    config=RefreshedGramConfig,
    traits=MethodTraits(release="total", upload="rows", shares_account=True),
    training=RefreshedGramTraining(),
    disclosure=ServerReads(
        "at every refresh, two sums over everybody: of unit histories, and of outer products of centred ones on the "
        "most popular items"
    ),
    clip_norms=(
        DefaultClip("upload", 1.0, 1, "what a user sends in a year has a joint norm of 1, so nothing is clipped"),
    ),
    refreshed="",
)

__all__ = [
    "METHOD",
    "YEAR",
    "HeadShown",
    "NoFeaturesError",
    "PrivateGramClients",
    "PrivateGramConfig",
    "PrivateGramConstants",
    "PrivateGramServer",
    "RefreshedGramClients",
    "RefreshedGramConfig",
    "RefreshedGramServer",
]
