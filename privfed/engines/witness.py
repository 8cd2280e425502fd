"""A witness of a run: what crossed the border between methods and the privacy layer, seen from both of its sides.

The witness stands between the server and the federation, where releases arrive, and between the engine and the clients,
where training ends. It believes nothing in between: in watched rounds it clips uploads with arithmetic of its own, so a
release less the clipped uploads is the noise that was really added. Everywhere else it keeps a small record per query.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64, Num
from torch import Tensor

from privfed.compute.tiles import TILE
from privfed.contracts import Schema, account_of, refreshes_of, share_of
from privfed.federation import (
    Call,
    Clients,
    Cohort,
    Federation,
    Individual,
    Message,
    Server,
    Total,
    perform,
)
from privfed.guards.tier_weights import weights_of
from privfed.privacy import PrivacyPlan
from privfed.updates import ClientUpdates

_DIGEST_BYTES = 8
_SHORTEST = 1e-12


@dataclass(slots=True, eq=False)
class Exchange:
    """One query as the server and the clients saw it.

    Attributes:
        cohort: that the server queried.
        step: of the clients.
        index: running number within the round.
        schema: declared blocks.
        message: digest of everything that was sent; empty unless wanted.
        received: digests of what the clients of each chunk were sent; empty unless wanted.
        trained: numbers of the clients that trained, chunk by chunk.
        clip_norm: announced with the query, where the plan adapts it.
        denominator: of a released sum; None where single uploads were released.
        revealed: rows of each block that were opened, where only some are.
        within: clients whose upload was within the clip norm, by the witness's count; None where it did not look.
        clipped: sum of clipped uploads, float64; empty where the witness did not look.
        released: the released sum, or the sum of single uploads; empty where the witness did not look.
        own_updates: clipped uploads of clients that are kept one by one.
        followed: clip norms after the query, where the plan adapts them.
        uploads: digest of every client's unclipped upload; empty unless wanted.
        pseudonyms: whose single uploads were released.
        singles: digest of every released upload; empty unless wanted.
    """

    cohort: Cohort
    step: str
    index: int
    schema: Schema
    message: bytes
    received: list[bytes] = field(default_factory=list)
    trained: list[Tensor] = field(default_factory=list)
    clip_norm: float | None = None
    denominator: float | None = None
    revealed: Mapping[str, Tensor] = field(default_factory=dict)
    within: int | None = None
    clipped: dict[str, Tensor] = field(default_factory=dict)
    released: dict[str, Tensor] = field(default_factory=dict)
    own_updates: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    followed: Mapping[str, float] = field(default_factory=dict)
    uploads: dict[int, bytes] = field(default_factory=dict)
    pseudonyms: list[int] | None = None
    singles: dict[int, bytes] = field(default_factory=dict)

    @property
    def members(self) -> Int64[Tensor, " members"]:
        """Clients that trained, in the order in which they were called."""
        return torch.cat(self.trained) if self.trained else torch.empty(0, dtype=torch.int64)

    @property
    def answered(self) -> bool:
        """Whether anything was released."""
        return self.denominator is not None or self.pseudonyms is not None

    def noise(self) -> dict[str, Float64[Tensor, " size"]]:
        """What was released less what clipped uploads add up to, by real block, in weighted coordinates."""
        return {
            name: (self.released[name].double() - self.clipped[name]).flatten() * self.schema[name].weight
            for name in self.released
        }


Forced = Callable[[Exchange, Total | Individual], Total | Individual]
"""(query, what was released) -> what the server is given instead."""


@dataclass(slots=True, eq=False)
class Witness:
    """Records every query of a run.

    Attributes:
        plan: the run's plan.
        watched: rounds whose uploads are clipped and added up once more.
        digests: whether every message and every upload is digested, too.
        silent: a client whose upload counts as zero; None where there is none.
        lengths: clients -> clip norms that their uploads are made long, so that the clip has to bring them in; None
            leaves them as they are.
        kept: clients whose clipped uploads are kept one by one.
        forced: gives the server other releases than it got; None where it gets its own.
        exchanges: in order.
    """

    plan: PrivacyPlan
    watched: Collection[int] = ()
    digests: bool = False
    silent: int | None = None
    lengths: Callable[[Tensor], Tensor] | None = None
    kept: Collection[int] = ()
    forced: Forced | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    _spent: dict[str, Tensor] = field(default_factory=dict)

    def clients(self, clients: Clients) -> Clients:
        """The same clients, watched."""
        return _WatchedClients(clients, self)

    def server(self, server: Server) -> Server:
        """The same server, with a watched federation."""
        return _WatchedServer(server, self)

    def of_round(self, round: int) -> list[Exchange]:
        """Queries of one round, in order."""
        return [exchange for exchange in self.exchanges if exchange.cohort.round == round]

    def begin(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Exchange:
        """A query is sent."""
        earlier = self.exchanges[-1] if self.exchanges else None
        index = earlier.index + 1 if earlier is not None and earlier.cohort is cohort else 0
        exchange = Exchange(cohort, step, index, schema, message_digest(message) if self.digests else b"")
        self.exchanges.append(exchange)
        return exchange

    def trained(self, call: Call, message: Message, updates: ClientUpdates) -> None:
        """Clients have trained, and nothing has been clipped."""
        self._stretch(call, updates)
        if not self.exchanges:
            return
        exchange = self.exchanges[-1]
        exchange.trained.append(call.clients.cpu())
        exchange.clip_norm = call.clip_norm
        if self.digests:
            exchange.received.append(message_digest(message))
        clip = self.plan.mechanism.clip
        # What left in earlier rounds shortens uploads that share an account, so none of these is left out.
        looks = clip is not None and (call.round in self.watched or refreshes_of(exchange.schema) > 1)
        if not (looks or self.digests):
            return
        for tile in torch.split(torch.arange(len(updates)), TILE):
            uploads = updates.materialise(tile)
            if self.digests:
                exchange.uploads |= zip(call.clients[tile].tolist(), row_digests(uploads), strict=True)
            if looks:
                self._add(exchange, call, call.clients[tile], uploads)

    def _stretch(self, call: Call, updates: ClientUpdates) -> None:
        """Put uploads far outside the clip, and one at zero."""
        clip = self.plan.mechanism.clip
        if clip is not None and self.lengths is not None:
            norms = updates.norms(clip.order)
            stretched = self.lengths(call.clients) * (call.clip_norm or clip.norm) / norms.clamp(min=_SHORTEST)
            updates.scale_(torch.where(norms > _SHORTEST, stretched, 1.0))
        if self.silent is not None:
            updates.scale_((call.clients != self.silent).double())

    def _add(self, exchange: Exchange, call: Call, users: Tensor, uploads: Mapping[str, Tensor]) -> None:
        left = self._left(exchange.schema, users)
        clipped, within = clipped_uploads(uploads, self.plan, exchange.schema, exchange.clip_norm, left)
        if left is not None:
            self._spend(exchange, users, clipped)
        if self.plan.tiers is not None:
            counts = weights_of(self.plan.tiers, call.streams, users).float()
            clipped = {name: values * counts.view(-1, *[1] * (values.dim() - 1)) for name, values in clipped.items()}
        clients = users.tolist()
        exchange.within = (exchange.within or 0) + int(within.sum())
        for place, client in enumerate(clients):
            if client in self.kept:
                exchange.own_updates[client] = {name: values[place].clone() for name, values in clipped.items()}
        for name, values in clipped.items():
            total = values.sum(0, dtype=torch.float64)
            exchange.clipped[name] = exchange.clipped[name] + total if name in exchange.clipped else total

    def _left(self, schema: Schema, users: Tensor) -> Float64[Tensor, " n"] | None:
        """What users may still send of the squared norm of an account; None where a query stands by itself."""
        if refreshes_of(schema) == 1:
            return None
        spent = self._spent.setdefault(account_of(schema), torch.zeros(0, dtype=torch.float64))
        missing = int(users.max()) + 1 - len(spent)
        if missing > 0:
            spent = self._spent[account_of(schema)] = torch.cat([spent, spent.new_zeros(missing)])
        return (1 - spent[users]).clamp(min=0)

    def _spend(self, exchange: Exchange, users: Tensor, clipped: Mapping[str, Tensor]) -> None:
        """Count what leaves, by more than float32 may err by."""
        clip = self.plan.mechanism.clip
        whole = share_of(exchange.schema) * (exchange.clip_norm or (clip.norm if clip is not None else 1.0)) ** 2
        squares = sum(
            (flat_rows(values).double() * exchange.schema[name].weight).square().sum(1)
            for name, values in clipped.items()
        )
        self._spent[account_of(exchange.schema)][users] += squares * (1 + 2.0**-20) / whole

    def total(self, exchange: Exchange, total: Total) -> None:
        """A sum was released."""
        exchange.denominator, exchange.revealed = total.denominator, dict(total.revealed)
        if exchange.cohort.round in self.watched:
            self._keep(exchange, {name: values.clone() for name, values in total.sums.items()})

    def _keep(self, exchange: Exchange, sums: Mapping[str, Tensor]) -> None:
        real = [name for name, block in exchange.schema.items() if block.kind == "real"]
        exchange.released = {name: sums[name] for name in real}
        for name in real:
            exchange.clipped.setdefault(name, torch.zeros(exchange.schema[name].shape, dtype=torch.float64))

    def individual(self, exchange: Exchange, single: Individual) -> None:
        """Single uploads were released."""
        exchange.pseudonyms = single.pseudonyms.tolist()
        if exchange.cohort.round in self.watched:
            self._keep(exchange, {name: values.sum(0, dtype=torch.float64) for name, values in single.uploads.items()})
        if self.digests:
            exchange.singles = dict(zip(exchange.pseudonyms, row_digests(single.uploads), strict=True))


class _WatchedClients:
    """Clients whose steps are reported to the witness."""

    def __init__(self, real: Clients, witness: Witness) -> None:
        self._real, self._witness = real, witness

    def __getattr__(self, name: str) -> Any:
        if name in ("_real", "_witness"):
            raise AttributeError(name)
        attribute = getattr(self._real, name)
        return partial(self._perform, name) if name in self._real.steps else attribute

    def _perform(self, step: str, call: Call, message: Message) -> ClientUpdates:
        updates = perform(self._real, replace(call, step=step), message)
        self._witness.trained(call, message, updates)
        return updates


class _WatchedServer:
    """A server whose rounds go through a watched federation; everything else is its own."""

    def __init__(self, real: Server, witness: Witness) -> None:
        self._real, self._witness = real, witness

    def __getattr__(self, name: str) -> Any:
        if name in ("_real", "_witness"):
            raise AttributeError(name)
        return getattr(self._real, name)

    def round(self, federation: Federation, t: int) -> None:
        """One round of the method."""
        self._real.round(_WatchedFederation(federation, self._witness), t)


class _WatchedFederation:
    """The federation that a watched server is given."""

    def __init__(self, real: Federation, witness: Witness) -> None:
        self._real, self._witness = real, witness

    def __getattr__(self, name: str) -> Any:
        if name in ("_real", "_witness"):
            raise AttributeError(name)
        return getattr(self._real, name)

    def sample_cohort(self, round: int) -> Cohort:
        """The federation's own cohort."""
        return self._real.sample_cohort(round)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """The federation's own sum, recorded."""
        exchange = self._witness.begin(step, cohort, message, schema)
        total = self._real.aggregate(step, cohort, message, schema)
        self._witness.total(exchange, total)
        forced = self._witness.forced
        given = total if forced is None else forced(exchange, total)
        return given if isinstance(given, Total) else total

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """The federation's own single uploads, recorded."""
        exchange = self._witness.begin(step, cohort, message, schema)
        single = self._real.collect(step, cohort, message, schema)
        self._witness.individual(exchange, single)
        forced = self._witness.forced
        given = single if forced is None else forced(exchange, single)
        return given if isinstance(given, Individual) else single


