"""FedRAP: a common item table plus a personal one (Li et al., ICLR 2024).

A score is sigma(w (C + D) + b): only the common table C is shared and averaged, w, b and the personal table D stay on
the device. Two regularisers grow with the rounds: D moves away from C, and C is made sparse.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedrap.client import FedRAPClients, PersonalTablesError
from privfed.methods.fedrap.config import FedRAPConfig
from privfed.methods.fedrap.published import AS_PUBLISHED, AS_RELEASED
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import TableTraining


class FedRAPTraining(TableTraining):
    """Common tables are averaged; personal tables, vectors and biases stay on their devices."""

    clients = FedRAPClients


METHOD = Method(
    name="fedrap",
    title="common item table plus a private personal one",
    display_name="FedRAP",
    source="FedRAP, Li et al., ICLR 2024",
    config=FedRAPConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=FedRAPTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sum of common item-table updates"),
    presets={PUBLISHED: AS_PUBLISHED, "released": AS_RELEASED},
    clip_norms=half_of_median(upload=2.3, upload_l1=180.0),
)

__all__ = ["METHOD", "FedRAPClients", "FedRAPConfig", "PersonalTablesError"]
