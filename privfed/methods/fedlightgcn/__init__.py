"""Federated LightGCN: graph convolution on every user's own graph (a baseline of GPFedRec, Zhang et al., KDD 2024).

Each device propagates LightGCN (He et al., SIGIR 2020) on the star of its user and the user's items; item vectors are
averaged, user vectors stay. On a star all items of a user have the same neighbour, which is why the paper finds the
published form weak.
"""

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedlightgcn.client import FedLightGCNClients
from privfed.methods.fedlightgcn.config import FedLightGCNConfig
from privfed.methods.fedlightgcn.published import AS_PUBLISHED
from privfed.methods.method import Method, NegativeSampling, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.table_server import TableServer


class FedLightGCNTraining(Training):
    """Item vectors are averaged; user vectors and graphs stay on their devices."""

    server = TableServer.from_config
    clients = FedLightGCNClients

    def negatives(self, config: FedLightGCNConfig) -> NegativeSampling:
        """Distinct negatives of every positive, drawn once a round."""
        return NegativeSampling(config.negatives)


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
    clip_norms=(
        DefaultClip(
            "upload",
            190.0,
            0.5,
            "half of the median L2 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
        DefaultClip(
            "upload_l1",
            8100.0,
            0.5,
            "half of the median L1 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
    ),
)

__all__ = ["METHOD", "FedLightGCNClients", "FedLightGCNConfig"]
