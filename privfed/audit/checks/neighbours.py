"""Checks on neighbouring data: the same rounds with the same keys may differ only in what the claim allows.

All randomness is addressed, so two data sets that differ in one user can be run with equal keys. The world without that
user, round by round, is given the releases of the world with: then everything that server and other clients do is
a function of equal inputs, and has to be equal to the bit in every round, not only in the first. That holds for public
information, initial parameters, program, cohorts, every message, every other client's upload before and after noise,
counts, denominators and sizes. Only the one user's own contribution may differ, and so every release differs by that
contribution alone, since the noise words are the same: by no more than the sensitivity that noise was sized for.

What the second world is follows from what the claim compares:

* `add_or_remove_one` (central trust): the number of users is public, so the user stays a client slot; its history is
  empty and its upload counts as zero, which leaves the sum as it is without the user.
* `zero_out_one` (noise in shares): the same; the user's noise share is there in both worlds.
* `replace_one` (local trust): the user holds another user's history. Two uploads may be twice the clip norm apart.
* one interaction of one user (DP-SGD on the device): the newest training item of the user is missing. Uploads of the
  user may differ by what the clipped gradient of one interaction moves; this is checked where there is one local step,
  because a second step reads what the first has written.

All uploads are made a thousand clip norms long in every world, so that the clip is at work whatever a method trains,
and an upload that escapes it stands out. Compared are what single uploads or sums look like after clip, noise and
rounding. Differences are allowed the rounding of the numbers as released: of their floats, and of the grid that they
all lie on.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.audit.checks.added_noise import deviation_of_a_sum
from privfed.audit.checks.transcript_ledger import min_members
from privfed.audit.report.records import Check
from privfed.contracts import Schema, account_of, refreshes_of, share_of
from privfed.data import Histories, Split
from privfed.engines.cohorts import members
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.engines.witness import Exchange, Witness, message_digest
from privfed.experiment import Experiment, RunResult
from privfed.federation import Individual, Message, Streams, Total
from privfed.guards.tier_weights import tiers_of, weights_of
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.privacy.mechanisms.clipping import AdaptiveClip, Clip
from privfed.setup.config import ExperimentConfig

SAMPLE, ROUNDS, PEOPLE = 2, 2, 96
"""Users whom an audit takes out, rounds that it repeats, and users who take part where the plan lets so few."""

_Chooser = Callable[[np.ndarray, Histories], np.ndarray]

_NORMAL_MEDIAN = 0.6745
_FAR = 1e3
_NO_NOISE = 1e-7
_STEPS = 8.0
_ENOUGH = 64
"""Numbers on a grid of which some are odd multiples of its step."""
_MARGIN = 1e-3
"""Relative slack of a norm for arithmetic in float32; clips themselves keep a few units in the last place."""


@dataclass(frozen=True, slots=True)
class NeighbourDifference:
    """Something that was compared between two worlds, and how far apart it was.

    Attributes:
        user: who is missing or replaced.
        round: of the difference; -1 before the first.
        what: was compared.
        where: step and block, or "".
        value: distance; 0 for equal, inf for things that have no distance.
        bound: what the claim allows.
    """

    user: int
    round: int
    what: str
    where: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the claim allows the difference."""
        return self.value <= self.bound

    @property
    def sentence(self) -> str:
        """The difference in words."""
        when = "before the first round" if self.round < 0 else f"in round {self.round + 1}"
        at = f" ({self.where})" if self.where else ""
        if math.isinf(self.value):
            return f"{when}, {self.what}{at} depends on the data of user {self.user}"
        moves = f"moves by {self.value:.4g} with user {self.user}"
        return f"{when}, {self.what}{at} {moves}, at most {self.bound:.4g} is paid for"


