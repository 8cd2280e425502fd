"""MetaMF: a network on the server generates every user's item vectors and perceptron (Lin et al., SIGIR 2020).

A device gets its generated model and returns the gradient of its loss by it, which the server takes back through the
network. That needs each user's gradient by itself: a sum over users of gradients by parameters that differ from user to
user says nothing. So no secure sum can stand between, and the server has a vector of every user besides.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.metamf.client import MetaMFClients
from privfed.methods.metamf.config import MetaMFConfig
from privfed.methods.metamf.published import AS_PUBLISHED
from privfed.methods.metamf.server import MetaMFServer
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining


class MetaMFTraining(SampledTraining):
    """Gradients by generated parameters are collected one by one; devices keep their items alone."""

    server = MetaMFServer
    clients = MetaMFClients
    chunk = 256


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
    clip_norms=half_of_median(upload=0.18, upload_l1=1.7),
)

__all__ = ["METHOD", "MetaMFClients", "MetaMFConfig", "MetaMFServer"]
