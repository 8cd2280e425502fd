"""Noise of the engine in every round of a run, on uploads that are known, and under keys that are not the run's.

A run's own noise is recovered in a few rounds only, since it takes everybody's uploads. Here a handful of clients, half
of whom send nothing and half of whom send far more than the clip lets through, go through the engine of the run in each
of its rounds under its own keys, and the same tests are put to what is released. Noise that any two secret keys have in
common follows from what is public: whoever knows that subtracts it.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from privfed.audit.active.stateless import StatelessClients, StatelessServer
from privfed.audit.checks.added_noise import RecoveredNoise, alike, amounts, of_sums, repeats
from privfed.audit.checks.transcript_ledger import min_members
from privfed.audit.report.records import Check
from privfed.contracts import Block, Fidelity, Schema
from privfed.engines.simulation import Simulation
from privfed.engines.witness import Witness
from privfed.experiment import Experiment, RunResult
from privfed.federation import SERVER, Call, Federation, Message, Purpose, Streams
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.sampling import All
from privfed.updates import ClientUpdates, Dense

_WIDTH, _FEWEST, _CLIENT_ROUNDS, _ROUNDS = 256, 8, 4_000, 40
_FAR, _BLOCK, _STEP = 1e3, "prescribed", "send"
_PUBLIC = hashlib.sha256(b"known to everybody").digest()


def check_every_round(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Noise in all rounds, or as many as there is time for; none where noise is added inside training."""
    plan, config = experiment.config.privacy, experiment.config
    adds = plan.mechanism.adds_noise and plan.mechanism.unbounded_reason is None
    if not adds or plan.mechanism.clip is None or not math.isfinite(result.guarantee.epsilon):
        return
    plan = plan.model_copy(update={"sampling": All()})
    clients = max(min_members(plan), _FEWEST)
    count = min(config.rounds, _ROUNDS, max(_CLIENT_ROUNDS // clients, 2))
    others = np.random.default_rng([23, config.seed]).permutation(np.arange(1, max(config.rounds - 1, 1)))
    rounds = sorted({0, config.rounds - 1, *others[: count - 2].tolist()})
    noises = _noise(plan, clients, experiment.streams, rounds, config.fidelity)
    if not noises:
        return
    faults = [*amounts(noises), *repeats(noises), *_keys(experiment, plan, clients)]
    yield Check(
        name="noise in every round",
        passed=not faults,
        detail=f"known uploads through the engine, {faults[0]}"
        if faults
        else f"known uploads of {clients} clients went through the engine in {len(rounds)} of {config.rounds} rounds: "
        f"in each it added the claimed noise, never the same, and none that would follow from what is public",
    )


def _keys(experiment: Experiment, plan: PrivacyPlan, clients: int) -> Iterator[str]:
    """Noise that does not depend on a secret key, or not on what is released."""
    fidelity = experiment.config.fidelity
    one, other = (
        _noise(plan, clients, Streams.of_party(hashlib.sha256(secret).digest(), _PUBLIC), [0], fidelity)
        for secret in (b"one party", b"another party")
    )
    for left, right in zip(one, other, strict=True):
        if any(alike(left.blocks[name], right.blocks[name]) for name in left.blocks):
            yield "the noise of parties with other secret keys is the same, so it follows from what is public"
            return
    run = experiment.config
    further = run.model_copy(update={"data": f"{run.data}, other people"})
    own, others = (of.streams().words(Purpose.NOISE, 0, 0, [SERVER], 8) for of in (run, further))
    if np.array_equal(own, others):
        yield "a run on other data with the same seed has the same noise, so subtracting the two removes it"


def _noise(
    plan: PrivacyPlan, clients: int, streams: Streams, rounds: Sequence[int], fidelity: Fidelity
) -> list[RecoveredNoise]:
    """What releases are, less the clipped uploads."""
    witness = Witness(plan, rounds)
    engine = Simulation(
        witness.clients(_Senders(plan)), plan, clients, streams, Ledger(plan, clients), fidelity=fidelity
    )
    server = witness.server(_Asker(single=plan.mechanism.release == "individual"))
    for t in rounds:
        engine.run(server, t)
    return [*of_sums(plan, witness.exchanges, clients)]


@dataclass(slots=True)
class _Asker(StatelessServer):
    """A server that asks for one block a round."""

    single: bool
    schema: Schema = field(default_factory=lambda: {_BLOCK: Block((_WIDTH,))})

    def round(self, federation: Federation, t: int) -> None:
        """One query."""
        cohort = federation.sample_cohort(t)
        ask = federation.collect if self.single else federation.aggregate
        ask(_STEP, cohort, Message({}), self.schema)


class _Senders(StatelessClients):
    """Clients of whom those with odd numbers send far more than the clip lets through, and the others nothing."""

    steps = frozenset({_STEP})

    def __init__(self, plan: PrivacyPlan) -> None:
        self._size = _FAR * (1.0 if plan.mechanism.clip is None else plan.mechanism.clip.norm)

    def send(self, call: Call, message: Message) -> ClientUpdates:
        """The upload."""
        del message
        values = (call.clients % 2 * self._size).float().unsqueeze(1).repeat(1, _WIDTH)
        return ClientUpdates(call.clients, call.schema, [Dense(_BLOCK, torch.arange(len(values)), values)])
