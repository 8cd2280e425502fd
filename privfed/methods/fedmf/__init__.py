"""FedMF: federated matrix factorisation with private user vectors (Chai et al., IEEE Intelligent Systems 2021).

The implicit-feedback form used as a baseline by GPFedRec (KDD 2024): sigma(u . v) with binary cross-entropy and
sampled negatives; u never leaves the device, item updates are averaged. The original's homomorphic encryption is a
way to sum, not part of the model.
"""

from jaxtyping import Int64
from pydantic import Field
from torch import Tensor

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import Purpose, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.fedmf.published import AS_PUBLISHED
from privfed.methods.method import Method, MethodConfig, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.heads import LinearHead
from privfed.methods.shared.linear_clients import LinearClients
from privfed.methods.shared.sampled_training import TableTraining


class FedMFConfig(MethodConfig):
    """Settings; learning rates were chosen on validation parts of seven catalogues (`benchmarks.quality.defaults`)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    lr: float = Field(0.1, gt=0, description="base learning rate")
    user_lr_factor: float = Field(20.0, gt=0, description="user learning rate = lr x this")
    item_lr_factor: float = Field(1.0, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")


class FedMFClients(LinearClients):
    """Clients: one vector per user, drawn by the user's own key; vector and items step together."""

    def __init__(self, config: FedMFConfig, data: ClientData, streams: Streams) -> None:
        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim)
            return {"w": vectors.mul_(config.initial_scale)}

        head, lr_user = LinearHead(config.dim, bias=False), config.lr * config.user_lr_factor
        super().__init__(config, data, head, data.private_state(start), lr_head=lr_user, together=True)
        self.config = config


class FedMFTraining(TableTraining):
    """Item vectors are averaged; user vectors stay on their devices."""

    clients = FedMFClients
    chunk = 128


METHOD = Method(
    name="fedmf",
    title="matrix factorisation, private user vectors",
    display_name="FedMF",
    source="FedMF, Chai et al., IEEE Intelligent Systems 2021",
    config=FedMFConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=FedMFTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sum of item-vector updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload",
            20.0,
            1.7,
            "between the best of a grid by validation NDCG@20 at epsilon 8 on MovieLens-100K and on three other "
            "catalogues",
        ),
        *half_of_median(upload_l1=200.0),
    ),
)
