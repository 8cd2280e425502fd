"""FedPerGNN: a graph network on every device (Wu et al., Nature Communications 2022; FedGNN).

A device learns from the graph of its user and the user's items, by attention, and uploads gradients: cut to an L2 norm,
for real and for pseudo-interacted items, with Laplace noise. The paper takes 2 clip / scale as the epsilon of local
differential privacy. It is none: Laplace noise needs a bound on the L1 norm, rows without noise show what was touched,
and epsilon grows with coordinates and rounds. Here the clip and the pseudo items are part of training, the noise is a
plan, and a plan's guarantee says what it is worth.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.fedpergnn.client import FedPerGNNClients
from privfed.methods.fedpergnn.config import FedPerGNNConfig
from privfed.methods.fedpergnn.published import AS_PUBLISHED
from privfed.methods.fedpergnn.server import FedPerGNNServer
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining


class FedPerGNNTraining(SampledTraining):
    """Gradients by item vectors and weights are averaged; user vectors and graphs stay on their devices."""

    server = FedPerGNNServer
    clients = FedPerGNNClients
    chunk = 256


METHOD = Method(
    name="fedpergnn",
    title="graph attention on every user's own graph, with pseudo items",
    display_name="FedPerGNN",
    source="FedPerGNN, Wu et al., Nature Communications 2022",
    config=FedPerGNNConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=FedPerGNNTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sums of gradients by item vectors and by the graph network"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=half_of_median(upload=0.074, upload_l1=1.4),
)

__all__ = ["METHOD", "FedPerGNNClients", "FedPerGNNConfig", "FedPerGNNServer"]
