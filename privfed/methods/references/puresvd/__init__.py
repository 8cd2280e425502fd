"""PureSVD as a reference: a truncated singular value decomposition of everybody's lists."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.federation import Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method, MethodConfig, PublicInfo, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.puresvd.model import item_factors
from privfed.methods.references.puresvd.published import AS_PUBLISHED
from privfed.methods.references.shared.collecting import HISTORY, POPULARITY, CollectingServer
from privfed.methods.references.shared.revealing import RevealingClients, or_popular, sums_of_own
from privfed.methods.shared.vae_inputs import OwnRows


class PureSVDConfig(MethodConfig):
    """Settings of PureSVD; everything happens in the first round."""

    dim: int = Field(32, ge=1, description="singular vectors kept; 32 to 64 suit dense lists, more suit sparse ones")


class PureSVDServer(CollectingServer):
    """Server: the leading right singular vectors, one row per item."""

    def __init__(self, config: PureSVDConfig, public_info: PublicInfo, streams: Streams) -> None:  # noqa: ARG002
        self.config = config
        super().__init__(public_info.n_items, {"items": torch.zeros(public_info.n_items, config.dim)})

    def fit(self, lists: Histories) -> dict[str, Tensor]:
        """The singular vectors of the lists."""
        return {"items": placed(item_factors(lists, self.config.dim)).float()}


class PureSVDClients(RevealingClients):
    """The clients."""

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """The own row, projected onto the singular vectors."""
        items = model["items"]
        return or_popular(sums_of_own(items, rows) @ items.T, model[POPULARITY])


class PureSVDTraining(Training):
    """Histories are collected once and the server trains alone."""

    server = PureSVDServer
    clients = PureSVDClients
    step = None
    host_work = "the decomposition of the sparse matrix"


METHOD = Method(
    name="puresvd",
    title="truncated singular value decomposition of everybody's lists, computed centrally",
    display_name="PureSVD",
    source="PureSVD, Cremonesi, Koren & Turrin, RecSys 2010",
    config=PureSVDConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=PureSVDTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole interaction list"),
    presets={PUBLISHED: AS_PUBLISHED},
)
