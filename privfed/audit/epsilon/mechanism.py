"""Lower bounds on the epsilon of single uploads, measured by running prescribed uploads through the engines.

Prescribed uploads go through the engines of a run (`privfed.audit.epsilon.probes`): `Simulation`, and nodes behind
their messages, for single uploads and for sums, over rounds far apart and several queries in each. Three things are
tested:

| what | two worlds | statistic | bound |
|---|---|---|---|
| one upload | an input and its opposite (local), or nothing | linear, of one release | Clopper-Pearson, or GDP |
| uploads to several queries and rounds | the same, with signs that alternate | linear, of all | the same |
| secrets | random bits that an upload spells | signs of a release, or of a difference of two | `secrets_epsilon` |
| padding of rows | a history with an item, and without | whether its row is sent | Clopper-Pearson |

The bound for Laplace noise is Clopper and Pearson's, for Gaussian noise the one through mu (Jagielski, Ullman and
Oprea, NeurIPS 2020; Nasr et al., USENIX Security 2023).

The worst pair is searched for. In a first set of draws, every direction (`inputs.candidates`: a coordinate, a row,
rows, a block, all blocks, equal and not) goes in at the clip, slightly above and far above it, as dense tables, rows
and outer products; the statistic is Fisher's discriminant of what came out, so that it uses whatever noise leaves alone
and cancels noise that repeats. The pair that is told apart best, where it is told apart better than chance explains,
and the statistic and its threshold are then fixed, and measured on draws of their own. Nothing is measured on what it
was chosen by, so the bounds keep their confidence.

The secrets find what two worlds cannot deny at a large claim: a release without any noise, in one block, query or
round, and noise that two releases, two rounds or two users have in common, which their difference is free of.

For honest code a bound lies a few per cent below its claim. A bound above it is measured once more with fresh draws,
and the second measurement counts: an audit of many plans must not accuse one of them by chance.

Noise is the same on every coordinate, so short blocks do. An audit is a simulation: its seed decides all
randomness, also that of the nodes, and the same plan gives the same rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from attacks.empirical import CONFIDENCE, clopper_pearson_epsilon
from privfed.audit.epsilon.claims import empirical_row, query_epsilon
from privfed.audit.epsilon.probes.engines import Engine, over_nodes, simulated
from privfed.audit.epsilon.probes.pairs import MeasuredPair, PairSearch
from privfed.audit.epsilon.probes.routing import Route, shares_clip
from privfed.audit.epsilon.probes.secrets import RecoveredSecrets, recovered
from privfed.audit.report.records import EmpiricalRow
from privfed.contracts import Fidelity, Schema
from privfed.data import Histories
from privfed.privacy import PrivacyPlan
from privfed.privacy.padding.base import SampledPadding
from privfed.privacy.sampling import All
from privfed.setup.padded_histories import sample_padding

DRAWS = 5_000
"""Draws of each world on which one upload is measured."""

IN_SHARES = "integer noise of this width is as good as Gaussian"
"""What the bound for noise in shares assumes; their claim does not."""

_PADDING_DRAWS = 20_000
_ITEMS, _HISTORY = 16, 3
"""Items of the catalogue and of a history under padding."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One way of an upload to the server.

    Attributes:
        engine: that carries it.
        name: what is tested, in words.
        each: whether it is released by itself.
        draws: share of the draws that are asked for.
        pairs: whether two worlds are told apart, or secrets read only.
    """

    engine: Engine
    name: str
    each: bool = False
    draws: float = 1.0
    pairs: bool = True


_ALONE: tuple[_Path, ...] = (
    _Path(simulated, "one upload", each=True),
    _Path(over_nodes, "one upload over nodes", each=True, draws=0.5),
    _Path(simulated, "one upload in a sum", pairs=False),
    _Path(over_nodes, "one upload in a sum over nodes", pairs=False),
)
_SUMMED: tuple[_Path, ...] = (
    _Path(simulated, "one upload in a sum"),
    _Path(over_nodes, "one upload in a sum over nodes", draws=0.5),
)


def audit_mechanism(
    plan: PrivacyPlan,
    schema: Schema,
    population: int,
    *,
    program: Sequence[Schema] = (),
    draws: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    fidelity: Fidelity = "exact",
) -> list[EmpiricalRow]:
    """Measured lower bounds on the epsilon of uploads under `plan`, each beside what the plan claims for it.

    Args:
        plan: the privacy plan that the engines run under, with everybody in every round.
        schema: blocks of the method's training step.
        population: number of users of the run.
        program: blocks of all queries of a round; where several use shares of one clip norm, these are tested together,
            and not `schema`.
        draws: of each world on which one upload is measured; None takes `DRAWS`.
        confidence: probability with which a bound stays below the truth.
        seed: of the randomness.
        fidelity: how closely the simulation keeps to the wire.

    Returns:
        For every path of an upload to the server at most three rows; none where the plan claims nothing about one
        upload, or (noise inside local training) nothing that an engine adds.
    """
    measure = partial(_measured, plan, shares_clip(program) or [schema], population, draws, confidence, fidelity)
    rows = measure(seed)
    if all(row.consistent for row in rows):
        return rows
    return [row if row.consistent else again for row, again in zip(rows, measure(seed + 1), strict=True)]


def _measured(
    plan: PrivacyPlan,
    queries: Sequence[Schema],
    population: int,
    draws: int | None,
    confidence: float,
    fidelity: Fidelity,
    seed: int,
) -> list[EmpiricalRow]:
    """One measurement of every path."""
    mechanism = plan.mechanism
    if mechanism.secret_sharing is not None and mechanism.secret_sharing.padding.sampler is not None:
        return [_audit_padding(mechanism.secret_sharing.padding.sampler, draws or _PADDING_DRAWS, confidence, seed)]
    if not mechanism.adds_noise or math.isinf(query_epsilon(plan, queries, population)):
        return []
    paths = _ALONE if mechanism.release == "individual" else _SUMMED
    everybody, rows = plan.model_copy(update={"sampling": All()}), list[EmpiricalRow]()
    for path, tier in product(paths, _tiers(everybody)):
        route = Route(path.engine, path.each, tier.plan, queries, fidelity, seed)
        if path.pairs:
            measured_pairs = PairSearch(route, math.ceil((draws or DRAWS) * path.draws), confidence).measured()
            rows += [_row(path, route, one, population, confidence, tier) for one in measured_pairs]
        rows.append(_row(path, route, recovered(route, confidence), population, confidence, tier))
    return rows


class _TierPlan(NamedTuple):
    """A plan all of whose users count the same, and what to call them."""

    plan: PrivacyPlan
    weight: float = 1.0
    of: str = ""


def _tiers(plan: PrivacyPlan) -> list[_TierPlan]:
    """The plan itself, or for each tier that contributes anything the plan with everybody in it."""
    if plan.tiers is None:
        return [_TierPlan(plan)]
    return [
        _TierPlan(plan.model_copy(update={"tiers": plan.tiers.with_everybody_in(name)}), weight, f", tier {name}")
        for name, weight in zip(plan.tiers.names, plan.tiers.weights.tolist(), strict=True)
        if weight > 0
    ]


def _row(
    path: _Path,
    route: Route,
    measurement: MeasuredPair | RecoveredSecrets,
    population: int,
    confidence: float,
    tier: _TierPlan,
) -> EmpiricalRow:
    """What was measured, beside the claim for as many releases."""
    bound, queries = measurement.bound, measurement.claimed_queries
    if route.plan.mechanism.noise_shares is not None and isinstance(measurement, MeasuredPair):
        bound = replace(bound, assumes=IN_SHARES)
    audited = path.name
    if isinstance(measurement, RecoveredSecrets):
        audited = f"secrets in {path.name}"
    elif len(queries) > 1:
        audited = f"{path.name}, in each of {len(queries)} queries"
    row = empirical_row(
        query_epsilon(route.plan, queries, population, tier.weight), bound, confidence, audited + tier.of,
        "wire" if path.each else "sum", "upload", route.plan.neighbours,
    )  # fmt: skip
    return row.model_copy(update={"largest_deniable": measurement.deniable, "worst_case": measurement.worst})


def _audit_padding(padding: SampledPadding, draws: int, confidence: float, seed: int) -> EmpiricalRow:
    """Whether the row of an item is sent, by people who have it and by others whose history is the same without it."""
    user = np.arange(2 * draws)
    shared = np.arange(1, _HISTORY)
    holders = user[:draws]
    private = Histories.from_pairs(
        np.concatenate([np.repeat(user, len(shared)), holders]),
        np.concatenate([np.tile(shared, len(user)), np.zeros(draws, np.int64)]),
        len(user),
        _ITEMS,
    )
    public = Histories.from_pairs(user, np.full(len(user), _ITEMS - 1), len(user), _ITEMS)
    padded = sample_padding(padding.model_copy(update={"seed": seed}), private, public)
    sent = np.zeros(len(user))
    for histories in (padded.kept, padded.fake_items):
        sent[histories.owners[histories.items == 0]] = 1.0
    bound = clopper_pearson_epsilon(sent[:draws], sent[draws:], threshold=0.5, confidence=confidence)
    audited = "one item under the padding of rows"
    return empirical_row(
        padding.claim.epsilon, bound, confidence, audited, "support", "interaction", "add_or_remove_one"
    )
