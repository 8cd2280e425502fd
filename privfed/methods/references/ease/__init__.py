"""EASE as a reference: item-to-item weights in closed form, from everybody's lists.

With a tag weight, public genres and years of the items join the users' lists as further rows.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Float64
from pydantic import Field
from torch import Tensor

from privfed.compute.devices import placed
from privfed.compute.memory import refuse_beyond_memory
from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.data.item_features import ItemFeatures, item_features
from privfed.federation import Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method, MethodConfig, PublicInfo, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.ease.model import item_weights
from privfed.methods.references.ease.published import AS_PUBLISHED
from privfed.methods.references.shared.collecting import HISTORY, POPULARITY, CollectingServer
from privfed.methods.references.shared.revealing import RevealingClients, or_popular, sums_of_own
from privfed.methods.shared.vae_inputs import OwnRows

_BYTES_PER_PAIR = 20
"""The lists' products and their inverse in float64, and weights in float32."""


class EASEConfig(MethodConfig):
    """Settings of EASE; everything happens in the first round."""

    regularisation: float = Field(
        500.0, gt=0, description="l, added to every item's count of users; larger where users have long lists"
    )
    tag_weight: float = Field(
        0.0, ge=0, description="entry of a row for each genre and each year, public and beside the users' ones; 0: none"
    )
    max_items: int | None = Field(
        10_000,
        ge=1,
        description="learn weights between so many items, the most popular ones, and rank the others behind them by "
        "popularity; null learns all, and takes memory with the square and time with the cube of the catalogue",
    )

    def learned(self, n_items: int) -> int:
        """Number of items of a catalogue that have weights."""
        return n_items if self.max_items is None else min(n_items, self.max_items)


class NoTagsError(ValueError):
    """Tags were given a weight, and the data have none."""


class EASEServer(CollectingServer):
    """Server: the weights between the items of the head, and which those are.

    Raises:
        NoTagsError: tags have a weight, and no genre or year of any item is known.
    """

    def __init__(self, config: EASEConfig, public_info: PublicInfo, streams: Streams) -> None:  # noqa: ARG002
        self.config, k = config, config.learned(public_info.n_items)
        self.tags = config.tag_weight * tags(item_features(public_info.item_info)) if config.tag_weight else None
        refuse_beyond_memory(
            _BYTES_PER_PAIR * k**2,
            f"ease over {k:,} items and matrices of all their pairs",
            "set max_items, take a smaller catalogue, or another reference, such as ials",
        )
        super().__init__(public_info.n_items, {"weights": torch.zeros(k, k), "head": torch.arange(k)})

    def fit(self, lists: Histories) -> dict[str, Tensor]:
        """Weights between the most popular items, of equals those with the lower number."""
        most = np.argsort(-lists.popularity(), kind="stable")[: self.config.learned(lists.n_items)]
        head = np.sort(most)
        weights = item_weights(lists, head, self.config.regularisation, self.tags)
        return {"weights": weights.float(), "head": placed(head)}


def tags(features: ItemFeatures | None) -> Float64[np.ndarray, "tags items"]:
    """1 where an item has a tag: one row for every genre, and one for every year.

    Raises:
        NoTagsError: no item has any.
    """
    if features is None:
        raise NoTagsError(
            "ease has a tag_weight above 0, and the data name no genre or year of any item: set tag_weight to 0, or "
            "describe the items"
        )
    rows = [] if features.genres is None else [features.genres.T]
    if features.years is not None:
        rows.append((np.unique(features.years)[:, None] == features.years).astype(float))
    return np.concatenate(rows)


class EASEClients(RevealingClients):
    """The clients."""

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """The sum of the weights of the own items; items outside the head stand behind it, by popularity."""
        weights, head, popularity = model["weights"], model["head"], model[POPULARITY]
        place = torch.full((rows.n_items,), -1).index_put_((head,), torch.arange(len(head)))[rows.items]
        inside = place >= 0
        owner = rows.owner[inside]
        counts = torch.bincount(owner, minlength=len(rows.counts))
        own = OwnRows(owner, place[inside], counts, len(head))
        scores = or_popular(sums_of_own(weights, own), popularity[head])
        behind = scores.amin(1, keepdim=True) - 2 + popularity
        return behind.index_copy_(1, head, scores)


class EASETraining(Training):
    """Histories are collected once and the server trains alone."""

    server = EASEServer
    clients = EASEClients
    step = None
    host_work = "the Gram matrix of the sparse lists"


METHOD = Method(
    name="ease",
    title="item-to-item weights in closed form, learned centrally from everybody's lists",
    display_name="EASE",
    source="EASE, Steck, WWW 2019",
    config=EASEConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=EASETraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole interaction list"),
    presets={PUBLISHED: AS_PUBLISHED},
)
