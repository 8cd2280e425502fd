"""`private-gram-year`: the sums of `private-gram` as running totals, published at every refresh of a year.

A device that has a history sends a part of its unit vectors at every refresh, by how long ago it joined, and the server
adds up what was released so far with weights of its own (`privfed.contracts.running_totals`): a person counts as one
unit vector of about the present history in every total, and all that leaves a device in a year has norm 1. The head
follows the popularity of now: matrices that were released about other heads say what they do about the pairs that are
on both.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float64, Int64
from pydantic import Field
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import Block, NoisySums, RunningTotals, Schema
from privfed.federation import Call, Cohort, Federation, Message, Streams, alike
from privfed.methods.client_data import ClientData
from privfed.methods.method import PublicInfo
from privfed.methods.private_gram.client import PrivateGramClients
from privfed.methods.private_gram.config import HeadShown, PrivateGramConfig
from privfed.methods.private_gram.queries import GRAM, centred, factors
from privfed.methods.private_gram.server import PrivateGramServer
from privfed.methods.shared.popular_head import HEAD, POPULARITY, unit_histories
from privfed.methods.shared.vae_clients import UserRows
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import ClientUpdates, Symmetric, packed_size, unpacked

_HEADS, _RELEASED = "heads", "released"


class RefreshedGramConfig(PrivateGramConfig):
    """Settings; null follows the rule."""

    head_share: float | None = Field(0.0, ge=0, le=0, description="0: the Gram matrix alone is asked for")
    min_items: int | None = Field(
        20, ge=0, description="items that must stand out of the noise before pairs are asked for; null: by the rule"
    )
    refreshes: int = Field(52, ge=2, le=1000, description="refreshes of a year, one in a round; all cost what one does")


class RefreshedGramClients(PrivateGramClients):
    """Each user's items, and the refreshes at which it joined."""

    def __init__(self, config: RefreshedGramConfig, data: ClientData, streams: Streams) -> None:
        super().__init__(config, data, streams)
        self._sent, self._positives, self._arrived = RunningTotals(config.refreshes).sent, data.positives, data.arrived
        self._now: tuple[int, UserRows] = (-1, self.rows)
        never = torch.tensor(-1)
        self.private = data.private_state(alike({POPULARITY: never, GRAM: never}))

    def popularity(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The vector along the own items, of the length that is due."""
        rows = self._rows(call)
        return unit_histories(rows, call, self._due(POPULARITY, call, rows.counts > 0))

    def gram(self, call: Call, message: Message) -> ClientUpdates:
        """The outer product of the centred history, of the norm that is due."""
        vectors, mine = centred(self._rows(call), message)
        diagonal = call.schema[GRAM].size == packed_size(vectors.shape[1])
        weights = factors(vectors, diagonal=diagonal) * self._due(GRAM, call, mine.counts > 0)
        return ClientUpdates(
            call.clients, call.schema, [Symmetric(GRAM, torch.arange(len(vectors)), weights, vectors, diagonal)]
        )

    def _due(self, name: str, call: Call, present: Bool[Tensor, " clients"]) -> Float64[Tensor, " clients"]:
        """Norm to send, by when each client began: at the first refresh at which it has something to say."""
        began = self.private.rows(call.clients)[name]
        began = torch.where((began < 0) & present, call.round, began)
        self.private.stage(call.clients, {name: began})
        age = (call.round - began).clamp(0, len(self._sent) - 1)
        return torch.where(began < 0, 0.0, placed(self._sent)[age])

    def _rows(self, call: Call) -> OwnRows:
        """What the clients of a call have by now."""
        if self._arrived is not None and self._now[0] != call.round:
            counts = self._arrived[:, min(call.round, self._arrived.shape[1] - 1)]
            self._now = call.round, UserRows(self._positives.first(counts))
        return self._now[1].select(call.clients)


class RefreshedGramServer(PrivateGramServer):
    """Runs both queries at every refresh, and publishes from running totals.

    Attributes:
        totals: how sums are added up.
        released: what was released at every refresh, zeros before it; of Gram matrices also on which head.
    """

    config: RefreshedGramConfig

    def __init__(self, config: RefreshedGramConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.totals, self._refresh = RunningTotals(config.refreshes), 0
        sums = public_info.sums or NoisySums(public_info.n_users)
        # What the rule is told of is the noise of the last total, which no other exceeds.
        sums = replace(sums, deviation=sums.deviation * self.totals.factor)
        super().__init__(config, replace(public_info, sums=sums), streams)
        count, side = config.refreshes, self.constants.head
        self.released = {
            POPULARITY: torch.zeros(count, self.items),
            GRAM: torch.zeros(count, packed_size(side, diagonal=self._diagonal) if side else 0),
            _HEADS: torch.zeros(count, side, dtype=torch.int64),
            _RELEASED: torch.zeros(count, 2, dtype=torch.bool),
        }

    def round(self, federation: Federation, t: int) -> None:
        """One refresh; there is none after those of the year."""
        if t >= self.totals.refreshes:
            return
        self._refresh = t
        cohort = federation.sample_cohort(t)
        popularity = self._popularity(federation, cohort, self.schemas[0])
        deviation = self._deviation(self.schemas[0], POPULARITY)
        shown = HeadShown.from_popularity(popularity, cohort.expected, deviation)
        self.decisions = {"items above noise": shown.standing_out}
        popularity, deviation = self._with_donors(popularity, cohort, deviation)
        begun = bool(self.released[_RELEASED][:t, 1].any())
        if len(self.schemas) > 1 and (begun or not shown.few(self.config)):
            self._relate(federation, cohort, popularity, deviation, short=not self._diagonal)
        else:
            self._rank(popularity, deviation, 0)
        self.decisions["items on the head"] = len(self.tensors[HEAD])

    def state(self) -> dict[str, Tensor]:
        """Everything of a single release, and all sums so far."""
        return {**super().state(), **{f"released.{name}": values for name, values in self.released.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        super().load(state)
        self.released = {name: state[f"released.{name}"].clone() for name in self.released}

    @property
    def _diagonal(self) -> bool:
        return self.config.histories != "short"

    def _block(self, shape: tuple[int, ...], share: float) -> Block:
        return replace(super()._block(shape, share), refreshes=self.totals.refreshes)

    def _deviation(self, schema: Schema, name: str) -> float:
        """Standard deviation of the noise on the total of now."""
        there = on_host(self.released[_RELEASED][:, int(name == GRAM)])
        return super()._deviation(schema, name) * self.totals.noise(self._refresh, there) / self.totals.factor

    def _popularity(self, federation: Federation, cohort: Cohort, schema: Schema) -> Float64[Tensor, " items"]:
        self._keep(POPULARITY, super()._popularity(federation, cohort, schema))
        return (self._weights().unsqueeze(1) * self.released[POPULARITY][: self._refresh + 1]).sum(0)

    def _gram(
        self, federation: Federation, cohort: Cohort, message: Message, schema: Schema, *, diagonal: bool
    ) -> tuple[Float64[Tensor, "side side"], None]:
        sums = federation.aggregate(GRAM, cohort, message, schema).sums
        self.released[_HEADS][self._refresh] = self.tensors[HEAD]
        self._keep(GRAM, sums[GRAM])
        total = torch.zeros(self.constants.head, self.constants.head, dtype=torch.float64)
        for refresh, weight in enumerate(self._weights().tolist()):
            if self.released[_RELEASED][refresh, 1]:
                gram = unpacked(self.released[GRAM][refresh], self.constants.head, diagonal=diagonal)
                _add_shared_(total, self.tensors[HEAD], gram * weight, self.released[_HEADS][refresh], self.items)
        return total, None

    def _people(self, gram: Float64[Tensor, "side side"], cohort: Cohort) -> float:
        """Every history has a trace of 1; without a diagonal nothing says how many have arrived."""
        if not self._diagonal:
            return cohort.expected
        return min(max(float(gram.trace()), 1.0), cohort.expected)

    def _weights(self) -> Float64[Tensor, " released"]:
        return placed(self.totals.weights(self._refresh))

    def _keep(self, name: str, sums: Tensor) -> None:
        self.released[name][self._refresh] = sums.float()
        self.released[_RELEASED][self._refresh, int(name == GRAM)] = True


def _add_shared_(
    total: Float64[Tensor, "side side"],
    head: Int64[Tensor, " side"],
    gram: Float64[Tensor, "side side"],
    other: Int64[Tensor, " side"],
    items: int,
) -> None:
    """Add a matrix about another head where the heads overlap."""
    place = torch.full((items,), -1)
    place[head] = torch.arange(len(head))
    at = place[other]
    there = (at >= 0).nonzero().squeeze(1)
    total.index_put_((at[there].unsqueeze(1), at[there].unsqueeze(0)), gram[there][:, there], accumulate=True)
