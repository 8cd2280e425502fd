"""Canaries of plans that release single uploads: people of a run whose uploads spell secrets, read on the wire.

The last k people of the population send secrets in place of what they would have trained, in a run of its own: one fair
bit for every coordinate, far outside the clip, with a sign that alternates from round to round. The method's own
server makes the queries; the transcript shows what leaves every device. From how many of the bits can be read off one
block of an upload, off the difference of two rounds, or off the difference to another canary whose upload is known,
`attacks.empirical.secrets_epsilon` bounds epsilon. Half of the canaries choose what is read, the others are the
measurement.

Rounds are few: the claim that a bound stands beside is that of the uploads which were read, not of the run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from attacks.empirical import CONFIDENCE, LowerBound, secrets_epsilon
from privfed.audit.epsilon.canaries import MIN_DIMENSIONS, CanaryClients, CanaryDirections, CanaryError
from privfed.audit.epsilon.claims import empirical_row, query_epsilon
from privfed.audit.report.records import EmpiricalRow
from privfed.contracts import Schema
from privfed.data import Split
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.engines.witness import flat_rows
from privfed.experiment import Experiment
from privfed.federation import Call
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig

ROUNDS = 2
"""Rounds of the run with canaries."""

MAX_BITS_READ = 2048
"""Bits that are read of every block, at most; they deny claims up to 1,400."""

MIN_CANARIES = 10

_Seen = tuple[Int64[Tensor, " canaries"], Mapping[str, Tensor]]
"""Who took part in a round, and the blocks that they sent."""

_QUANTILES = (0.5, 0.8, 0.95)
_MOST_WRONG = 3 / 8
"""Share of wrong bits beyond which a guess is little better than a blind one."""


class SecretDirections(CanaryDirections):
    """Secrets of random bits over the real blocks of a schema, as unit vectors in weighted coordinates."""

    def draw(self, numbers: Sequence[int]) -> Float[Tensor, "n dimensions"]:
        """The secrets with these numbers."""
        inclusion = [np.random.default_rng([self.seed, n]).integers(0, 2, self.dimensions, np.int8) for n in numbers]
        return torch.from_numpy(np.stack(inclusion)).float().mul_(2).sub_(1).div_(self.dimensions**0.5)


class SecretClients(CanaryClients):
    """Clients whose last users spell secrets."""

    def length(self, call: Call) -> float:
        """Far outside the clip, with the sign of the round."""
        return super().length(call) * (1 - 2 * (call.round % 2))


@dataclass(frozen=True, slots=True)
class _View:
    """What a secret is read off: a block in a round, less the one of another round, or of the next canary."""

    block: str
    round: int
    other: int | None = None
    neighbour: bool = False

    @property
    def releases(self) -> int:
        return 1 if self.other is None else 2


def audit_wire_canaries(
    config: ExperimentConfig, parts: Split, k: int, *, seed: int = 0, confidence: float = CONFIDENCE
) -> list[EmpiricalRow]:
    """Train a few rounds with `k` people who spell secrets, and bound epsilon by what is read off their uploads.

    Args:
        config: of the run that is audited.
        parts: its data.
        k: canaries, at least 10; at most half of the people are.
        seed: of the secrets.
        confidence: of the bound.

    Raises:
        CanaryError: canaries cannot test this run, in one sentence.
    """
    experiment, plan = Experiment(config, parts), config.privacy
    step, schema, people = experiment.registered.training.step, experiment.server.schema, experiment.n_users
    k = min(k, people // 2)
    if k < MIN_CANARIES:
        raise CanaryError(
            f"{k} canaries cannot bound anything: use at least {MIN_CANARIES}, among twice as many people"
        )
    secrets = SecretDirections(schema, seed)
    if step is None or secrets.dimensions < MIN_DIMENSIONS:
        raise CanaryError(f"{experiment.registered.name} trains no real numbers that a canary could send")
    if plan.mechanism.unit == "interaction":
        raise CanaryError(
            f"the plan {plan.name!r} claims something about single interactions, and canaries change everything that a "
            "person sends, with the training that has its noise"
        )
    if math.isinf(query_epsilon(plan, [schema], people)):
        raise CanaryError(
            f"the plan {plan.name!r} claims nothing about one upload, so nothing read off it could deny it"
        )
    transcript = Transcript(torch.arange(people - k, people), frozenset({"wire"}), step=step)
    simulation = Simulation(
        SecretClients(experiment.clients, people - k, plan, step, secrets),
        plan, people, experiment.streams, Ledger(plan, people),
        chunk=config.chunk or experiment.registered.training.chunk, fidelity=config.fidelity, transcript=transcript,
    )  # fmt: skip
    for t in range(min(config.rounds, ROUNDS)):
        simulation.run(experiment.server, t)
    seen = {one.round: (one.users - (people - k), one.tensors) for one in transcript.joined("wire")}
    if not seen:
        raise CanaryError("no canary took part in a round, so nothing can be read: use more canaries")
    return [_row(_ObservedSecrets(secrets, seen, plan), plan, schema, people, confidence)]


class _ObservedSecrets:
    """Wrong bits in what canaries sent."""

    def __init__(self, secrets: SecretDirections, seen: Mapping[int, _Seen], plan: PrivacyPlan) -> None:
        self.secrets, self.seen, self.plan = secrets, seen, plan
        numbers = sorted({int(user) for users, _ in seen.values() for user in users})
        self._row = {number: row for row, number in enumerate(numbers)}
        flat = secrets.draw(numbers)
        self._bits = {
            name: flat_rows(values)[:, :MAX_BITS_READ] * block.weight
            for (name, block), values in zip(secrets.blocks.items(), secrets.split(flat).values(), strict=True)
        }

    def views(self) -> Iterator[_View]:
        """Every block of every round, less an earlier one of the other sign, less that of another canary."""
        for block in self.secrets.blocks:
            for t in self.seen:
                yield _View(block, t)
                if self._amplitude is not None:
                    yield _View(block, t, neighbour=True)
                yield from (_View(block, t, other) for other in self.seen if other < t and (other + t) % 2)

    def bits(self, view: _View) -> int:
        """Bits that are read."""
        return min(self.secrets.blocks[view.block].size, MAX_BITS_READ)

    def wrong(self, view: _View, half: int) -> Int64[np.ndarray, " canaries"]:
        """Wrong bits of every second canary that took part."""
        users, values = self._block(view.block, view.round)
        if view.other is not None:
            others, before = self._block(view.block, view.other)
            both = sorted(set(users.tolist()) & set(others.tolist()))
            at = [torch.searchsorted(of, torch.tensor(both, dtype=torch.int64)) for of in (users, others)]
            users, values = users[at[0]], values[at[0]] - before[at[1]]
        inclusion = self._bits[view.block][[self._row[user] for user in users.tolist()]] * (1 - 2 * (view.round % 2))
        if view.neighbour and self._amplitude is not None:
            values = values - (values - inclusion * self._amplitude).roll(1, 0)
        wrong: Int64[np.ndarray, " canaries"] = (values[half::2] * inclusion[half::2] <= 0).sum(1).numpy()
        return wrong

    @property
    def _amplitude(self) -> float | None:
        """What the clip makes of a unit vector's length; None where blocks have clips of their own."""
        clip = self.plan.mechanism.clip
        if clip is None or clip.per_block is not None:
            return None
        return clip.norm / (1.0 if clip.order == 2 else self.secrets.dimensions**0.5)

    def _block(self, name: str, t: int) -> tuple[Int64[Tensor, " n"], Float64[Tensor, "n size"]]:
        users, tensors = self.seen[t]
        return users, flat_rows(tensors[name])[:, :MAX_BITS_READ].double() * self.secrets.blocks[name].weight


