"""FedRecon: matrix factorisation whose user part is rebuilt on the device (Singhal et al., NeurIPS 2021).

No client keeps anything between rounds. In each round it fits a user vector to one half of its samples with the item
table fixed, trains the table on the other half, uploads the table's update and forgets the vector.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedrecon.client import FedReconClients
from privfed.methods.fedrecon.config import FedReconConfig
from privfed.methods.fedrecon.published import AS_PUBLISHED
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import TableTraining


class FedReconTraining(TableTraining):
    """Item tables are averaged; user vectors are rebuilt on their devices and forgotten."""

    clients = FedReconClients


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
    clip_norms=half_of_median(upload=3.3, upload_l1=140.0),
)

__all__ = ["METHOD", "FedReconClients", "FedReconConfig"]
