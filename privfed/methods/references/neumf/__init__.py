"""NeuMF as a reference: matrix factorisation beside a perceptron, trained centrally on sampled negatives.

He et al., WWW 2017 ("neural collaborative filtering", NCF), without pre-training of its two halves.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.federation import Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.neumf.model import NeuMFConfig, logits
from privfed.methods.references.neumf.published import AS_PUBLISHED
from privfed.methods.references.neumf.server import NeuMFServer
from privfed.methods.references.shared.central import CentralTraining
from privfed.methods.references.shared.collecting import HISTORY, POPULARITY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST
from privfed.methods.references.shared.revealing import RevealingClients
from privfed.methods.shared.vae_inputs import OwnRows

_VALUES_AT_ONCE = 2**22


class NeuMFClients(RevealingClients):
    """The clients; a device scores by the row that the server sends to it alone."""

    def __init__(self, config: NeuMFConfig, data: ClientData, streams: Streams) -> None:
        super().__init__(config, data, streams)
        self.config = config

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """Logits, of some clients at a time; popularity for users without a row."""
        items, users = model["items"].unsqueeze(0), model["user"].unsqueeze(1)
        # The first hidden layer has a number per client, item and unit.
        together = max(_VALUES_AT_ONCE // (rows.n_items * max(self.config.hidden)), 1)
        scores = torch.cat([logits(self.config, model, own, items) for own in torch.split(users, together)])
        return torch.where(model["user"].any(1, keepdim=True), scores, model[POPULARITY])


class NeuMFTraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    server = NeuMFServer
    clients = NeuMFClients


METHOD = Method(
    name="neumf",
    title="matrix factorisation beside a perceptron, trained centrally",
    display_name="NeuMF",
    source="NCF, He et al., WWW 2017",
    config=NeuMFConfig,
    traits=CENTRAL,
    training=NeuMFTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)

__all__ = ["METHOD", "NeuMFClients", "NeuMFConfig", "NeuMFServer"]
