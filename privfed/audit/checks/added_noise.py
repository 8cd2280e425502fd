"""Checks of added noise: what was released less what the clip lets through, against the claimed noise.

A witness (`privfed.engines.witness`) and the taps keep, for some rounds, uploads before the clip beside releases after
the noise. Clipped by arithmetic of the audit's own, the difference is the noise itself, and is tested for four things:
is there as much of it as the ledger's mechanism needs, in every block and every row; is any coordinate left without
noise; and has any of it been used before, in another round, query, block or for another client.

Thresholds are p-values of an honest run, divided among all tests of a run, so an honest audit fails with probability
below one in a million.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float64
from scipy import stats

from privfed.audit.report.records import Check
from privfed.contracts import Block, Schema, share_of
from privfed.engines.transcript import PROXIMAL
from privfed.engines.witness import Exchange, clipped_uploads
from privfed.experiment import Experiment, RunResult
from privfed.privacy import PrivacyPlan

P_VALUE = 1e-9
_SLACK = 0.985
"""Share of the claimed deviation that passes: samplers, grids and float sums are not exact to the last per mille."""
_CLIENTS = 12
_VECTORS, _LENGTH, _FEWEST, _FEWEST_NORMAL = 48, 200_000, 100, 4
_ALIKE, _SOME_NOISE = 0.2, 1e-3
_NARROW = 4


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredNoise:
    """Noise of one release.

    Attributes:
        where: round, and client or step, in words.
        user: whose upload; None for a sum.
        blocks: weighted residuals over their claimed deviation, by block.
        shapes: declared blocks.
        terms: independent draws that were added up in each coordinate; 1 for a single draw.
        laplace: whether a draw is Laplace noise; otherwise it is close to normal.
        rounding: what rounding may have done to a coordinate, over the deviation, by block.
        above: whether more noise than claimed is a fault, too.
    """

    where: str
    user: int | None
    blocks: Mapping[str, Float64[np.ndarray, " size"]]
    shapes: Mapping[str, Block]
    terms: int
    laplace: bool
    rounding: Mapping[str, float]
    above: bool = True


def check_added_noise(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Noise of the tapped rounds against the plan, where a finite epsilon is claimed."""
    plan = experiment.config.privacy
    if plan.mechanism.unbounded_reason is not None or not math.isfinite(result.guarantee.epsilon):
        return
    if plan.mechanism.unit == "interaction":
        yield from _check_noisy_steps(result)
        return
    noises = [*of_sums(plan, _asked(result), experiment.n_users), *_of_single_uploads(experiment, result)]
    if not noises:
        return
    faults = [*repeats(noises), *amounts(noises)]
    yield Check(
        name="noise that was added",
        passed=not faults,
        detail=faults[0] + (f" (and {len(faults) - 1} further findings)" if len(faults) > 1 else "")
        if faults
        else f"the noise in {len(noises)} releases, which is what they are less the clipped uploads, has the claimed "
        f"deviation in every block and row, and none of it was used twice; deviations up to {100 * (1 - _SLACK):.1f} % "
        f"too small are not denied",
    )


def of_sums(plan: PrivacyPlan, exchanges: Iterable[Exchange], population: int) -> Iterator[RecoveredNoise]:
    """Noise of every sum that a witness has clipped the uploads of."""
    for exchange in exchanges:
        if not exchange.released:
            continue
        members = len(exchange.members)
        deviation, terms, laplace = _of_a_sum(plan, exchange, population, members)
        if deviation <= 0:
            continue
        above = plan.mechanism.noise_shares is None and plan.upload_bits is None
        noise = exchange.noise()
        yield RecoveredNoise(
            f"round {exchange.cohort.round + 1}, step {exchange.step!r}",
            None,
            {name: values.numpy() / deviation for name, values in noise.items()},
            exchange.schema,
            terms,
            laplace,
            {
                name: 2.0**-22 * exchange.schema[name].weight * float(exchange.released[name].abs().max()) / deviation
                for name in noise
            },
            above,
        )


def deviation_of_a_sum(plan: PrivacyPlan, exchange: Exchange, population: int) -> float:
    """Standard deviation of the noise on a weighted coordinate of a sum, as the plan has it; 0 where it has none."""
    return _of_a_sum(plan, exchange, population, len(exchange.members))[0]


