"""FedRecon: matrix factorisation whose user part is rebuilt on the device (Singhal et al., NeurIPS 2021).

No client keeps anything between rounds. In each round it fits a user vector to one half of its samples with the item
table fixed, trains the table on the other half, uploads the table's update and forgets the vector.
"""

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedrecon.client import FedReconClients
from privfed.methods.fedrecon.config import FedReconConfig
from privfed.methods.fedrecon.published import AS_PUBLISHED
from privfed.methods.method import Method, NegativeSampling, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.table_server import TableServer


class FedReconTraining(Training):
    """Item tables are averaged; user vectors are rebuilt on their devices and forgotten."""

    server = TableServer.from_config
    clients = FedReconClients

    def negatives(self, config: FedReconConfig) -> NegativeSampling:
        """Distinct negatives of every positive, drawn once a round."""
        return NegativeSampling(config.negatives)


METHOD = Method(
    name="fedrecon",
    title="matrix factorisation, user vectors rebuilt and forgotten",
    display_name="FedRecon",
    source="FedRecon, Singhal et al., NeurIPS 2021",
    config=FedReconConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=FedReconTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sum of item-vector updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload",
            31.0,
            0.5,
            "half of the median L2 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
        DefaultClip(
            "upload_l1",
            1400.0,
            0.5,
            "half of the median L1 norm of the first uploads on MovieLens-100K, by rule and not by quality",
        ),
    ),
)

__all__ = ["METHOD", "FedReconClients", "FedReconConfig"]
