"""The server of `dpals`: popularity, then passes of sums and an item step, all queries to one sampled cohort.

Shares of the clip norm add up to 1 over the run, so one Gaussian release is what a run costs. What the item step needs
besides follows from noisy popularity h_j = sum_{u has j} |x_u|^-1/2, without another query:

    sum_u c_uj  is about  h_j d_j / sqrt(mean d^2),   d_j an item's weight and the mean over h,
    users have  (sum_j h_j / n)^2  items of the head on average,

exact where all users have equally many and weights are all 1.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.contracts import Block, NoisySums, Schema
from privfed.federation import PUBLIC, Cohort, Federation, Message, Purpose, Streams, Total
from privfed.methods.dpals.config import DPALSConfig, DPALSConstants
from privfed.methods.dpals.model import ItemStep
from privfed.methods.method import PlannedQuery, PublicInfo
from privfed.methods.shared.popular_head import HEAD, ORDER, POPULARITY, PopularHead, unit_block
from privfed.updates import packed_size, unpacked

GRAM, SUMS, SQUARES = "gram", "sums", "squares"
ITEMS, BALANCE = "items", "balance"


class DPALSServer:
    """Runs all queries in its first round: one for popularity, and one for every pass.

    Attributes:
        constants: of the run.
        schemas: of the queries, in order.
        schema: of a pass.
        tensors: all that devices download: head, weights of own items, item factors, and the order of all items.
    """

    def __init__(self, config: DPALSConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config = config
        self.sums = public_info.sums or NoisySums(public_info.n_users)
        self.constants = DPALSConstants.from_config(config, self.sums, public_info.n_items)
        self.schema = self._pass()
        popularity = self._block((public_info.n_items, 1), config.popularity_share)
        self.schemas: list[Schema] = [{POPULARITY: popularity}, *[self.schema] * config.passes]
        self.queried = torch.tensor(False)  # noqa: FBT003 (a tensor's value)
        side, dim = self.constants.head, config.dim
        drawn = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], side * dim).view(side, dim)
        self.tensors = {
            HEAD: torch.arange(side),
            BALANCE: torch.ones(side),
            ITEMS: drawn / dim**0.5,
            ORDER: torch.zeros(public_info.n_items),
        }

    def round(self, federation: Federation, t: int) -> None:
        """Run all queries in the first round; later rounds have none."""
        if self.queried:
            return
        cohort = federation.sample_cohort(t)
        release = federation.aggregate("popularity", cohort, Message({}), self.schemas[0])
        reach, step = self._start(release.sums[POPULARITY][:, 0], cohort)
        for _ in range(self.config.passes):
            found = federation.aggregate("statistics", cohort, self._downloaded(), self.schema)
            self.tensors[ITEMS] = self._solved(found, reach, step)
        self.queried = torch.tensor(True)  # noqa: FBT003 (a tensor's value)

    def program(self) -> Sequence[PlannedQuery]:
        """All queries of the run, with the bytes that they send down."""
        passes = self.config.passes
        down = (0, *[self._downloaded().bytes_per_client()] * passes)
        return [PlannedQuery(schema, size) for schema, size in zip(self.schemas, down, strict=True)]

    def public(self) -> Message:
        """Everything that a device needs to recommend."""
        return Message(self.tensors)

    def state(self) -> dict[str, Tensor]:
        """The tensors that devices download, and whether the queries have run."""
        return {**self.tensors, "queried": self.queried}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.tensors = {name: value for name, value in state.items() if name != "queried"}
        self.queried = state["queried"]

    def _pass(self) -> Schema:
        config, packed = self.config, packed_size(self.config.dim)
        whole = (1 - config.popularity_share) / config.passes
        schema: Schema = {
            GRAM: self._block((packed,), whole * config.gram_share),
            SUMS: self._block(
                (self.constants.head, config.dim), whole * (1 - config.gram_share - config.item_gram_share)
            ),
        }
        if not config.item_gram_share:
            return schema
        return {**schema, SQUARES: self._block((self.constants.head, packed), whole * config.item_gram_share)}

    def _block(self, shape: tuple[int, ...], share: float) -> Block:
        return unit_block(shape, self.sums.unit, share)

    def _deviation(self, block: Block) -> float:
        """Standard deviation of the noise on a released sum of this block."""
        return self.sums.deviation / block.weight

    def _downloaded(self) -> Message:
        """The message with which a device solves for its own vector."""
        return Message({name: self.tensors[name] for name in (HEAD, BALANCE, ITEMS)})

    def _start(self, sums: Tensor, cohort: Cohort) -> tuple[Float64[Tensor, " side"], ItemStep]:
        """Cut the head, start the first column of the factors at popularity, and prepare the item step."""
        head = PopularHead.from_popularity(sums, self._deviation(self.schemas[0][POPULARITY]), self.constants.head)
        popularity, n = head.popularity, cohort.expected
        own = popularity.pow(-self.config.balance)
        reach = popularity * own / ((popularity * own.square()).sum() / popularity.sum()).sqrt()
        interactions = popularity.sum().square() / n
        items = self.tensors[ITEMS].clone()
        items[:, 0] = (popularity / popularity.max()).sqrt()
        self.tensors |= {HEAD: head.items, ORDER: head.order, BALANCE: own.float(), ITEMS: items}
        squares = self.schema.get(SQUARES)
        step = ItemStep(
            clients=n,
            everybody=self.config.unobserved * float(reach.sum() / interactions),
            regularisation=self.config.item_regularisation,
            sums_deviation=self._deviation(self.schema[SUMS]),
            squares_deviation=0.0 if squares is None else self._deviation(squares),
        )
        return reach, step

    def _solved(self, found: Total, reach: Float64[Tensor, " side"], step: ItemStep) -> Tensor:
        """Item factors from the sums of a pass."""
        dim = self.config.dim
        squares = None
        if SQUARES in found.sums:
            squares = torch.stack([unpacked(row, dim) for row in found.sums[SQUARES]])
        factors = step.factors(unpacked(found.sums[GRAM], dim), found.sums[SUMS].double(), reach, squares)
        return factors.float()
