"""`private-autoencoder`: a one-layer autoencoder of the most popular items, trained by noisy sums of unit updates.

DP-FedAvg (McMahan, Ramage, Talwar and Zhang, ICLR 2018) of softmax(b + D tanh(E^T x / |x|)), the autoencoder of
Sedhain et al. (AutoRec, WWW 2015) with Mult-VAE's likelihood (Liang et al., WWW 2018), with three choices that a small
budget rewards: the output bias b is noisy popularity and stays fixed, only the most popular items have weights, and
every user's update is brought to exactly the clip norm, since noise does not care whether it was shorter. One gradient
step per user and query; the server steps with Adam along the sum. All queries of a run go to one sampled cohort and
divide one clip norm.
"""

from collections.abc import Sequence

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.attack_surface import NoItemRows
from privfed.methods.method import Method, PlannedQuery, ServerReads, Training
from privfed.methods.private_autoencoder.client import PrivateAutoencoderClients
from privfed.methods.private_autoencoder.config import PrivateAutoencoderConfig, PrivateAutoencoderConstants
from privfed.methods.private_autoencoder.server import PrivateAutoencoderServer
from privfed.methods.shared.popular_head import ORDER


class PrivateAutoencoderTraining(Training):
    """Unit updates are summed for a fixed number of steps, all in the first round."""

    server = PrivateAutoencoderServer
    clients = PrivateAutoencoderClients
    step = None
    popularity_order = ORDER
    chunk = 256
    # All rows of a call go through one matrix product, whose rounding depends on how many there are.
    bit_parity = False

    def program(self, server: PrivateAutoencoderServer) -> Sequence[PlannedQuery]:
        """All queries of the one round."""
        return server.program()


METHOD = Method(
    name="private-autoencoder",
    title="one-layer autoencoder with a fixed popularity bias, trained by noisy sums of unit updates",
    display_name="Private autoencoder",
    source="DP-FedAvg, McMahan et al., ICLR 2018, of an AutoRec, Sedhain et al., WWW 2015",
    config=PrivateAutoencoderConfig,
    traits=MethodTraits(release="total", upload="dense", uploads_once=True),
    training=PrivateAutoencoderTraining(),
    attack_surface=NoItemRows(),
    disclosure=ServerReads("sums over everybody: of unit histories, and of unit updates of an autoencoder"),
    clip_norms=(
        DefaultClip(
            "upload",
            1.0,
            1,
            "the queries of a user have a joint norm of 1, whatever the history, so nothing is clipped",
        ),
    ),
)

__all__ = [
    "METHOD",
    "PrivateAutoencoderClients",
    "PrivateAutoencoderConfig",
    "PrivateAutoencoderConstants",
    "PrivateAutoencoderServer",
]