def _of_a_sum(plan: PrivacyPlan, exchange: Exchange, population: int, members: int) -> tuple[float, int, bool]:
    """(deviation of a weighted coordinate, draws added up in it, whether they are Laplace)."""
    mechanism = plan.mechanism
    multiplier, masking = mechanism.server_noise_multiplier, mechanism.masking
    if multiplier is not None and mechanism.clip is not None:
        return multiplier * (exchange.clip_norm or mechanism.clip.norm), 1, False
    if masking is not None and masking.noise is not None:
        real = sum(block.size for block in exchange.schema.values() if block.kind == "real") or 1
        max_clients = plan.sampling.max_cohort(population)
        code = masking.noised(masking.noise, real, max_clients, share_of(exchange.schema))
        # As it was set, where there is such a setting: what follows from it is what is checked.
        honest: int = getattr(mechanism, "n_min_honest", masking.noise.min_honest)
        variance = code.event().total_variance / honest * members
        return code.grid * math.sqrt(variance), 1, False
    noise = mechanism.noise
    if noise is None:
        return 0.0, 1, False
    spread = math.sqrt(2) if noise.law == "laplace" else 1.0
    return noise.scale * spread * math.sqrt(members), max(members, 1), noise.law == "laplace"


def _of_single_uploads(experiment: Experiment, result: RunResult) -> Iterator[RecoveredNoise]:
    plan = experiment.config.privacy
    noise = plan.mechanism.noise
    if plan.mechanism.release != "individual" or noise is None:
        return
    schemas = {e.cohort.round: e.schema for e in _asked(result) if e.step == experiment.registered.training.step}
    deviation = noise.scale * (math.sqrt(2) if noise.law == "laplace" else 1.0)
    wires = {seen.round: seen for seen in result.transcript.joined("wire")}
    for raw in result.transcript.joined("raw"):
        wire, schema = wires.get(raw.round), schemas.get(raw.round)
        if wire is None or schema is None or not torch.equal(raw.users, wire.users):
            continue
        some = slice(0, _CLIENTS)
        before = {name: values[some] for name, values in raw.tensors.items() if name != PROXIMAL and name in schema}
        clipped, _ = clipped_uploads(before, plan, schema, None)
        for index, user in enumerate(raw.users[some].tolist()):
            yield _of_one(
                plan,
                schema,
                deviation,
                raw.round,
                user,
                {
                    name: (wire.tensors[name][index].double(), values[index].double())
                    for name, values in clipped.items()
                },
                laplace=noise.law == "laplace",
            )


def _of_one(
    plan: PrivacyPlan,
    schema: Schema,
    deviation: float,
    round: int,
    user: int,
    pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
    *,
    laplace: bool,
) -> RecoveredNoise:
    blocks, rounding = {}, {}
    for name, (sent, clipped) in pairs.items():
        weight, largest = schema[name].weight, float(sent.abs().max())
        blocks[name] = ((sent - clipped) * weight / deviation).flatten().numpy()
        rounding[name] = 2.0**-22 * weight * largest / deviation
        if plan.upload_bits is not None:
            rounding[name] += weight * largest / (2 ** (plan.upload_bits - 1) - 1) / deviation
    return RecoveredNoise(
        f"round {round + 1}, the upload of user {user}",
        user,
        blocks,
        schema,
        1,
        laplace,
        rounding,
        above=plan.upload_bits is None,
    )


def _asked(result: RunResult) -> Sequence[Exchange]:
    return result.witness.exchanges if result.witness is not None else ()


def amounts(noises: Sequence[RecoveredNoise]) -> Iterator[str]:
    """Too little noise (or too much) in a release, a block, a row, or none on some coordinates."""
    level = P_VALUE / (4 * sum(len(noise.blocks) for noise in noises))
    for noise in noises:
        for name, values in noise.blocks.items():
            yield from _amount(noise, name, values, level)


def _amount(noise: RecoveredNoise, name: str, values: Float64[np.ndarray, " size"], level: float) -> Iterator[str]:
    where, share = f"{noise.where}, block {name!r}", math.sqrt(float(np.mean(values**2)))
    rounding = noise.rounding[name]
    if too_little(values / _SLACK, noise.terms, laplace=noise.laplace)[()] < level:
        missing = (
            "no noise was added" if share <= max(rounding, 1e-3) else f"only {100 * share:.1f} % of the noise was added"
        )
        yield f"{where}: {missing} that the claim needs"
        return
    if noise.above and rounding < 0.01 and too_much(values * _SLACK, noise.terms, laplace=noise.laplace) < level:
        yield f"{where}: {share:.3f} times the claimed noise was added, so it is not the mechanism that is recorded"
        return
    rows, width = noise.shapes[name].shape[0], len(values) // noise.shapes[name].shape[0]
    if width >= _NARROW and rows > 1:
        by_row = too_little(values.reshape(rows, width) / _SLACK, noise.terms, laplace=noise.laplace)
        if by_row.min() < level / rows:
            short = int((by_row < level / rows).sum())
            yield f"{where}: {short} of {rows} rows carry less noise than the claim needs"
            return
    tiny = 2 * rounding + 1e-6
    if tiny < 0.01:
        at_zero = int((np.abs(values) <= tiny).sum())
        if stats.binom.sf(at_zero - 1, len(values), 2 * tiny) < level:
            yield f"{where}: {at_zero} of {len(values)} coordinates carry no noise"


