"""The public half of `private-gram`: two asks of one draw, then post-processing of their sums.

Each block's weight makes a unit vector as long as its share of the clip norm lets it be, so a sum comes back in units
of unit vectors, with noise of standard deviation 1 / (mu sqrt(share)).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.data.item_features import item_features
from privfed.federation import Cohort, Federation, Message, NoisySums, Streams
from privfed.methods.method import Facts, PlannedAsk
from privfed.methods.private_gram.config import Constants, PrivateGramConfig, unit_of
from privfed.models.gram.content import Content
from privfed.models.gram.estimate import Estimator
from privfed.updates import Block, Schema, packed_size, unpacked

POPULARITY, GRAM = "popularity", "gram"
HEAD, SHARES, SCALE, WEIGHTS, ORDER = "head", "shares", "scale", "weights", "order"
_FLOOR = 0.5


class PrivateGramServer:
    """Asks once, in the first round that is opened.

    Attributes:
        constants: of the run.
        schemas: of the two asks, one after the other; without a Gram matrix there is only the first.
        schema: of the last ask.
        tensors: all that devices download: head, popularity on the head, damping, weights, and the order of all items.
    """

    def __init__(self, config: PrivateGramConfig, facts: Facts, streams: Streams) -> None:  # noqa: ARG002
        self.config, self.items = config, facts.n_items
        self.sums = facts.sums or NoisySums(facts.n_users)
        self.features = item_features(facts.item_info) if config.metadata else None
        self.constants = Constants.of(config, self.sums, facts.n_items, content=self.features is not None)
        self.schemas = self._schemas()
        self.schema = self.schemas[-1]
        side = self.constants.head
        self.asked = torch.tensor(False)  # noqa: FBT003 (a tensor's value)
        self.tensors = {
            HEAD: torch.arange(side),
            SHARES: torch.full((side,), 1 / max(side, 1)),
            SCALE: torch.ones(side),
            WEIGHTS: torch.zeros(side, side),
            ORDER: torch.zeros(facts.n_items),
        }

    def round(self, federation: Federation, t: int) -> None:
        """Ask for popularity and then for the Gram matrix of its head; later rounds have nothing left to ask."""
        if self.asked:
            return
        cohort = federation.draw(t)
        release = federation.ask("popularity", cohort, Message({}), self.schemas[0])
        popularity = self._rank(release.sums[POPULARITY][:, 0].double())
        if self.constants.head:
            self._relate(federation, cohort, popularity)
        self.asked = torch.tensor(True)  # noqa: FBT003 (a tensor's value)

    def program(self) -> Sequence[PlannedAsk]:
        """Both asks, the second with what it sends down."""
        down = (0, self._relation().bytes_per_client())
        return [PlannedAsk(schema, size) for schema, size in zip(self.schemas, down, strict=False)]

    def public(self) -> Message:
        """All that a device needs to recommend."""
        return Message(self.tensors)

    def state(self) -> dict[str, Tensor]:
        """What devices download, and whether it was asked for."""
        return {**self.tensors, "asked": self.asked}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.tensors = {name: value for name, value in state.items() if name != "asked"}
        self.asked = state["asked"]

    def _schemas(self) -> list[Schema]:
        share, side = self.constants.share, self.constants.head
        popularity: Schema = {POPULARITY: self._block((self.items, 1), share)}
        if not side:
            return [popularity]
        size = packed_size(side, diagonal=self.constants.diagonal)
        return [popularity, {GRAM: self._block((size,), 1 - share)}]

    def _block(self, shape: tuple[int, ...], share: float) -> Block:
        return Block(shape, weight=unit_of(self.sums) * math.sqrt(share), share=share)

    def _deviation(self, block: Block) -> float:
        """Standard deviation of the noise on a released sum of this block."""
        return self.sums.deviation / block.weight

    def _rank(self, sums: Float[Tensor, " items"]) -> Float[Tensor, " items"]:
        """Order all items by noisy popularity and cut the head; returns popularity, floored where noise drowns it."""
        best = sums.argsort(descending=True, stable=True)
        order = torch.empty(self.items)
        order[best] = torch.arange(self.items, 0, -1, dtype=torch.float32) / self.items
        popularity = sums.clamp(min=max(_FLOOR, self._deviation(self.schemas[0][POPULARITY]) / 2))
        head = best[: self.constants.head]
        shares = popularity[head] / popularity[head].sum()
        scale = (shares / shares.mean()).pow(-self.constants.damping)
        self.tensors |= {ORDER: order, HEAD: head, SHARES: shares.float(), SCALE: scale.float()}
        return popularity

    def _relation(self) -> Message:
        """What a device needs to form its part of the Gram matrix."""
        return Message({name: self.tensors[name] for name in (HEAD, SHARES, SCALE)})

    def _relate(self, federation: Federation, cohort: Cohort, popularity: Float[Tensor, " items"]) -> None:
        """Ask for the Gram matrix and learn the weights from it."""
        side, diagonal, block = self.constants.head, self.constants.diagonal, self.schema[GRAM]
        release = federation.ask("gram", cohort, self._relation(), self.schema)
        head: Int64[np.ndarray, " side"] = self.tensors[HEAD].numpy()
        content = None if self.features is None else Content.of(self.features, head, self.config.year_scale)
        estimator = Estimator(
            clients=cohort.expected,
            deviation=self._deviation(block),
            diagonal=diagonal,
            rank=self.config.rank,
            smoothing=self.constants.smoothing,
            threshold=self.constants.threshold,
        )
        gram = unpacked(release.sums[GRAM], side, diagonal=diagonal).numpy()
        weights = estimator.weights(gram, popularity[head].numpy(), content)
        self.tensors |= {WEIGHTS: torch.from_numpy(weights).float()}
