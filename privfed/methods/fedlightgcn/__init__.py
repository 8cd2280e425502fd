"""Federated LightGCN: graph convolution on every user's own graph (a baseline of GPFedRec, Zhang et al., KDD 2024).

Each device propagates LightGCN (He et al., SIGIR 2020) on the star of its user and the user's items; item vectors are
averaged, user vectors stay. On a star all items of a user have the same neighbour, which is why the paper finds the
published form weak.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedlightgcn.client import FedLightGCNClients
from privfed.methods.fedlightgcn.config import FedLightGCNConfig
from privfed.methods.fedlightgcn.published import AS_PUBLISHED
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import TableTraining


class FedLightGCNTraining(TableTraining):
    """Item vectors are averaged; user vectors and graphs stay on their devices."""

    clients = FedLightGCNClients


METHOD = Method(
    name="fedlightgcn",
    title="LightGCN on every user's own graph, private user vectors",
    display_name="FedLightGCN",
    source="LightGCN, He et al., SIGIR 2020, federated as a baseline of GPFedRec, Zhang et al., KDD 2024",
    config=FedLightGCNConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=FedLightGCNTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sum of item-vector updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=half_of_median(upload=2.4, upload_l1=170.0),
)

__all__ = ["METHOD", "FedLightGCNClients", "FedLightGCNConfig"]