def _row(read: _ObservedSecrets, plan: PrivacyPlan, schema: Schema, people: int, confidence: float) -> EmpiricalRow:
    """The bound of the view that says most."""
    readings = list[tuple[float, int, _View]]()
    for view in read.views():
        bits, wrong = read.bits(view), read.wrong(view, 0)
        for share in _QUANTILES if len(wrong) else ():
            errors = int(np.quantile(wrong, share, method="higher"))
            if errors < _MOST_WRONG * bits:
                epsilon = _bound(wrong, bits, errors, plan.delta, confidence).epsilon
                readings.append((epsilon / view.releases, -errors, view))
    first = _View(next(iter(read.secrets.blocks)), next(iter(read.seen)))
    _, errors, view = max(readings, key=lambda one: one[:2], default=(0.0, 0, first))
    bits, wrong = read.bits(view), read.wrong(view, 1)
    bound = _bound(wrong, bits, -errors, plan.delta, confidence)
    claimed = query_epsilon(plan, [schema] * view.releases, people)
    row = empirical_row(claimed, bound, confidence, "uploads of canaries", "wire", "upload", plan.neighbours)
    where = f"block {view.block!r} in round {view.round + 1}"
    where += f" less that of round {view.other + 1}" if view.other is not None else ""
    where += " less that of another canary" if view.neighbour else ""
    perfect = _bound(np.zeros_like(wrong), bits, -errors, plan.delta, confidence)
    return row.model_copy(update={"largest_deniable": perfect.epsilon, "worst_case": where})


def _bound(
    wrong: Int64[np.ndarray, " canaries"], bits: int, errors: int, delta: float, confidence: float
) -> LowerBound:
    right = int((wrong <= errors).sum())
    return secrets_epsilon(right, max(len(wrong), 1), bits=bits, errors=errors, delta=delta, confidence=confidence)