def rerun_on_neighbours(
    config: ExperimentConfig, parts: Split, users: Sequence[int], rounds: int = ROUNDS
) -> list[NeighbourDifference]:
    """Run rounds on data with and without each of some users, and compare; see the module.

    Args:
        config: of a run whose plan guarantees something.
        parts: its data, after randomised inclusion.
        users: who is taken out, one after another; they need training items.
        rounds: from the first.

    Returns:
        Every comparison that has a distance, and every one that failed.
    """
    config = config.model_copy(update={"taps": config.taps.model_copy(update={"inclusion": 0.0, "shadows": 0})})
    with config.computing():
        original = World(config, parts, None, users)
        others = [World(config, neighbour_of(config.privacy, parts, user), user, users) for user in users]
        difference = [difference for other in others for difference in _set_up_differences(original, other)]
        for t in range(rounds):
            original.round(t)
            for other in others:
                other.round(t, original)
                difference += _round_differences(original, other, t)
                difference += _after(original, other, t)
    return difference


def neighbour_of(plan: PrivacyPlan, parts: Split, user: int) -> Split:
    """The data in the other world of a claim: without the user, with another history, or without one interaction."""
    if plan.mechanism.unit == "interaction":
        return _with_rows(parts, user, lambda own, _: own[:-1], only_training=True)
    if plan.neighbours != "replace_one":
        return _with_rows(parts, user, lambda own, _: own[:0])
    other = _unlike(parts, user)
    return _with_rows(parts, user, lambda _, rows: np.flatnonzero(rows.owners == other))


def sampled_users(parts: Split, count: int, seed: int, members: Sequence[int] = ()) -> list[int]:
    """Users to take out: the one with most training items, and others at random among those who have two.

    Args:
        parts: the data.
        count: how many.
        seed: of the choice.
        members: who takes part in the first round; others are chosen only where none of these can be.
    """
    counts = parts.train.counts
    able = np.flatnonzero(counts > 1)
    able = here if len(here := np.intersect1d(able, np.array(members, dtype=np.int64))) else able
    if not len(able):
        return []
    first = int(able[counts[able].argmax()])
    rest = np.setdiff1d(able, [first])
    sampled = np.random.default_rng([13, seed]).permutation(rest)[: count - 1]
    return [first, *sampled.tolist()]


