"""What crosses the wire: `Cohort`, `Call` and `Message` go down, `Total` or `Individual` comes up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.contracts.noisy_steps import NoisySteps
from privfed.federation.streams import Streams


@dataclass(frozen=True, slots=True)
class Cohort:
    """Who is queried in a round: a rule, not a list. It holds no seed; each client decides with its own key.

    Attributes:
        round: number of the round, from 0.
        id: number of the cohort; the ledger's key.
        rule: name of the sampling rule.
        expected: expected number of members, each by what its upload counts where people have budgets of their own.
    """

    round: int
    id: int
    rule: str
    expected: float


@dataclass(frozen=True, slots=True)
class Call:
    """Everything that a client step receives besides the message.

    Attributes:
        round, cohort_id: of the cohort.
        step: name of the client's step.
        query_id: running number of this query within its cohort; part of every random address.
        clients: the clients of this chunk, in the order in which updates must come back.
        streams: addressed randomness under the clients' own keys.
        schema: the blocks that may be sent.
        clip_norm: where a plan adapts it, the clip norm that the server announced for this round.
        noisy_steps: where a plan protects single interactions, how the step must train.
    """

    round: int
    cohort_id: int
    step: str
    query_id: int
    clients: Int64[Tensor, " clients"]
    streams: Streams
    schema: Schema
    clip_norm: float | None = None
    noisy_steps: NoisySteps | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the server: a part for everybody and, where uploads carry pseudonyms, a part for each.

    Attributes:
        shared: tensors for all, `[*shape]`.
        personal: tensors with one entry per pseudonym, `[population, *shape]`; a device receives its own only.
        config: public numbers (learning rates, annealing).
        needed_bytes: where devices need different parts of `shared`, what they download on average; None where every
            device needs all of it.
    """

    shared: Mapping[str, Tensor]
    personal: Mapping[str, Tensor] = field(default_factory=dict)
    config: Mapping[str, float] = field(default_factory=dict)
    needed_bytes: int | None = None

    def addressed_to(self, clients: Int64[Tensor, " clients"]) -> "Message":
        """The message as `clients` receive it: personal tensors become `[clients, *shape]`."""
        if not self.personal:
            return self
        first, count = int(clients[0]) if len(clients) else 0, len(clients)
        contiguous = torch.equal(clients, torch.arange(first, first + count))
        own = {
            name: values[first : first + count] if contiguous else values.index_select(0, clients)
            for name, values in self.personal.items()
        }
        return Message(self.shared, own, self.config, self.needed_bytes)

    def rows(self, name: str, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Row `ids[j]` of the table that client `owner[j]` received under `name`, shared or personal."""
        table, places = self.places(name, owner, ids)
        return table.index_select(0, places)

    def places(
        self, name: str, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]
    ) -> tuple[Float[Tensor, "rows width"], Int64[Tensor, " k"]]:
        """The table that holds these `rows`, and where: the shared one, or all personal ones below each other."""
        if name in self.personal:
            table = self.personal[name]
            return table.flatten(0, 1), owner * table.shape[1] + ids
        return self.shared[name], ids

    def bytes_per_client(self) -> int:
        """Bytes one device downloads, on average where devices need different parts."""
        shared = sum(t.nbytes for t in self.shared.values()) if self.needed_bytes is None else self.needed_bytes
        return shared + sum(t[0].nbytes for t in self.personal.values())


@dataclass(frozen=True, slots=True)
class Total:
    """A released sum.

    Attributes:
        sums: block name -> sum over the cohort.
        denominator: what a mean divides by: `Cohort.expected` under sampling or differential privacy, the
            realised cohort otherwise. Methods never divide themselves.
        revealed: for blocks some of whose rows are suppressed, because too few clients sent them, which are revealed;
            sums of the others are zero.
    """

    sums: Mapping[str, Tensor]
    denominator: float
    revealed: Mapping[str, Bool[Tensor, " rows"]] = field(default_factory=dict)

    def mean(self, block: str) -> Tensor:
        """The block's sum over the denominator."""
        return self.sums[block] / max(self.denominator, 1.0)


@dataclass(frozen=True, slots=True)
class Individual:
    """Released uploads, one per pseudonym.

    Attributes:
        pseudonyms: who sent each upload; stable over rounds.
        uploads: block name -> `[clients, *shape]`, in the order of `pseudonyms`.
    """

    pseudonyms: Int64[Tensor, " clients"]
    uploads: Mapping[str, Tensor]

    def mean(self, block: str) -> Tensor:
        """The plain mean over the uploads."""
        return self.uploads[block].mean(0)
