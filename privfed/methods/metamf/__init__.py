"""MetaMF: a network on the server generates every user's item vectors and perceptron (Lin et al., SIGIR 2020).

A device gets its generated model and returns the gradient of its loss by it, which the server takes back through the
network. That needs each user's gradient by itself: a sum over users of gradients by parameters that differ from user to
user says nothing. So no secure sum can stand between, and the server has a vector of every user besides.
"""

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.metamf.client import MetaMFClients
from privfed.methods.metamf.config import MetaMFConfig
from privfed.methods.metamf.published import AS_PUBLISHED
from privfed.methods.metamf.server import MetaMFServer
from privfed.methods.method import Method, NegativeSampling, ServerReads, Training
from privfed.methods.preset import PUBLISHED


class MetaMFTraining(Training):
    """Gradients by generated parameters are collected one by one; devices keep their items alone."""

    server = MetaMFServer
    clients = MetaMFClients
    chunk = 256
    # Tiles are padded to their longest list of samples, and sums round by how long that is.
    bit_parity = False

    def negatives(self, config: MetaMFConfig) -> NegativeSampling:
        """Distinct negatives of every positive, drawn once a round."""
        return NegativeSampling(config.negatives)


METHOD = Method(
    name="metamf",
    title="item vectors and perceptrons generated on the server, one set per user",
    display_name="MetaMF",
    source="MetaMF, Lin et al., SIGIR 2020",
    config=MetaMFConfig,
    traits=MethodTraits(release="individual", upload="rows"),
    training=MetaMFTraining(),
    attack_surface=NamedBlocks("left", scores_are_logits=True),
    disclosure=ServerReads("every client's gradient by its item vectors, each round, under a stable pseudonym"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload",
            0.18,
            0.5,
            "half of the median L2 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
        DefaultClip(
            "upload_l1",
            1.7,
            0.5,
            "half of the median L1 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
    ),
)

__all__ = ["METHOD", "MetaMFClients", "MetaMFConfig", "MetaMFServer"]
