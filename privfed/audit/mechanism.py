"""The code that protects one upload, against its claim, by the definition of differential privacy.

Two neighbouring inputs as far apart as the claim allows go many times through the very guards that a run uses:
`ClientGuard` clips, noises and encodes, `ServerGuard` adds a trusted server's noise and opens sums, `draw_cover` draws
cover. The inputs lie far outside the clip, so that the clip has to bring them in. Statistic and threshold are fixed
before anything is drawn (Jagielski, Ullman and Oprea, NeurIPS 2020; Nasr et al., USENIX Security 2023):

| plan | two inputs | statistic | bound |
|---|---|---|---|
| local Laplace | +C e against -C e | whether every coordinate of e lies beyond that of +C e | Clopper-Pearson |
| local Gaussian | +C e against -C e | projection on e | GDP |
| central Gaussian | a sum with C e, and without | projection on e | GDP |
| noise in shares | C e or zero, in a sum of the fewest honest clients' shares | projection on e | GDP |
| cover of rows | a history with an item, and without | whether its row is sent | Clopper-Pearson |

e is a coordinate of one block, or lies in several blocks at once: a clip of each block by itself would leave that too
long. Directions share the confidence, so the best of their bounds holds with it. For honest code it lies a few per cent
below the claim; half the noise, a forgotten clip or a factor of 2 in the sensitivity put it far above. A bound above
the claim is measured once more with fresh draws, and the second measurement counts: an audit of many plans must not
accuse one of them by chance, and a bound that is chosen so still holds with its confidence.

Asks of one draw that use shares of one clip norm (`Block.share`) are tested together: the input lies in all of them, in
each as far out as its share lets it be, and the claim is that of all.

Noise is the same on every coordinate, so short blocks do, under the names and weights of the method's own. The seed is
the audit's own: the same plan gives the same row.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from attacks import clopper_pearson_epsilon, gdp_epsilon
from attacks.empirical import CONFIDENCE, LowerBound
from privfed.audit.accounted import beside, of_one_draw
from privfed.audit.report import EmpiricalRow, Tap
from privfed.data import Histories
from privfed.federation import Call, Cohort, Streams
from privfed.privacy import (
    CentralGaussian,
    ClientGuard,
    DistributedGaussian,
    FakeItems,
    Ledger,
    LocalGaussian,
    LocalLaplace,
    PlanError,
    PrivacyPlan,
    RandomisedResponse,
    ServerGuard,
    SharedSum,
    draw_cover,
)
from privfed.updates import Block, ClientUpdates, Dense, Schema, share_of

DRAWS = 20_000
"""Draws of each of the two worlds, for each direction."""

SHARE_DRAWS = 5_000
"""The same where a draw is a sum that a whole cohort rounds and noises, client by client."""

IN_SHARES = "integer noise of this width is as good as Gaussian"
"""What the bound for noise in shares assumes; their claim does not."""

FAR = 1e3
"""Length of an input, in clip norms."""

_DEVICES = 500
"""Devices of each world."""
_USERS_OF_A_SUM = 256
_MOST_USERS_OF_A_SUM = 1024
"""Users of one sum who have an input, each on a coordinate of its own: so many draws with a user, as many without."""
_MOST_ENCODED = 10_000
"""Uploads that are rounded and noised in one audit, beyond which draws are saved."""

_ITEMS, _OWN = 16, 3
"""Items of the catalogue and of a history under cover."""

Direction: TypeAlias = Mapping[str, float]
"""Block -> weighted value on one of its coordinates; together they have the clip norm."""
World: TypeAlias = Mapping[str, Float64[np.ndarray, " draws"]]
"""Block -> weighted value released on that coordinate, draw by draw."""
Worlds: TypeAlias = tuple[World, World]
"""With the input, and without it or with its opposite."""


@dataclass(frozen=True, slots=True)
class _Rig:
    """What the draws of an audit share.

    Attributes:
        plan: whose guards run.
        schema: short blocks.
        population: of the run.
        streams: keys of the audit.
        draws: of each world.
        number: of the direction; no two draw the same noise.
        direction: of the input.
    """

    plan: PrivacyPlan
    schema: Schema
    population: int
    streams: Streams
    draws: int
    number: int
    direction: Direction

    def call(self, round: int, clients: Tensor) -> Call:
        """An exchange whose noise no other round or direction shares."""
        return Call(round, round, "train", self.number, clients, self.streams, self.schema)


def audit_mechanism(
    plan: PrivacyPlan,
    schema: Schema,
    population: int,
    *,
    program: Sequence[Schema] = (),
    draws: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[EmpiricalRow]:
    """A measured lower bound on the epsilon of one upload under `plan`, beside what the plan claims for it.

    Args:
        plan: the privacy plan, whose guards are run.
        schema: blocks of the method's training step.
        population: number of users of the run, for whose sums a ring must have room.
        program: blocks of all asks of a draw; where several use shares of one clip norm, these are tested together,
            and not `schema`.
        draws: of each world and direction; None takes `DRAWS`, or `SHARE_DRAWS` for noise in shares.
        confidence: probability with which the bound stays below the truth.
        seed: of the randomness.

    Returns:
        One row; none where the plan claims nothing about one upload, or (noise inside local training, which no guard
        adds) nothing that can be tested here.
    """
    shared = [ask for ask in program if share_of(ask) < 1]
    asks = shared if len(shared) > 1 else [schema]
    rows = _audit(plan, asks, population, draws, confidence, seed)
    if all(row.consistent for row in rows):
        return rows
    return _audit(plan, asks, population, draws, confidence, seed + 1)


def _audit(
    plan: PrivacyPlan, asks: Sequence[Schema], population: int, draws: int | None, confidence: float, seed: int
) -> list[EmpiricalRow]:
    """One measurement."""
    protection = plan.protection
    match protection:
        case SharedSum():
            cover = protection.cover
            if not isinstance(cover, RandomisedResponse | FakeItems):
                return []
            return [_audit_cover(cover, draws or DRAWS, confidence, seed)]
        case LocalLaplace() | LocalGaussian():
            run, size, audited = _uploads, 1, "one upload"
        case CentralGaussian():
            run, size, audited = _noisy_sums, 2 * _USERS_OF_A_SUM, "one upload in a sum"
        case DistributedGaussian():
            users = min(protection.n_min_honest, _MOST_USERS_OF_A_SUM)
            run, size, audited = _sums_of_shares, 2 * users, "one upload in a sum with noise in shares"
        case _:
            return []
    if math.isinf(of_one_draw(plan, asks, population)):
        return []
    short = [_shortened(plan, schema, size) for schema in asks]
    directions = [_everywhere(plan, short)] if len(short) > 1 else [[found] for found in _directions(plan, short[0])]
    if isinstance(protection, DistributedGaussian):
        directions, draws = directions[-1:], draws or SHARE_DRAWS
    streams, alone = Streams.from_seed(seed), 1 - (1 - confidence) / len(directions)
    bounds = []
    for first, direction in zip(range(0, len(directions) * len(short), len(short)), directions, strict=True):
        rigs = [
            _Rig(plan, {name: schema[name] for name in part}, population, streams, draws or DRAWS, number, part)
            for number, (schema, part) in enumerate(zip(short, direction, strict=True), first)
        ]
        bounds.append(_bound(run, rigs, alone))
    best = max(bounds, key=lambda bound: bound.epsilon)
    if isinstance(protection, DistributedGaussian):
        best = replace(best, assumes=IN_SHARES)
    tap: Tap = "wire" if size == 1 else "sum"
    claimed = of_one_draw(plan, short, population)
    if len(short) > 1:
        audited = f"{audited}, in each of {len(short)} asks of a draw"
    return [beside(claimed, best, confidence, audited, tap, "upload", plan.neighbours)]


def _bound(run: Callable[[_Rig], Worlds], rigs: Sequence[_Rig], confidence: float) -> LowerBound:
    """Of one direction through every ask, by the estimator that fits the law of the noise."""
    plan, seen = rigs[0].plan, [(rig.direction, *run(rig)) for rig in rigs]
    worlds = [[(both[i][name], at) for at_of, *both in seen for name, at in at_of.items()] for i in range(2)]
    length = math.hypot(*(at for _, at in worlds[0]))
    if isinstance(plan.protection, LocalLaplace):
        # Where every coordinate lies beyond that of the input, both densities stand in the ratio e^epsilon0.
        scores = [np.min([values - at for values, at in world], axis=0) for world in worlds]
        return clopper_pearson_epsilon(*scores, delta=plan.delta, threshold=0.0, confidence=confidence)
    scores = [sum(values * (at / length) for values, at in world) for world in worlds]
    middle = length / 2 if plan.protection.release == "total" else 0.0
    return gdp_epsilon(*scores, delta=plan.delta, threshold=middle, confidence=confidence)


def _shortened(plan: PrivacyPlan, schema: Schema, size: int) -> dict[str, Block]:
    """Blocks of `size` coordinates: all of them where each has a clip or share, else last and first of each weight."""
    real = {name: block for name, block in schema.items() if block.kind == "real"}
    clip = plan.protection.clip
    shared = any(block.share < 1 for block in real.values())
    if not shared and (clip is None or clip.per_block is None):
        first = {block.weight: name for name, block in reversed(real.items())}
        kept = {*first.values(), list(real)[-1]}
        real = {name: block for name, block in real.items() if name in kept}
    return {name: replace(block, shape=(size,)) for name, block in real.items()}


def _everywhere(plan: PrivacyPlan, asks: Sequence[Schema]) -> list[Direction]:
    """For every ask its part of one direction through all of them: as long as its share of the clip norm."""
    return [
        {name: at * math.sqrt(share_of(schema)) for name, at in _directions(plan, schema)[-1].items()}
        for schema in asks
    ]


def _directions(plan: PrivacyPlan, schema: Schema) -> list[Direction]:
    """The first block by itself, and last all of them together; under a clip per block only that."""
    clip = plan.protection.clip
    if clip is None:
        return []
    names = list(schema)
    if clip.per_block is not None:
        return [dict(zip(names, clip.bounds(names), strict=True))]
    together = dict.fromkeys(names, clip.norm / len(names) ** (1 / clip.order))
    return [{names[0]: clip.norm}, together] if len(names) > 1 else [together]


def _inputs(rig: _Rig, clients: Tensor, values: Tensor) -> ClientUpdates:
    """What `clients` computed: `values` `[clients, size]`, in units of the direction, far outside the clip."""
    parts = [
        Dense(name, torch.arange(len(clients)), values * (FAR * at / rig.schema[name].weight))
        for name, at in rig.direction.items()
    ]
    return ClientUpdates(clients, rig.schema, parts)


def _uploads(rig: _Rig) -> Worlds:
    """What devices with the input send, and others with its opposite, round after round."""
    guard, worlds = ClientGuard(rig.plan, rig.streams), []
    everybody = torch.arange(_DEVICES)
    for sign, first in ((1.0, 0), (-1.0, _DEVICES)):
        clients = everybody + first
        updates = _inputs(rig, clients, torch.full((_DEVICES, 1), sign))
        guard.clip_(updates)
        sent = [guard.wire(updates, rig.call(round, clients), everybody) for round in range(-(-rig.draws // _DEVICES))]
        worlds.append(_stacked(rig, sent, slice(None)))
    return worlds[0], worlds[1]


def _members(rig: _Rig, count: int) -> ClientUpdates:
    """Clipped updates of the clients of one sum: as many as there are coordinates for have an input, the rest zero."""
    size = next(iter(rig.schema.values())).size
    clients = torch.arange(count)
    updates = _inputs(rig, clients, torch.eye(count, size))
    ClientGuard(rig.plan, rig.streams).clip_(updates)
    return updates


def _noisy_sums(rig: _Rig) -> Worlds:
    """Coordinates of sums with one user on each, and with nobody, as a trusted server opens them."""
    users = _USERS_OF_A_SUM
    guard = ServerGuard(rig.plan, Ledger(rig.plan, rig.population), rig.streams)
    exact = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in rig.schema.items()}
    _members(rig, users).add_to(exact)
    opened = []
    for round in range(-(-rig.draws // users)):
        sums = {name: values.clone() for name, values in exact.items()}
        cohort = Cohort(round, round, "all", float(users))
        # A step of its own: an adaptive clip norm starts afresh.
        guard.add_noise_(sums, cohort, f"round {round}", rig.number, rig.schema, members=users, within=0)
        opened.append(sums)
    return _halves(rig, opened, users)


def _sums_of_shares(rig: _Rig) -> Worlds:
    """The same where the fewest honest clients round and noise their uploads in a ring, and nobody else does."""
    protection = rig.plan.protection
    guard = ClientGuard(rig.plan, rig.streams)
    code = ServerGuard(rig.plan, Ledger(rig.plan, rig.population), rig.streams).code(rig.schema)
    if code is None or not isinstance(protection, DistributedGaussian):
        raise PlanError(f"the plan {rig.plan.name!r} adds no noise in shares, so there are none to open")
    honest, users = protection.n_min_honest, min(protection.n_min_honest, _MOST_USERS_OF_A_SUM)
    everybody = torch.arange(honest)
    uploads = _members(rig, honest).materialise(everybody)
    opened = []
    for round in range(max(1, min(-(-rig.draws // users), _MOST_ENCODED // honest))):
        words = guard.words(code, uploads, rig.call(round, everybody), everybody)
        opened.append(code.decode(code.ring.sum(words)))
    return _halves(rig, opened, users)


def _halves(rig: _Rig, opened: Sequence[Mapping[str, Tensor]], users: int) -> Worlds:
    """The coordinates of sums that have a user, and as many that have none."""
    return _stacked(rig, opened, slice(users)), _stacked(rig, opened, slice(users, 2 * users))


def _stacked(rig: _Rig, released: Sequence[Mapping[str, Tensor]], part: slice) -> World:
    """Part of every release, one after another, weighted."""
    return {
        name: torch.cat([values[name][part].double().flatten() for values in released]).numpy() * block.weight
        for name, block in rig.schema.items()
    }


def _audit_cover(cover: RandomisedResponse | FakeItems, draws: int, confidence: float, seed: int) -> EmpiricalRow:
    """Whether the row of an item is sent, by people who have it and by others whose history is the same without it."""
    user = np.arange(2 * draws)
    shared = np.arange(1, _OWN)
    mine = user[:draws]
    private = Histories.from_pairs(
        np.concatenate([np.repeat(user, len(shared)), mine]),
        np.concatenate([np.tile(shared, len(user)), np.zeros(draws, np.int64)]),
        len(user),
        _ITEMS,
    )
    public = Histories.from_pairs(user, np.full(len(user), _ITEMS - 1), len(user), _ITEMS)
    covered = draw_cover(cover.model_copy(update={"seed": seed}), private, public)
    sent = np.zeros(len(user))
    for histories in (covered.kept, covered.fakes):
        sent[histories.owners[histories.items == 0]] = 1.0
    bound = clopper_pearson_epsilon(sent[:draws], sent[draws:], threshold=0.5, confidence=confidence)
    audited = "one item under the cover of rows"
    return beside(cover.claim.epsilon, bound, confidence, audited, "support", "interaction", "add_or_remove_one")
