"""FedNCF: neural collaborative filtering with private user vectors (Perifanis and Efraimidis, KBS 2022).

Clients share the item table and the perceptron; the user vector stays on the device. The server averages both.
"""

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedncf.client import FedNCFClients
from privfed.methods.fedncf.config import FedNCFConfig
from privfed.methods.fedncf.published import AS_PUBLISHED
from privfed.methods.fedncf.server import FedNCFServer
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining


class FedNCFTraining(SampledTraining):
    """Item table and perceptron are averaged; user vectors stay on their devices."""

    server = FedNCFServer
    clients = FedNCFClients


METHOD = Method(
    name="fedncf",
    title="neural collaborative filtering, private user vectors",
    display_name="FedNCF",
    source="FedNCF, Perifanis and Efraimidis, Knowledge-Based Systems 2022",
    config=FedNCFConfig,
    traits=MethodTraits(release="total", upload="rows", interaction_level=True),
    training=FedNCFTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sums of item-table and perceptron updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip("upload", 10.0, 0.3, "best of three by validation NDCG@20 at epsilon 8 on MovieLens-100K"),
        *half_of_median(upload_l1=1200.0),
    ),
)

__all__ = ["METHOD", "FedNCFClients", "FedNCFConfig", "FedNCFServer"]
