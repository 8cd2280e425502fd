"""PFedRec: a shared item table, a private score function (Zhang et al., IJCAI 2023).

Each client alternates two steps per batch: its private linear head, then its copy of the item table. The server
averages the item tables. The released code also uploads the head's bias, which nobody uses; we do not.
"""

from functools import partial

from pydantic import Field

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import PUBLIC, Call, Message, Purpose, Streams, alike
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, MethodConfig, ServerReads
from privfed.methods.pfedrec.published import AS_PUBLISHED
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.heads import LinearHead, kaiming_uniform
from privfed.methods.shared.interaction_dp import InteractionTrainer
from privfed.methods.shared.linear_clients import LinearClients
from privfed.methods.shared.record_gradients import clipped_linear
from privfed.methods.shared.sampled_training import TableTraining
from privfed.updates import ClientUpdates, Dense


class PFedRecConfig(MethodConfig):
    """Settings; `published` has those of the released code.

    Item rate and scale were chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`).
    """

    dim: int = Field(32, ge=1, description="width of an item vector")
    lr: float = Field(0.1, gt=0, description="learning rate of the private head")
    item_lr_factor: float = Field(30.0, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of the initial item table")


class PFedRecClients(LinearClients):
    """Clients: one linear head per user, all from one public copy; heads step first, items see the new ones."""

    noisy = frozenset({"train"})

    def __init__(self, config: PFedRecConfig, data: ClientData, streams: Streams) -> None:
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], config.dim + 1)[0]
        start = {
            "w": kaiming_uniform((config.dim,), config.dim, unit[:-1]),
            "b": kaiming_uniform((1,), config.dim, unit[-1:])[0],
        }
        private = data.private_state(alike(start))
        super().__init__(config, data, LinearHead(config.dim), private, lr_head=config.lr, together=False)
        self.config = config
        rates = {"w": config.lr, "b": config.lr, "items": config.lr * config.item_lr_factor * data.n_items}
        gradients = partial(clipped_linear, self.head)
        self.noisily = InteractionTrainer(data.positives, config.negatives, gradients, rates, config.lr)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch; or the plan's noisy steps, which move head and items together, not one after the other."""
        if call.noisy_steps is None:
            return super().train(call, message)
        heads, changes = self.noisily.train(call, self.private.rows(call.clients), message.shared["items"])
        self.private.stage(call.clients, heads)
        everyone = call.clients.new_tensor(range(len(call.clients)))
        return ClientUpdates(call.clients, call.schema, [Dense("items", everyone, changes)])


class PFedRecTraining(TableTraining):
    """Item tables are averaged; heads stay on their devices."""

    clients = PFedRecClients
    chunk = 128


METHOD = Method(
    name="pfedrec",
    title="shared item table, private linear score function",
    display_name="PFedRec",
    source="PFedRec, Zhang et al., IJCAI 2023",
    config=PFedRecConfig,
    traits=MethodTraits(release="total", upload="rows", interaction_level=True),
    training=PFedRecTraining(),
    attack_surface=NamedBlocks("items", scores_are_logits=True),
    disclosure=ServerReads("the sum of item-table updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip("upload", 10.0, 0.1, "best of five by validation NDCG@20 at epsilon 8 on MovieLens-100K"),
        *half_of_median(upload_l1=5700.0),
    ),
)
