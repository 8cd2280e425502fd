"""FedCIA: item-item matrices of single clients, averaged (Han et al., SIGIR 2025), in its graph-filter form.

Every user sends x x^T / L, the outer product of its history with itself. The paper adds Laplace noise of scale .001 to
every entry, clips nothing, and calls that local differential privacy; it is noise without a guarantee, and the leading
eigenvector of one upload is the history. `private-gram` sends a vector of the same shape behind a guarantee, and sums.
"""

from privfed.contracts import DefaultClip, MethodTraits
from privfed.methods.fedcia.attack_surface import OuterProducts
from privfed.methods.fedcia.client import FedCIAClients
from privfed.methods.fedcia.config import FedCIAConfig
from privfed.methods.fedcia.published import AS_PUBLISHED
from privfed.methods.fedcia.server import FedCIAServer
from privfed.methods.method import Method, ServerReads, Training
from privfed.methods.preset import PUBLISHED


class FedCIATraining(Training):
    """One sum is released; devices filter their histories with its mean."""

    server = FedCIAServer
    clients = FedCIAClients
    step = None
    chunk = 256
    host_work = "the eigenvectors of the mean matrix"


METHOD = Method(
    name="fedcia",
    title="item-item matrices of single histories, averaged",
    display_name="FedCIA",
    source="FedCIA, Han et al., SIGIR 2025",
    config=FedCIAConfig,
    traits=MethodTraits(release="total", upload="dense", uploads_once=True),
    training=FedCIATraining(),
    attack_surface=OuterProducts(),
    disclosure=ServerReads("the sum of the outer products of all histories with themselves"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload", 1.0, 1, "an outer product over the length of its history has norm 1, whatever the history"
        ),
    ),
)

__all__ = ["METHOD", "FedCIAClients", "FedCIAConfig", "FedCIAServer"]
