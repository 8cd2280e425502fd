"""FAIR: federated averaging in random subspaces, and what it is compared with.

Devices of unequal memory train one NeuMF. Each keeps its item tables in a hashed subspace as large as it can hold;
the subspaces nest, so what devices of all sizes learnt adds up to one table (FAIR: Federated Averaging in Random
Subspaces). User rows are private and stay on the device; the released code averages whole user tables over clients,
which shows them to the server, and that is not offered.

    fair        devices of a scheme such as 1x-4x, or of budgets in bytes
    hom         everybody at the smallest capacity
    full_trn    only devices that hold everything train
    fedhm       low-rank tables (Yao et al., 2021)
    heterofl    first columns of the tables (Diao et al., ICLR 2021)
    fedavg      everybody holds everything (McMahan et al., AISTATS 2017)

A smaller table gives no privacy: an upload in a subspace still shows which items were touched.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from privfed.contracts import MethodTraits, half_of_median
from privfed.evaluation import Task
from privfed.federation import Message
from privfed.methods.fair.attack_surface import FairSurface
from privfed.methods.fair.client import FairClients
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.disclosure import FairDisclosure
from privfed.methods.fair.memory import DeviceMemory, device_memory
from privfed.methods.fair.published import AS_PUBLISHED
from privfed.methods.fair.server import FairServer
from privfed.methods.fair.training import RatingsError
from privfed.methods.method import Method, NegativeSampling, PlannedQuery, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.warm_start import GramFactors, neural_factorisation


class FairTraining(Training):
    """Devices train in subspaces as large as their memory; the server averages what they have in common."""

    server = FairServer
    clients = FairClients
    chunk = 64
    host_work = "local training"

    def program(self, server: FairServer) -> Sequence[PlannedQuery]:
        """A count of tiers, where there is one, and the training."""
        return server.program()

    def task(self, config: FairConfig) -> Task:
        """Ranking, or predicted ratings, as set."""
        return config.task

    def negatives(self, config: FairConfig) -> NegativeSampling | None:
        """One negative for every positive, drawn anew in every epoch; none where ratings are learned."""
        return NegativeSampling(1, config.epochs) if config.task == "ranking" else None

    def warm_start(self, config: FairConfig, state: Mapping[str, Tensor], message: Message) -> Mapping[str, Tensor]:
        """The table of products at the factors."""
        return neural_factorisation(state, GramFactors.from_message(message, config.dim))


METHOD = Method(
    name="fair",
    title="one model for devices of unequal memory, in nested hashed subspaces",
    display_name="FAIR",
    source="FAIR: Federated Averaging in Random Subspaces",
    config=FairConfig,
    traits=MethodTraits(release="total", upload="dense"),
    training=FairTraining(),
    attack_surface=FairSurface(),
    disclosure=FairDisclosure(),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=half_of_median(upload=1.3, upload_l1=120.0),
)

__all__ = [
    "METHOD",
    "DeviceMemory",
    "FairClients",
    "FairConfig",
    "FairServer",
    "RatingsError",
    "device_memory",
]
