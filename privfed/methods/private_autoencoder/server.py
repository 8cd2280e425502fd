"""The server of `private-autoencoder`: popularity, then steps of Adam along sums of unit updates of one cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from privfed.contracts import NoisySums, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.method import PlannedQuery, PublicInfo
from privfed.methods.private_autoencoder.config import PrivateAutoencoderConfig, PrivateAutoencoderConstants
from privfed.methods.shared.popular_head import HEAD, ORDER, POPULARITY, PopularHead, unit_block

ENCODER, DECODER, BIAS = "encoder", "decoder", "bias"
_WEIGHTS = (ENCODER, DECODER)


class PrivateAutoencoderServer:
    """Runs all queries in its first round: one for popularity, and one for every gradient step.

    Attributes:
        constants: of the run.
        schemas: of the queries, in order.
        schema: of a gradient step: both layers `[head, dim]` in one vector of norm 1.
        tensors: all that devices download: head, weights, output bias, and the order of all items.
    """

    def __init__(self, config: PrivateAutoencoderConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config = config
        self.sums = public_info.sums or NoisySums(public_info.n_users)
        self.constants = PrivateAutoencoderConstants.from_config(config, self.sums, public_info.n_items)
        shape, unit = (self.constants.head, config.dim), self.sums.unit
        each = (1 - config.popularity_share) / config.steps
        self.schema: Schema = _joint(shape, unit, each)
        popularity = unit_block((public_info.n_items, 1), unit, config.popularity_share)
        self.schemas: list[Schema] = [{POPULARITY: popularity}, *[self.schema] * config.steps]
        self.queried = torch.tensor(False)  # noqa: FBT003 (a tensor's value)
        drawn = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], 2 * shape[0] * shape[1])[0]
        weights = (drawn * config.initial_scale).view(2, *shape)
        self.tensors = {
            HEAD: torch.arange(shape[0]),
            ENCODER: weights[0].clone(),
            DECODER: weights[1].clone(),
            BIAS: torch.zeros(shape[0]),
            ORDER: torch.zeros(public_info.n_items),
        }

    def round(self, federation: Federation, t: int) -> None:
        """Run all queries in the first round; later rounds have none."""
        if self.queried:
            return
        cohort = federation.sample_cohort(t)
        release = federation.aggregate("popularity", cohort, Message({}), self.schemas[0])
        self._start(release.sums[POPULARITY][:, 0])
        optimiser = self.config.optimiser()
        for _ in range(self.config.steps):
            found = federation.aggregate("train", cohort, self._downloaded(), self.schema)
            weights = {name: self.tensors[name] for name in _WEIGHTS}
            self.tensors |= optimiser.step(weights, {name: found.sums[name] / cohort.expected for name in _WEIGHTS})
        self.queried = torch.tensor(True)  # noqa: FBT003 (a tensor's value)

    def program(self) -> Sequence[PlannedQuery]:
        """All queries of the run, with the bytes that they send down."""
        down = (0, *[self._downloaded().bytes_per_client()] * self.config.steps)
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

    def _downloaded(self) -> Message:
        """The message with which a device takes a gradient step."""
        return Message({name: self.tensors[name] for name in (HEAD, *_WEIGHTS, BIAS)})

    def _start(self, sums: Tensor) -> None:
        """Cut the head, and fix the output bias at the logarithm of its popularity."""
        deviation = self.sums.deviation / self.schemas[0][POPULARITY].weight
        head = PopularHead.from_popularity(sums, deviation, self.constants.head)
        bias = (head.popularity / head.popularity.sum()).log()
        self.tensors |= {HEAD: head.items, ORDER: head.order, BIAS: bias.float()}


def _joint(shape: tuple[int, int], unit: float, share: float) -> Schema:
    """Both layers, so that their joint norm uses the whole of the query's share when it is 1."""
    whole = unit_block(shape, unit, share)
    return {name: replace(whole, share=share / len(_WEIGHTS)) for name in _WEIGHTS}