def too_little(values: Float64[np.ndarray, "*some size"], terms: int, *, laplace: bool) -> Float64[np.ndarray, "*some"]:
    """P-values of so little noise, over the last axis; values have deviation 1 under the claim."""
    size = values.shape[-1]
    if laplace and terms == 1:
        return np.asarray(stats.gamma.cdf(np.abs(values).sum(-1) * math.sqrt(2), size))
    factor = 1 + (1.5 / terms if laplace else 0.0)
    return np.asarray(stats.chi2.cdf((values**2).sum(-1) / factor, size / factor))


def too_much(values: Float64[np.ndarray, " size"], terms: int, *, laplace: bool) -> float:
    """P-value of so much noise; 1 where there are too few coordinates to tell."""
    if len(values) < (_FEWEST if laplace else _FEWEST_NORMAL):
        return 1.0
    if laplace and terms == 1:
        return float(stats.gamma.sf(np.abs(values).sum() * math.sqrt(2), len(values)))
    factor = 1 + (1.5 / terms if laplace else 0.0)
    return float(stats.chi2.sf((values**2).sum() / factor, len(values) / factor))


def repeats(noises: Sequence[RecoveredNoise]) -> Iterator[str]:
    """Noise of two releases, or of two blocks of one, that is the same."""
    vectors = [(noise, np.concatenate([*noise.blocks.values()])[:_LENGTH]) for noise in noises[:_VECTORS]]
    for (earlier, first), (later, second) in combinations(vectors, 2):
        # The sum of few single uploads holds the noise of each.
        if (earlier.user is None) == (later.user is None) and alike(first, second):
            yield f"the noise of {later.where} repeats that of {earlier.where}, so subtracting the two removes it"
            return
    for noise in noises[:_CLIENTS]:
        for (one, left), (two, right) in combinations(noise.blocks.items(), 2):
            if alike(left, right) or alike(_sizes(left), _sizes(right)):
                yield f"{noise.where}: the noise of block {two!r} repeats that of block {one!r}"
                return


def _sizes(values: Float64[np.ndarray, " size"]) -> Float64[np.ndarray, " size"]:
    """Magnitudes around their mean: samplers that share words share these where signs or angles differ."""
    excess: Float64[np.ndarray, " size"] = np.abs(values) - np.abs(values).mean()
    return excess


def alike(left: Float64[np.ndarray, " a"], right: Float64[np.ndarray, " b"]) -> bool:
    """Whether two pieces of noise agree far more than independent ones could."""
    size = min(len(left), len(right))
    if size < _FEWEST:
        return False
    a, b = left[:size], right[:size]
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    # Where hardly any noise was added, what is left is rounding, which may well agree.
    return length > _SOME_NOISE * size and abs(float(a @ b)) / length > max(_ALIKE, 10 / math.sqrt(size))


def _check_noisy_steps(result: RunResult) -> Iterator[Check]:
    """Uploads trained by noisy steps: noise everywhere, and never the same one twice."""
    seen = [
        (
            observation.round,
            user,
            torch.cat([t[row].flatten() for n, t in observation.tensors.items() if n != PROXIMAL]),
        )
        for observation in result.transcript.joined("wire")
        for row, user in enumerate(observation.users[:_CLIENTS].tolist())
    ]
    if not seen:
        return
    faults = [
        f"round {round + 1}, the upload of user {user}: {int((values == 0).sum())} of {len(values)} numbers carry no "
        "noise"
        for round, user, values in seen
        if float((values == 0).float().mean()) > 0.01
    ]
    for (t, u, left), (s, v, right) in combinations(seen[:_VECTORS], 2):
        if len(left) == len(right) and float((left == right).float().mean()) > 0.01:
            faults.append(f"the noise of user {v} in round {s + 1} repeats that of user {u} in round {t + 1}")
            break
    yield Check(
        name="noise that was added",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"{len(seen)} uploads carry noise on every number, and no two the same; how much of it, replays test",
    )
