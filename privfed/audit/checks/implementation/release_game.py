"""The engine itself releases vectors with one user's upload and without, and their bits are told apart.

Two thousand rows go through `Simulation` under the run's plan: uploads of a whole clip norm and empty ones, or, where
sums are released, a sum whose rows hold one user or nobody. What comes out is scored by how many of its numbers noise
alone could not have come to: by the sampler that used floating-point numbers, by spare low bits, and by sizes that come
back. Each score bounds epsilon from below with a confidence that leaves honest noise its part of false alarms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float32, Float64

from attacks.empirical import LowerBound, clopper_pearson_epsilon
from attacks.implementation import FloatNoise, UntouchedBits, repeated_values, spare_bits
from privfed.audit.active.stateless import StatelessClients
from privfed.audit.checks.implementation.claims import FALSE_ALARM, claims_epsilon
from privfed.audit.epsilon.claims import query_epsilon
from privfed.audit.report.records import Check
from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment, RunResult
from privfed.federation import Call, Message, Streams
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.sampling import All
from privfed.updates import ClientUpdates, Rows

NAME = "bits of a release are the same with a user and without"

DRAWS = 1_000
"""Rows of either world."""
WIDTH = 128
"""Numbers in a row."""
_FAR = 1e3
"""Length of an upload before the clip, in clip norms."""
_OFF = {"laplace": 0.2 * WIDTH, "gaussian": 0.5}
"""Numbers of a row off the lattice above which it is said to hold a user; of logarithms, some are always off."""
_SEED = 0
OFF_LATTICE = "numbers off the noise lattice"


def check_release_bits(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """For plans that add Laplace or Gaussian noise to uploads or sums; noise in shares is whole numbers in a ring."""
    plan, schema = experiment.config.privacy, experiment.server.schema
    real = [name for name, block in schema.items() if block.kind == "real"]
    if plan.mechanism.noise_law is None or not real or not claims_epsilon(experiment, result):
        return
    name = real[0]
    worlds = release(plan, name, schema[name])
    short = {name: _short(schema[name], plan)}
    claimed = query_epsilon(plan, [short], DRAWS)
    confidence = 1 - FALSE_ALARM / len(worlds)
    bounds = {name: _bound(name, *both, plan, confidence) for name, both in worlds.items()}
    score, best = max(bounds.items(), key=lambda found: found[1].epsilon)
    highest = _bound(OFF_LATTICE, np.full(DRAWS, float(WIDTH)), np.zeros(DRAWS), plan, confidence)
    yield Check(
        name=NAME,
        passed=best.epsilon <= claimed,
        detail=f"by {score}, epsilon of one release is at least {best.epsilon:.3g} (wrong with a chance of "
        f"{1 - confidence:.0e}), and {claimed:.3g} is claimed; the game cannot deny claims above {highest.epsilon:.3g}",
    )


def _bound(
    score: str,
    members: Float64[np.ndarray, " draws"],
    nonmembers: Float64[np.ndarray, " draws"],
    plan: PrivacyPlan,
    confidence: float,
) -> LowerBound:
    """Numbers off the lattice are cut where honest samplers never come, other scores at order statistics."""
    cut = _OFF[plan.mechanism.noise_law or "gaussian"] if score == OFF_LATTICE else None
    return clopper_pearson_epsilon(members, nonmembers, delta=plan.delta, threshold=cut, confidence=confidence)


def release(
    plan: PrivacyPlan, name: str, block: Block
) -> Mapping[str, tuple[Float64[np.ndarray, " draws"], Float64[np.ndarray, " draws"]]]:
    """Scores of rows that the engine released with a user's upload in them, and of rows without any.

    Args:
        plan: whose noise is added; everybody takes part, which changes no noise.
        name: of a block.
        block: as the method declares it.
    """
    everybody = plan.model_copy(update={"sampling": All()})
    summed = plan.mechanism.release == "total"
    population = DRAWS if summed else 2 * DRAWS
    short = _short(block, plan)
    simulation = Simulation(
        _Senders(summed=summed, size=_FAR * _clip_norm(plan) / block.weight),
        everybody,
        population,
        Streams.from_seed(_SEED),
        Ledger(everybody, population),
    )
    cohort, message, schema = simulation.sample_cohort(0), Message({}), {name: short}
    if summed:
        values = simulation.aggregate("send", cohort, message, schema).sums[name]
    else:
        values = simulation.collect("send", cohort, message, schema).uploads[name]
    return _scores(values.reshape(2 * DRAWS, WIDTH).numpy(), plan, block.weight)


class _Senders(StatelessClients):
    """Clients of whom those with even numbers send one row of equal numbers, and the others nothing.

    Where uploads are summed, everybody sends, each in a row of its own among rows that nobody touches.
    """

    steps = frozenset({"send"})

    def __init__(self, *, summed: bool, size: float) -> None:
        self._summed, self._size = summed, size

    def send(self, call: Call, message: Message) -> ClientUpdates:
        """The upload, far outside the clip."""
        del message
        name = next(iter(call.schema))
        sends = torch.ones_like(call.clients, dtype=torch.bool) if self._summed else call.clients % 2 == 0
        owner = sends.nonzero().squeeze(1)
        row = 2 * call.clients[owner] if self._summed else torch.zeros_like(owner)
        values = torch.full((len(owner), WIDTH), self._size)
        return ClientUpdates(call.clients, call.schema, [Rows(name, owner, row, values)])


def _short(block: Block, plan: PrivacyPlan) -> Block:
    return replace(block, shape=(2 * DRAWS if plan.mechanism.release == "total" else 1, WIDTH))


def _clip_norm(plan: PrivacyPlan) -> float:
    return 1.0 if plan.mechanism.clip is None else plan.mechanism.clip.norm


def _scores(
    rows: Float32[np.ndarray, "rows width"], plan: PrivacyPlan, weight: float
) -> dict[str, tuple[Float64[np.ndarray, " draws"], Float64[np.ndarray, " draws"]]]:
    """Every score of the even rows, which hold a user, and of the odd ones."""
    # Order statistics cut best where no two scores are equal: whole numbers get a random part below one.
    apart = np.random.default_rng(_SEED).random((2, len(rows)))
    scored = {
        "spare low bits": apart[0] - spare_bits(rows).sum(axis=1),
        "sizes that come back": apart[1] - repeated_values(rows).sum(axis=1),
    }
    mechanism = plan.mechanism
    if mechanism.noise is not None:
        sampler = FloatNoise(mechanism.noise.law, mechanism.noise.scale / weight)
        scored[OFF_LATTICE] = UntouchedBits(sampler).score_rows(rows)
    elif mechanism.server_noise_multiplier is not None:
        scale = mechanism.server_noise_multiplier * _clip_norm(plan) / weight
        scored[OFF_LATTICE] = UntouchedBits(FloatNoise("gaussian", scale, sums=True)).score_rows(rows)
    return {name: (values[::2], values[1::2]) for name, values in scored.items()}
