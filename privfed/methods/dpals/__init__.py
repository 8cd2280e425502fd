"""`dpals`: matrix factorisation by alternating least squares, of which only noisy sums ever leave the devices.

Chien, Jain, Krichene, Rendle, Song, Thakurta and Zhang, "Private Alternating Least Squares: Practical Private Matrix
Completion with Tighter Rates", ICML 2021: item factors are public and private, user factors stay on the devices (joint
differential privacy). All queries of a run go to one sampled cohort and divide one clip norm: popularity, which chooses
the head, and then, pass after pass, sums over users who have solved for their own vectors.

Differences from the paper, each a setting or stated here. Vectors of users are unit vectors, not clipped ones. Instead
of sampling at most so many items per user, a user's weights have norm 1, and popular items weigh less among them (as in
Krichene, Jain, Song, Sundararajan, Thakurta and Zhang, "Multi-Task Differential Privacy Under Distribution Skew", ICML
2023). By default no Gram matrix per item is collected (`item_gram_share`), because its noise costs more accuracy than
it adds, and the sums that items are solved from are shrunk by what noise adds to their singular values; both chosen on
validation items.
"""

from collections.abc import Sequence

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.attack_surface import NoItemRows
from privfed.methods.dpals.client import DPALSClients
from privfed.methods.dpals.config import DPALSConfig, DPALSConstants
from privfed.methods.dpals.published import AS_PUBLISHED
from privfed.methods.dpals.server import DPALSServer
from privfed.methods.method import Method, PlannedQuery, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.popular_head import ORDER


class DPALSTraining(Training):
    """Sums are released, and the server solves for item vectors; user vectors stay on their devices."""

    server = DPALSServer
    clients = DPALSClients
    step = None
    popularity_order = ORDER
    chunk = 256

    def program(self, server: DPALSServer) -> Sequence[PlannedQuery]:
        """All queries of the one round."""
        return server.program()


METHOD = Method(
    name="dpals",
    title="alternating least squares from noisy sums, user vectors on the devices",
    display_name="DPALS",
    source="DPALS, Chien et al., ICML 2021",
    config=DPALSConfig,
    traits=MethodTraits(release="total", upload="rows", uploads_once=True),
    training=DPALSTraining(),
    attack_surface=NoItemRows(),
    disclosure=ServerReads("sums over everybody: of unit histories, and of unit user vectors, by item and squared"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload",
            1.0,
            1,
            "the queries of a user have a joint norm of 1, whatever the history, so nothing is clipped",
        ),
    ),
)

__all__ = ["METHOD", "DPALSClients", "DPALSConfig", "DPALSConstants", "DPALSServer"]
