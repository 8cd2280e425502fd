"""iALS as a reference: implicit matrix factorisation by alternating least squares, trained centrally.

One round is one pass, users first and then items. The server publishes the items' factors, and every device solves for
its own.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.federation import PUBLIC, Federation, Purpose, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, MethodConfig, PublicInfo, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.ials.published import AS_PUBLISHED
from privfed.methods.references.shared.central import CentralTraining
from privfed.methods.references.shared.collecting import HISTORY, POPULARITY, CollectingServer
from privfed.methods.references.shared.revealing import RevealingClients, or_popular
from privfed.methods.shared.ials import IALSObjective
from privfed.methods.shared.vae_inputs import OwnRows

_OFFSETS, _ITEMS = "lists.offsets", "lists.items"


class IALSConfig(MethodConfig):
    """Settings of iALS; defaults were chosen on the validation items of MovieLens-1M, for 16 rounds."""

    dim: int = Field(64, ge=1, description="width of user and item vectors; the paper's best have hundreds")
    unobserved: float = Field(0.5, gt=0, description="weight of a zero on every pair of user and item")
    regularisation: float = Field(
        0.005, gt=0, description="weight of squared lengths, per interaction where exponent is 1"
    )
    exponent: float = Field(
        1.0, ge=0, description="how regularisation grows with the interactions of a user or item; 0: the same for all"
    )
    initial_scale: float = Field(
        0.1, gt=0, description="standard deviation of initial item vectors times the root of their width"
    )

    @property
    def objective(self) -> IALSObjective:
        """The objective that is minimised."""
        return IALSObjective(self.unobserved, self.regularisation, self.exponent)


class IALSServer(CollectingServer):
    """Server: the items' factors, and the lists that they are learned from round after round.

    Users' factors are not kept: they follow from the items' and are solved anew in every round.
    """

    def __init__(self, config: IALSConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, shape = config, (public_info.n_items, config.dim)
        unit = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], public_info.n_items * config.dim)
        super().__init__(public_info.n_items, {"items": unit.view(shape) * config.initial_scale / config.dim**0.5})
        self.lists = {_OFFSETS: torch.zeros(1, dtype=torch.int64), _ITEMS: torch.zeros(0, dtype=torch.int64)}

    def round(self, federation: Federation, t: int) -> None:
        """Collect every list in round 0; one pass over users and items."""
        if t == 0:
            lists = self.collect(federation, t)
            self.lists = {_OFFSETS: placed(lists.indptr), _ITEMS: placed(lists.items)}
        offsets, items = (on_host(self.lists[name]) for name in (_OFFSETS, _ITEMS))
        self.learn(Histories(offsets, items, len(self.tensors["items"])))

    def fit(self, lists: Histories) -> dict[str, Tensor]:
        """The items' factors after one more pass."""
        objective, items = self.config.objective, self.tensors["items"].double()
        of_item = Histories.from_pairs(lists.items, lists.owners, lists.n_items, lists.n_users)
        return {"items": objective.solve(objective.solve(items, lists), of_item).float()}

    def state(self) -> dict[str, Tensor]:
        """The model, and the lists."""
        return {**super().state(), **self.lists}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.lists = {name: state[name] for name in (_OFFSETS, _ITEMS)}
        super().load({name: value for name, value in state.items() if name not in self.lists})


class IALSClients(RevealingClients):
    """The clients."""

    def __init__(self, config: IALSConfig, data: ClientData, streams: Streams) -> None:
        super().__init__(config, data, streams)
        self.config = config

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """Inner products with the factors that minimise the user's own part of the objective, given the items'."""
        items = model["items"]
        offsets = np.concatenate([[0], on_host(rows.counts.cumsum(0))])
        users = self.config.objective.solve(items.double(), Histories(offsets, on_host(rows.items), rows.n_items))
        return or_popular(users.float() @ items.T, model[POPULARITY])


class IALSTraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    server = IALSServer
    clients = IALSClients
    passes = 16


METHOD = Method(
    name="ials",
    title="implicit matrix factorisation by alternating least squares, trained centrally",
    display_name="iALS",
    source="iALS, Hu et al., ICDM 2008, as set by Rendle et al., RecSys 2022",
    config=IALSConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=IALSTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole interaction list"),
    presets={PUBLISHED: AS_PUBLISHED},
)