def flat_rows(values: Num[Tensor, "n ..."]) -> Num[Tensor, "n size"]:
    """Every client's block in a row; a block may be a single number."""
    return values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)


def clipped_uploads(
    uploads: Mapping[str, Tensor],
    plan: PrivacyPlan,
    schema: Schema,
    announced: float | None,
    left: Float64[Tensor, " n"] | None = None,
) -> tuple[dict[str, Tensor], Float[Tensor, " n"]]:
    """Real blocks `[n, *shape]` of n uploads, clipped as the plan says, and who counts as within the clip norm.

    The arithmetic is the audit's own: it shares no code with the guard that it is compared with.

    Args:
        uploads: dense blocks `[n, *shape]`.
        plan: with a clip.
        schema: of the query.
        announced: clip norm that replaces the plan's, where the plan adapts it.
        left: of the squared norm of the account that the query shares with others; None where it stands by itself.
    """
    clip = plan.mechanism.clip
    real = {name: values for name, values in uploads.items() if schema[name].kind == "real"}
    if clip is None or not real:
        return real, torch.ones(len(next(iter(uploads.values()))) if uploads else 0)
    powers = torch.stack(
        [(flat_rows(v).double() * schema[name].weight).abs().pow(clip.order).sum(1) for name, v in real.items()],
        1,
    )
    reach = math.sqrt(share_of(schema))
    if clip.per_block is None:
        norms = powers.sum(1, keepdim=True) ** (1 / clip.order)
        bounds = torch.tensor([(announced or clip.norm) * reach], dtype=torch.float64)
        if left is not None:
            bounds = bounds * left.sqrt().unsqueeze(1)
    else:
        norms, bounds = powers.sqrt(), torch.tensor(clip.bounds(list(real)), dtype=torch.float64) * reach
    factors = (bounds / norms.clamp(min=1e-300)).clamp(max=1.0).expand(-1, len(real))
    scaled = {
        name: v * factors[:, at].float().view(-1, *[1] * (v.dim() - 1)) for at, (name, v) in enumerate(real.items())
    }
    adaptive = plan.mechanism.adaptive_clip
    counted = bounds if adaptive is None else bounds * adaptive.counted_over_clip
    return scaled, (norms <= counted).all(1).double()


def row_digests(blocks: Mapping[str, Tensor]) -> list[bytes]:
    """A digest of every client's values, of blocks `[n, *shape]`."""
    arrays = [flat_rows(values.contiguous()).cpu().numpy() for values in blocks.values()]
    count = len(arrays[0]) if arrays else 0
    return [_digest([array[row].tobytes() for array in arrays]) for row in range(count)]


def message_digest(message: Message) -> bytes:
    """A digest of everything in a message, names and shapes included."""
    pieces = [repr((sorted(message.config.items()), message.needed_bytes)).encode()]
    for part in (message.shared, message.personal):
        for name in sorted(part):
            values = part[name].contiguous().cpu()
            pieces += [f"{name} {tuple(values.shape)} {values.dtype}".encode(), values.numpy().tobytes()]
        pieces.append(b"|")
    return _digest(pieces)


def _digest(pieces: list[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