def check_neighbours(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Replay the first rounds on neighbouring data, where a finite epsilon is claimed."""
    config, parts = experiment.config, experiment.trained
    if config.privacy.mechanism.unbounded_reason is not None or not math.isfinite(result.guarantee.epsilon):
        return
    people = repeated_people(config.privacy, parts, config.seed)
    parts = parts if len(people) == parts.train.n_users else only(parts, people)
    sampled = members(config.privacy.sampling, experiment.streams, len(people), 0).tolist()
    users, rounds = sampled_users(parts, SAMPLE, config.seed, sampled), min(ROUNDS, config.rounds)
    users += _one_of_each_tier(experiment, len(people), users)
    if not users:
        return
    differences = rerun_on_neighbours(config, parts, users, rounds)
    failed = [replace(one, user=int(people[one.user])) for one in differences if not one.holds]
    yield Check(
        name="training on neighbours",
        passed=not failed,
        detail=failed[0].sentence + _more(failed)
        if failed
        else f"{len(differences)} comparisons of {rounds} rounds of {len(people)} users with and without each of "
        f"{len(users)}: what must not depend on them was equal to the bit, and no release moved by more than the noise "
        f"was sized for; what happens in later rounds or to other users is not denied by this",
    )


def repeated_people(plan: PrivacyPlan, parts: Split, seed: int) -> Int64[np.ndarray, " people"]:
    """Users of a repetition: everybody, or fewer where rounds of these can be completed; the busiest is among them."""
    everybody = np.arange(parts.train.n_users)
    try:
        plan.check(PEOPLE)
    except PlanError:
        return everybody
    if len(everybody) <= PEOPLE or min_members(plan) > 0.7 * plan.sampling.expected(PEOPLE):
        return everybody
    sampled = np.random.default_rng([17, seed]).permutation(everybody)[: PEOPLE - 1]
    return np.union1d(sampled, [int(parts.train.counts.argmax())])


def only(parts: Split, people: Int64[np.ndarray, " people"]) -> Split:
    """The data of some users, numbered from 0."""
    names = ("train", "valid", "test")
    ratings, attributes = parts.ratings, parts.attributes
    if ratings is not None:
        keep = {name: np.isin(getattr(parts, name).owners, people) for name in names}
        ratings = replace(ratings, **{name: getattr(ratings, name)[rows] for name, rows in keep.items()})
    return replace(
        parts,
        train=parts.train.subset(people),
        valid=parts.valid.subset(people),
        test=parts.test.subset(people),
        auxiliary={name: rows.subset(people) for name, rows in parts.auxiliary.items()},
        ratings=ratings,
        attributes=None if attributes is None else attributes.iloc[people].reset_index(drop=True),
    )


def _more(failed: Sequence[NeighbourDifference]) -> str:
    return f" (and {len(failed) - 1} further comparisons failed)" if len(failed) > 1 else ""


class World:
    """One data set's run, round by round."""

    def __init__(
        self,
        config: ExperimentConfig,
        parts: Split,
        user: int | None,
        watched: Sequence[int],
        keys: Streams | None = None,
    ) -> None:
        self.user = user
        self.experiment = Experiment(config, parts, keys)
        plan = config.privacy
        self.silent = user if user is not None and plan.neighbours in ("add_or_remove_one", "zero_out_one") else None
        if plan.mechanism.unit == "interaction":
            self.silent = None
        kept = torch.tensor(sorted(watched), dtype=torch.int64)
        self.witness = Witness(
            plan,
            range(config.rounds),
            digests=True,
            silent=self.silent,
            lengths=lambda clients: _lengths(plan, clients, kept),
            kept=frozenset(watched),
        )
        self.wire = Transcript(kept, frozenset({"wire"}))
        limit = None if config.memory_limit_gib is None else int(config.memory_limit_gib * 2**30)
        self.simulation = Simulation(
            self.witness.clients(self.experiment.clients),
            plan,
            self.experiment.n_users,
            self.experiment.streams,
            Ledger(plan, self.experiment.n_users),
            chunk=config.chunk or self.experiment.registered.training.preferred_chunk(),
            memory_limit=limit,
            fidelity=config.fidelity,
            support=self.experiment.support,
            transcript=self.wire,
        )
        self.server = self.witness.server(self.experiment.server)
        self.given: list[Total | dict[str, Tensor]] = []
        self.witness.forced = self._keep
        self._moved: defaultdict[str, list[_Moved]] = defaultdict(list)

    def account(self, schema: Schema, moved: "_Moved", bound: float, t: int) -> "Iterator[NeighbourDifference]":
        """How far all sums so far that share an account have moved together: by what one query may."""
        if refreshes_of(schema) == 1:
            return
        sums = self._moved[account_of(schema)]
        sums.append(moved)
        value, slack = (math.hypot(*(getattr(one, name) for one in sums)) for name in ("value", "slack"))
        user = self.user if self.user is not None else -1
        what = f"the {len(sums)} released sums of one account together"
        yield NeighbourDifference(user, t, what, account_of(schema), value, bound + slack)

    def round(self, t: int, original: "World | None" = None) -> None:
        """Run round `t`; with the releases of another world, where one is given."""
        self.witness.exchanges.clear()
        self.wire.observations.clear()
        self.given.clear()
        if original is not None:
            self.witness.forced = lambda exchange, released: self._force(original, exchange, released)
        self.simulation.run(self.server, t)

    def _keep(self, exchange: Exchange, released: Total | Individual) -> Total | Individual:
        """Remember what the other world is to be given: sums whole, of single uploads those that will differ."""
        exchange.followed = dict(self.simulation.server_guard.clip_norms)
        if isinstance(released, Total):
            self.given.append(
                Total({n: v.clone() for n, v in released.sums.items()}, released.denominator, released.revealed)
            )
        else:
            at = torch.isin(released.pseudonyms, self.wire.audited)
            self.given.append({n: v[at].clone() for n, v in released.uploads.items()})
        return released

    def _force(self, original: "World", exchange: Exchange, released: Total | Individual) -> Total | Individual:
        exchange.followed = dict(self.simulation.server_guard.clip_norms)
        number = len(self.witness.exchanges) - 1
        if number >= len(original.given):
            return released
        given, self.simulation.server_guard.clip_norms = (
            original.given[number],
            dict(original.witness.exchanges[number].followed),
        )
        if isinstance(given, Total):
            return Total({n: v.clone() for n, v in given.sums.items()}, given.denominator, given.revealed)
        if isinstance(released, Individual):
            at = torch.isin(released.pseudonyms, self.wire.audited)
            for name, values in released.uploads.items():
                if name in given and len(given[name]) == int(at.sum()):
                    values[at] = given[name]
        return released

    def singles(self, exchange: Exchange) -> dict[int, dict[str, Tensor]]:
        """What each watched user put on the wire in this query."""
        seen = [o for o in self.wire.observations if o.round == exchange.cohort.round]
        calls = [e for e in self.witness.exchanges if e.trained]
        if not seen or exchange not in calls:
            return {}
        position, by_user = calls.index(exchange), dict[int, list[dict[str, Tensor]]]()
        for one in seen:
            for row, user in enumerate(one.users.tolist()):
                by_user.setdefault(user, []).append({name: values[row] for name, values in one.tensors.items()})
        return {user: uploads[position] for user, uploads in by_user.items() if position < len(uploads)}


def _set_up_differences(a: World, b: World) -> Iterator[NeighbourDifference]:
    """What server and clients were built from, before the first query."""
    one, two = a.experiment, b.experiment
    user = b.user if b.user is not None else -1
    pairs: dict[str, list[object]] = {
        "the number of users or items that the server is told": [
            (e.public_info.n_users, e.public_info.n_items, e.public_info.sums) for e in (one, two)
        ],
        "the item descriptions that the server is given": [
            None if e.public_info.item_info is None else e.public_info.item_info.to_json() for e in (one, two)
        ],
        "the public histories that the server is given": [_digest_of(e.public_info.public) for e in (one, two)],
        "what the server sends before anything was released": [message_digest(e.server.public()) for e in (one, two)],
        "the server's initial state": [message_digest(Message(e.server.state())) for e in (one, two)],
        "the schema of uploads": [_layout(e.server.schema) for e in (one, two)],
        "the program of queries": [
            [(_layout(query.schema), query.down_bytes) for query in e.registered.training.program(e.server)]
            for e in (one, two)
        ],
        "which rows other users announce": [
            None if e.support is None else _digest_of(e.support, leaving=user) for e in (one, two)
        ],
    }
    yield NeighbourDifference(user, -1, "everything public", "", 0.0, 0.0)
    yield from (
        NeighbourDifference(user, -1, what, "", math.inf, 0.0) for what, both in pairs.items() if both[0] != both[1]
    )


def _round_differences(a: World, b: World, t: int) -> Iterator[NeighbourDifference]:
    """What was sent, queried and released in one round."""
    user, left, right = b.user if b.user is not None else -1, a.witness.exchanges, b.witness.exchanges
    queries = [[(e.step, _layout(e.schema)) for e in exchanges] for exchanges in (left, right)]
    if queries[0] != queries[1]:
        yield NeighbourDifference(user, t, "what is queried", "", math.inf, 0.0)
        return
    for one, two in zip(left, right, strict=True):
        yield from _equal_parts(one, two, user, t)
        if one.answered and two.answered:
            yield from _release_differences(a, b, one, two, t)


def _equal_parts(one: Exchange, two: Exchange, user: int, t: int) -> Iterator[NeighbourDifference]:
    """Parts of a query that have to be equal to the bit."""
    others = [{who: digest for who, digest in e.uploads.items() if who != user} for e in (one, two)]
    singles = [{who: digest for who, digest in e.singles.items() if who != user} for e in (one, two)]
    pairs = {
        "what the server sends": (one.message, two.message),
        "what clients receive": (one.received, two.received),
        "who takes part": (one.members.tolist(), two.members.tolist()),
        "whether the round is aborted": (one.answered, two.answered),
        "the announced clip norm": (one.clip_norm, two.clip_norm),
        "the denominator of means": (one.denominator, two.denominator),
        "which rows are revealed": (_opened(one), _opened(two)),
        "who releases a single upload": (one.pseudonyms, two.pseudonyms),
        "what other users upload before clip and noise": (others[0], others[1]),
        "what other users upload after clip and noise": (singles[0], singles[1]),
    }
    yield NeighbourDifference(user, t, "everything but the user's own upload", one.step, 0.0, 0.0)
    for what, (left, right) in pairs.items():
        if left != right:
            yield NeighbourDifference(user, t, what, one.step, math.inf, 0.0)


def _release_differences(a: World, b: World, one: Exchange, two: Exchange, t: int) -> Iterator[NeighbourDifference]:
    """How far a release moves, in the norm that noise was sized for."""
    plan, user = a.experiment.config.privacy, b.user if b.user is not None else -1
    clip = plan.mechanism.clip
    left, right = a.singles(one), b.singles(two)
    for other in sorted(left.keys() & right.keys() - {user}):
        if any(not torch.equal(left[other][name], right[other][name]) for name in one.schema):
            yield NeighbourDifference(
                user, t, f"the upload of user {other} after clip and noise", one.step, math.inf, 0.0
            )
    if plan.mechanism.unit == "interaction":
        yield from _interaction_differences(a, left, right, one, user, t)
        return
    if clip is None:
        return
    # Laplace noise hides an L1 distance, Gaussian noise an L2 one, whatever the clip measures.
    counts, order = _counts(a, user), 1 if plan.mechanism.noise_law == "laplace" else 2
    bound = (one.clip_norm or clip.norm) * math.sqrt(share_of(one.schema)) * counts
    # A user that falls silent moves a release by its own upload; one that uploads otherwise, by both.
    steps = 1 if b.silent is not None else 2
    if user in left and user in right:
        slack = _slack(plan, left[user], right[user], one)
        moved = _moved(left[user], right[user], one.schema, order, slack)
        yield NeighbourDifference(user, t, "the user's own upload", one.step, moved.value, steps * bound + moved.slack)
        if user in one.own_updates and user in two.own_updates:
            first, second = _residual(left[user], one, user), _residual(right[user], two, user)
            what = "what is added to the user's clipped upload, in steps of rounding,"
            yield NeighbourDifference(user, t, what, one.step, _apart(first, second, slack), _STEPS)
    if one.released and two.released:
        slack = _slack(plan, one.released, two.released, one, a.experiment.n_users)
        moved = _moved(one.released, two.released, one.schema, order, slack)
        yield NeighbourDifference(user, t, "a released sum", one.step, moved.value, steps * bound + moved.slack)
        yield from _rounding(plan, one, two, user, t)
        yield from b.account(one.schema, moved, steps * bound, t)
        yield from _unclipped(plan, one, a.experiment.n_users, user, t)
        away = _apart(one.noise(), two.noise(), slack)
        yield NeighbourDifference(user, t, "the noise of a sum, in steps of rounding", one.step, away, _STEPS)
        yield from _block_differences(clip, one, two, slack, steps * counts, user, t)


def _counts(world: World, user: int) -> float:
    """What the clipped upload of a user may count: the weight of the tier that the claim about this user names."""
    plan, streams = world.experiment.config.privacy, world.experiment.streams
    return float(weights_of(plan.tiers, streams, torch.tensor([user]))[0])


def _one_of_each_tier(experiment: Experiment, population: int, chosen: list[int]) -> list[int]:
    """Further users, so that those who are taken out come from every tier."""
    tiers = experiment.config.privacy.tiers
    if tiers is None or not chosen:
        return []
    at = tiers_of(tiers, experiment.streams, torch.arange(population))
    missing = np.setdiff1d(np.unique(at), at[chosen])
    return [int(np.flatnonzero(at == tier)[0]) for tier in missing]


def _apart(first: Mapping[str, Tensor], second: Mapping[str, Tensor], slack: Mapping[str, float]) -> float:
    """Largest distance of two values per block, in units of rounding."""
    return max((float((first[n] - second[n]).abs().max()) / slack[n] for n in first), default=0.0)


def _block_differences(
    clip: Clip, one: Exchange, two: Exchange, slack: Mapping[str, float], steps: float, user: int, t: int
) -> Iterator[NeighbourDifference]:
    """How far every block of a sum moves, where blocks have clips of their own."""
    if clip.per_block is None:
        return
    real = [name for name, block in one.schema.items() if block.kind == "real"]
    bounds = dict(zip(real, clip.bounds(real), strict=True))
    for name in real:
        moved = _moved(one.released, two.released, {name: one.schema[name]}, clip.order, slack)
        bound = bounds[name] * math.sqrt(share_of(one.schema)) * steps
        yield NeighbourDifference(user, t, "a block of a released sum", name, moved.value, bound + moved.slack)


def _unclipped(
    plan: PrivacyPlan, exchange: Exchange, population: int, user: int, t: int
) -> Iterator[NeighbourDifference]:
    """What is in a sum beside the clipped uploads, over the noise that is claimed: an upload that no clip has seen."""
    deviation = deviation_of_a_sum(plan, exchange, population)
    if deviation <= 0 or plan.upload_bits is not None:
        return
    for name, values in exchange.noise().items():
        value = float(values.norm()) / math.sqrt(len(values)) / deviation
        where = f"{exchange.step}, {name}, in claimed deviations"
        yield NeighbourDifference(
            user, t, "what a sum holds beside clipped uploads", where, value, 1.03 + 7 / math.sqrt(len(values))
        )


def _rounding(plan: PrivacyPlan, one: Exchange, two: Exchange, user: int, t: int) -> Iterator[NeighbourDifference]:
    """How far rounding to the grid of a trusted server's noise may move a sum: noise is wider for a trifle only."""
    multiplier, clip = plan.mechanism.server_noise_multiplier, plan.mechanism.clip
    coordinates = sum(one.schema[name].size for name in one.released)
    if multiplier is None or clip is None or coordinates < _ENOUGH:
        return
    moves = [
        one.schema[name].weight * grid_of(torch.stack([values, two.released[name]])) * one.schema[name].size ** 0.5
        for name, values in one.released.items()
        if one.schema[name].size >= _ENOUGH
    ]
    bound = (one.clip_norm or clip.norm) * max(2.0**-10, multiplier * 2.0**-30 * coordinates**0.5)
    yield NeighbourDifference(user, t, "the rounding of a released sum", one.step, math.hypot(*moves), bound)


def _residual(sent: Mapping[str, Tensor], exchange: Exchange, user: int) -> dict[str, Tensor]:
    """An upload as it was sent less the clipped one, in weighted coordinates."""
    return {
        name: (sent[name].double() - clipped.double()) * exchange.schema[name].weight
        for name, clipped in exchange.own_updates[user].items()
    }


def _lengths(plan: PrivacyPlan, clients: Tensor, kept: Tensor) -> Tensor:
    """Clip norms that uploads are made long; half of them short where the clip follows how many are."""
    adaptive = plan.mechanism.adaptive_clip
    if adaptive is None:
        return torch.full((len(clients),), _FAR, dtype=torch.float64)
    far = (clients % 2 == 0) | torch.isin(clients, kept)
    # Counted are norms up to this many clip norms, which are few where the clip norm is a multiple of the median.
    return torch.where(far, _FAR, 0.5 * min(adaptive.counted_over_clip, 1.0)).double()


def _interaction_differences(
    a: World,
    left: Mapping[int, Mapping[str, Tensor]],
    right: Mapping[int, Mapping[str, Tensor]],
    exchange: Exchange,
    user: int,
    t: int,
) -> Iterator[NeighbourDifference]:
    """How far one interaction moves its user's upload: by one clip norm where z clip norms are the noise."""
    steps = a.experiment.config.privacy.mechanism.noisy_steps
    if steps is None or steps.steps > 1 or user not in left or user not in right:
        return
    for name, block in exchange.schema.items():
        if block.kind != "real":
            continue
        deviation = float(left[user][name].abs().median()) / _NORMAL_MEDIAN
        value = float((left[user][name].double() - right[user][name].double()).norm())
        bound = 1.1 * deviation / steps.noise_multiplier + 1e-6 * math.sqrt(block.size)
        yield NeighbourDifference(user, t, "the user's own upload", f"{exchange.step}, {name}", value, bound)


def _after(a: World, b: World, t: int) -> Iterator[NeighbourDifference]:
    """What a round leaves behind, given equal releases: parameters, bytes, an adaptive clip norm."""
    user, plan = b.user if b.user is not None else -1, a.experiment.config.privacy
    if message_digest(a.server.public()) != message_digest(b.server.public()):
        yield NeighbourDifference(user, t, "what the server sends after the round", "", math.inf, 0.0)
    sizes = a.simulation.costs.up_bytes, b.simulation.costs.up_bytes
    if plan.mechanism.trust != "central" and sizes[0] != sizes[1]:
        yield NeighbourDifference(user, t, "how many bytes are uploaded", "", math.inf, 0.0)
    if a.simulation.costs.aborted_rounds != b.simulation.costs.aborted_rounds:
        yield NeighbourDifference(user, t, "whether the round is aborted", "", math.inf, 0.0)
    adaptive = plan.mechanism.adaptive_clip
    if adaptive is not None:
        rate = adaptive.rate_in(t) / max(plan.sampling.expected(a.experiment.n_users), 1.0)
        for one in a.witness.exchanges:
            if _without_noise(plan, adaptive, one, a.experiment.n_users, t):
                what = "the count behind the clip norm, which has no noise of its own,"
                yield NeighbourDifference(user, t, what, one.step, math.inf, 0.0)
        for one, two in zip(a.witness.exchanges, b.witness.exchanges, strict=False):
            for step in one.followed.keys() & two.followed.keys():
                value = abs(math.log(one.followed[step] / two.followed[step])) / rate
                yield NeighbourDifference(user, t, "the count behind the clip norm", step, value, 1.0 + 1e-6)


def _without_noise(plan: PrivacyPlan, adaptive: AdaptiveClip, exchange: Exchange, population: int, t: int) -> bool:
    """Whether the clip norm followed the exact count of short uploads."""
    if exchange.within is None or exchange.clip_norm is None or exchange.step not in exchange.followed:
        return False
    share = adaptive.quantile - math.log(exchange.followed[exchange.step] / exchange.clip_norm) / adaptive.rate_in(t)
    if not _NO_NOISE < share < 1 - _NO_NOISE:
        # Cut to a share: where everybody or nobody is within the clip norm, noise cannot be told from none.
        return False
    count = (share - 0.5) * max(plan.sampling.expected(population), 1.0)
    return abs(count - (exchange.within - len(exchange.members) / 2)) < _NO_NOISE * adaptive.count_noise


@dataclass(frozen=True, slots=True)
class _Moved:
    """A distance in weighted coordinates, and what rounding may add to it."""

    value: float
    slack: float


def _moved(
    left: Mapping[str, Tensor], right: Mapping[str, Tensor], schema: Schema, order: int, slack: Mapping[str, float]
) -> _Moved:
    real = [name for name, block in schema.items() if block.kind == "real" and name in left]
    parts = [(left[n].double() - right[n].double()).flatten() * schema[n].weight for n in real]
    if not parts:
        return _Moved(0.0, 0.0)
    value = float(torch.cat(parts).norm(p=order))
    allowed = [slack[n] * schema[n].size ** (1 / order) for n in real]
    return _Moved(value, _MARGIN * value + (sum(allowed) if order == 1 else math.hypot(*allowed)))


def _slack(
    plan: PrivacyPlan,
    left: Mapping[str, Tensor],
    right: Mapping[str, Tensor],
    exchange: Exchange,
    population: int = 1,
) -> dict[str, float]:
    """What rounding may change of each weighted coordinate between two worlds, by block."""
    of_noise = 0.0
    masking = plan.mechanism.masking
    if masking is not None and masking.noise is not None:
        real = [block.size for block in exchange.schema.values() if block.kind == "real"]
        max_clients = plan.sampling.max_cohort(population)
        code = masking.noised(masking.noise, sum(real) or 1, max_clients, share_of(exchange.schema))
        of_noise = 2 * code.grid
    slack = {}
    for name, block in exchange.schema.items():
        if block.kind == "real" and name in left:
            both = torch.stack([left[name].float().flatten(), right[name].float().flatten()])
            slack[name] = of_noise + block.weight * (grid_of(both) + 2.0**-22 * float(both.abs().max()))
            if plan.upload_bits is not None:
                slack[name] += 2 * block.weight * float(both.abs().max()) / (2 ** (plan.upload_bits - 1) - 1)
    return slack


def grid_of(values: Tensor) -> float:
    """The largest power of two of which all these float32 numbers are multiples; 0 where all are 0."""
    bits = values.float().contiguous().view(torch.int32).cpu().numpy().ravel()
    bits = bits[(bits & 0x7FFFFFFF) != 0]
    if not len(bits):
        return 0.0
    exponent = (bits >> 23) & 0xFF
    mantissa = np.where(exponent > 0, (bits & 0x7FFFFF) | 0x800000, bits & 0x7FFFFF)
    lowest = np.log2((mantissa & -mantissa).astype(np.float64)).astype(np.int64) + np.maximum(exponent, 1) - 150
    return math.ldexp(1.0, int(lowest.min()))


def _layout(schema: Schema) -> list[tuple[object, ...]]:
    return [(name, b.shape, b.kind, b.weight, b.bound, b.divides, b.counts, b.share) for name, b in schema.items()]


def _opened(exchange: Exchange) -> dict[str, list[bool]]:
    return {name: rows.tolist() for name, rows in exchange.revealed.items()}


def _digest_of(histories: Histories | None, leaving: int = -1) -> tuple[bytes, ...] | None:
    if histories is None:
        return None
    keep = histories.owners != leaving
    return histories.owners[keep].tobytes(), histories.items[keep].tobytes()


def _unlike(parts: Split, user: int) -> int:
    """Another user with as many training items as possible that this one does not have."""
    history = parts.train.items_of(user)
    new = ~np.isin(parts.train.items, history)
    fresh = np.bincount(parts.train.owners[new], minlength=parts.train.n_users)
    fresh[user] = -1
    return int(fresh.argmax())


def _with_rows(parts: Split, user: int, choose: _Chooser, *, only_training: bool = False) -> Split:
    """The split in which some user has other rows.

    Args:
        parts: before.
        user: who.
        choose: (own rows, a part) -> rows of the part that the user has instead.
        only_training: leave held-out items and other behaviours as they are.
    """

    def places(rows: Histories) -> np.ndarray:
        row = np.arange(rows.indptr[user], rows.indptr[user + 1])
        return np.concatenate(
            [np.arange(rows.indptr[user]), choose(row, rows), np.arange(rows.indptr[user + 1], len(rows))]
        )

    def changed(rows: Histories, at: np.ndarray) -> Histories:
        count = len(at) - (len(rows) - int(rows.counts[user]))
        counts = np.where(np.arange(rows.n_users) == user, count, rows.counts)
        return Histories(np.concatenate(([0], counts.cumsum())), rows.items[at], rows.n_items)

    names = ("train",) if only_training else ("train", "valid", "test")
    at = {name: places(getattr(parts, name)) for name in names}
    ratings = parts.ratings
    if ratings is not None:
        ratings = replace(ratings, **{name: getattr(ratings, name)[rows] for name, rows in at.items()})
    auxiliary = parts.auxiliary
    if not only_training:
        auxiliary = {name: changed(rows, places(rows)) for name, rows in parts.auxiliary.items()}
    new: dict[str, Any] = {name: changed(getattr(parts, name), rows) for name, rows in at.items()}
    return replace(parts, **new, ratings=ratings, auxiliary=auxiliary)
