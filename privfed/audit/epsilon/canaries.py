"""Canary clients: people without data in a run of their own, who show what one person's uploads leave in the releases.

k clients are appended to the population (Andrew, Kairouz, Oh, Oprea, McMahan and Suriyakumar, ICLR 2024). When a round
trains, each sends a direction of its own, uniform on the sphere and the same in every round, scaled so far that the
clip makes it exactly C. They are sampled, clipped, noised and summed by the code that does it for everybody; nobody
else changes: users keep their numbers, their inclusion bits and their randomness.

Afterwards the cosine between each direction and what was released is read:

* `sum`: the released sums, added up over rounds, each over its squared length. For a direction that repeats this is the
  matched filter, as far as whatever else is in a sum is like white noise.
* `sum`, others known: the plain sum of the releases less the clipped uploads of everybody who is no canary.
  Differential privacy promises to hold against somebody who knows all of these, so this is the test of the promise.
* `model`: how the parameters that everybody receives changed from the first round to the last, where they carry the
  names of the blocks. With plain averages this is the unweighted sum of the releases.

A direction is uniform in the weighted coordinates that clip and noise act on, and what it is compared with is a
function of releases alone (and of other people's uploads). So the cosine of a direction that was never inserted has the
law of `attacks.empirical.one_shot` exactly, whichever method and plan: d coordinates, no fit. As many such placebos are
read.

A method without a training step whose queries use shares of one clip norm (`Block.share`) is read over all of them: the
coordinates of a direction lie in every query, so many that its parts are as long as the shares are, and the clip makes
them exactly so.

Directions follow from seeds and are made again whenever they are needed, a few clients at a time.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from attacks.empirical import one_shot_epsilon, one_shot_lower_bound
from attacks.empirical.one_shot import MIN_CANARIES
from privfed.audit.config import CANARIES
from privfed.audit.epsilon.claims import empirical_row, run_claim
from privfed.audit.report.records import EmpiricalRow, GuaranteeRow, Tap
from privfed.compute.tiles import TILE
from privfed.contracts import Schema, upload_bytes
from privfed.data import Split
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import NOBODY, Transcript
from privfed.experiment import Experiment
from privfed.federation import Call, Clients, Message, Ranges, perform
from privfed.guards import ClientGuard
from privfed.privacy import Guarantee, Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from privfed.updates import Chunk, ClientUpdates, Dense, clients_at_once

FAR = 1e3
"""Length of a canary's update, in clip norms."""

SMALLEST = 1e-300
MIN_DIMENSIONS = 2
_READ_AT_ONCE = 64
_MEMORY = 2**29
_COPIES = 4
"""Dense copies of a chunk of canaries that live at the same time."""


class CanaryError(ValueError):
    """Canaries cannot test this run; the sentence says what would."""


class CanaryDirections:
    """Random unit vectors over the real blocks of a schema, in the weighted coordinates that clip and noise act on.

    Where blocks have shares of the clip norm, a direction lies on the first coordinates of each, as many of all as the
    block has of the clip norm, squared; where they have none, on every coordinate.

    Args:
        schema: of the training step, or of all queries of a round together.
        seed: of all directions.
    """

    def __init__(self, schema: Schema, seed: int) -> None:
        self.blocks = {name: block for name, block in schema.items() if block.kind == "real"}
        self.kept = {name: block.size for name, block in self.blocks.items()}
        if any(block.share < 1 for block in self.blocks.values()):
            largest = min(block.size / block.share for block in self.blocks.values())
            self.kept = {name: max(int(largest * block.share), 1) for name, block in self.blocks.items()}
        self.seed = seed

    @property
    def dimensions(self) -> int:
        """Coordinates of a direction."""
        return sum(self.kept.values())

    def draw(self, numbers: Sequence[int]) -> Float[Tensor, "n dimensions"]:
        """The directions with these numbers."""
        values = np.empty((len(numbers), self.dimensions), np.float32)
        for row, number in zip(values, numbers, strict=True):
            np.random.default_rng([self.seed, number]).standard_normal(dtype=np.float32, out=row)
        directions = torch.from_numpy(values)
        return directions.div_(directions.norm(dim=1, keepdim=True, dtype=torch.float64).float())

    def split(self, flat: Float[Tensor, "n dimensions"]) -> dict[str, Tensor]:
        """Values `[n, *shape]` of every block: without their weights, as clients send them."""
        blocks = {}
        for (name, block), piece in zip(
            self.blocks.items(), torch.split(flat, list(self.kept.values()), dim=1), strict=True
        ):
            whole = torch.nn.functional.pad(piece / block.weight, (0, block.size - self.kept[name]))
            blocks[name] = whole.view(-1, *block.shape)
        return blocks

    def join(self, values: Mapping[str, Tensor]) -> Float64[Tensor, " dimensions"]:
        """Weighted coordinates of one value `[*shape]` per block."""
        return torch.cat(
            [values[name].double().flatten()[: self.kept[name]] * block.weight for name, block in self.blocks.items()]
        )

    def find(self, public: Mapping[str, Tensor]) -> Float64[Tensor, " dimensions"] | None:
        """Weighted coordinates of public parameters; None where they do not go by the names of the blocks."""
        named = all(name in public and public[name].shape == block.shape for name, block in self.blocks.items())
        return self.join(public) if named else None

    def cosines(
        self, numbers: Sequence[int], released: Float64[Tensor, "observed dimensions"]
    ) -> Float64[np.ndarray, "observed n"]:
        """Cosine of every direction with every row of `released`."""
        length = released.norm(dim=1, keepdim=True)
        unit = (released / length).float().T
        cosines = [
            self.draw(numbers[first : first + _READ_AT_ONCE]) @ unit for first in range(0, len(numbers), _READ_AT_ONCE)
        ]
        return torch.cat(cosines).T.double().numpy()


class CanaryClients:
    """Clients of a method with canaries behind them: users from `n_users` on send a direction whenever they train.

    In any other step canaries take part and send nothing.

    Args:
        real: the method's own clients.
        n_users: how many of them there are.
        plan: whose clip decides how long a direction is.
        step: the training step; None where every query has blocks of a direction.
        directions: number j belongs to user `n_users + j`.
    """

    def __init__(
        self, real: Clients, n_users: int, plan: PrivacyPlan, step: str | None, directions: CanaryDirections
    ) -> None:
        self.real, self.n_users, self.plan, self.step, self.directions = real, n_users, plan, step, directions

    def __getattr__(self, name: str) -> Any:
        """A step of the method, canaries included; whatever else clients may have is that of the real ones."""
        if name == "real":
            raise AttributeError(name)
        attribute = getattr(self.real, name)
        return partial(self._perform, name) if name in self.real.steps else attribute

    def _perform(self, step: str, call: Call, message: Message) -> ClientUpdates:
        is_canary = call.clients >= self.n_users
        if not is_canary.any():
            return perform(self.real, call, message)
        # Members come in ascending order, so canaries are the last of a chunk.
        people, canaries = call.clients[~is_canary], is_canary.nonzero().squeeze(1)
        to_people = Message(
            message.shared, {name: values[: len(people)] for name, values in message.personal.items()}, message.config
        )
        parts = [*perform(self.real, replace(call, clients=people), to_people).parts] if len(people) else []
        if self.step in (None, step):
            self._refuse_another_shape(call.schema)
            values = self.directions.draw((call.clients[canaries] - self.n_users).tolist())
            parts += [
                Dense(name, canaries, block)
                for name, block in self.directions.split(values * self.length(call)).items()
                if name in call.schema
            ]
        return ClientUpdates(call.clients, call.schema, parts)

    def _refuse_another_shape(self, schema: Schema) -> None:
        """Refuse a query for a block of another shape than a direction has.

        Raises:
            CanaryError: it is one.
        """
        for name, block in self.directions.blocks.items():
            if name in schema and schema[name].shape != block.shape:
                raise CanaryError(
                    f"the run queried block {name!r} of shape {schema[name].shape} and had planned {block.shape}, so "
                    f"canaries cannot be read from it: set what the method decides by what was released to it"
                )

    def length(self, call: Call) -> float:
        """Norm of a direction before the clip; 1 where nothing is clipped."""
        clip = self.plan.mechanism.clip
        return 1.0 if clip is None else FAR * max(clip.norm, call.clip_norm or 0.0)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Of real users: a canary recommends nothing."""
        return self.real.score(clients, message, updates, candidates)

    def commit(self) -> None:
        """Canaries have no state."""
        self.real.commit()

    def discard(self) -> None:
        """Nor anything staged."""
        self.real.discard()

    def state(self) -> dict[str, Tensor]:
        """Of the real clients."""
        return self.real.state()

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Into the real clients."""
        self.real.load(state)


@dataclass(slots=True, eq=False)
class OtherUploads:
    """An observer that adds up the clipped uploads of everybody but the canaries: what the strongest adversary knows.

    Attributes:
        guard: clips like everybody's.
        n_users: users from here on are canaries.
        step: the training step; None reads every step.
        sums: of every query since they were last cleared.
    """

    guard: ClientGuard
    n_users: int
    step: str | None
    sums: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def __call__(self, clients: Clients, call: Call, message: Message, updates: ClientUpdates) -> None:
        """See one chunk between training and guard."""
        del clients, message
        if self.step not in (None, call.step):
            return
        known = copy.deepcopy(updates)
        self.guard.clip_(known, call.clip_norm)
        known.scale_((call.clients < self.n_users).double())
        sums = self.sums.setdefault(
            call.query_id,
            {
                name: torch.zeros(block.shape, dtype=torch.float64 if block.kind == "real" else torch.int64)
                for name, block in call.schema.items()
            },
        )
        known.add_to(sums)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCosines:
    """Cosines of canaries with one thing that was released.

    Attributes:
        audited: what was tested, in words.
        tap: where it was read.
        inserted: of the canaries that took part.
        placebo: of as many that did not.
    """

    audited: str
    tap: Tap
    inserted: Float64[np.ndarray, " canaries"]
    placebo: Float64[np.ndarray, " canaries"]


@dataclass(frozen=True, slots=True, eq=False)
class CanaryRun:
    """What a run with canaries released.

    Attributes:
        dimensions: coordinates of a direction.
        guarantee: what the run's own ledger claims.
        reads: one per observable.
        noise: standard deviation of the noise in all that was read, over what a canary adds to it; None without noise.
    """

    dimensions: int
    guarantee: Guarantee
    reads: Sequence[MeasuredCosines]
    noise: float | None


def audit_canaries(
    config: ExperimentConfig,
    parts: Split,
    k: int = CANARIES,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[EmpiricalRow]:
    """Train once more with `k` canaries, and measure epsilon for whole people beside what that run claims.

    Args:
        config: of the run that is audited; its utility is measured without canaries, in the run itself.
        parts: its data.
        k: canaries, at least 10. 1,000 give estimates within some 15 %, 200 the order of magnitude.
        seed: of the directions.
        progress: called after every round with its number.

    Returns:
        For every observable an estimate, with interval and placebo, and a lower bound.

    Raises:
        CanaryError: canaries cannot test this run, in one sentence.
    """
    run = run_canaries(config, parts, k, seed=seed, progress=progress)
    plan, rows = config.privacy, []
    claimed, delta = run_claim(GuaranteeRow.model_validate(run.guarantee.model_dump()), "user")
    neighbours = "zero_out_one" if plan.neighbours == "zero_out_one" else "add_or_remove_one"
    for read in run.reads:
        how: dict[str, Any] = {"dimensions": run.dimensions, "delta": delta, "noise_multiplier": run.noise}
        for measured in (one_shot_epsilon(read.inserted, **how), one_shot_lower_bound(read.inserted, **how)):
            rows.append(
                empirical_row(claimed, measured, measured.confidence, read.audited, read.tap, "user", neighbours)
            )
    return rows


def run_canaries(
    config: ExperimentConfig,
    parts: Split,
    k: int = CANARIES,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> CanaryRun:
    """The run behind `audit_canaries`, with its arguments: nothing is evaluated, nothing is kept but sums.

    Raises:
        CanaryError: as there.
    """
    refuse_untestable(config.privacy)
    if k < MIN_CANARIES:
        raise CanaryError(f"{k} canaries cannot show a law: use at least {MIN_CANARIES}, better some hundreds")
    experiment = Experiment(config, parts)
    server, registered, plan = experiment.server, experiment.registered, config.privacy
    step, directions = registered.training.step, _directions(experiment, seed)
    population = experiment.n_users + k
    ledger = Ledger(plan, population)
    transcript = Transcript(NOBODY, frozenset({"sum"}), step=step)
    simulation = Simulation(
        CanaryClients(experiment.clients, experiment.n_users, plan, step, directions),
        plan,
        population,
        experiment.streams,
        ledger,
        chunk=_chunk(config.chunk or registered.training.chunk, server.schema, config.memory_limit_gib),
        fidelity=config.fidelity,
        transcript=transcript,
    )
    others = OtherUploads(ClientGuard(plan, experiment.streams), experiment.n_users, step)
    simulation.observers.append(others)
    before = directions.find(server.public().shared)
    sums = _CanarySums(directions, step)
    for t in range(config.rounds):
        simulation.run(server, t)
        sums.add([seen.tensors for seen in transcript.observations], list(others.sums.values()))
        transcript.observations.clear()
        others.sums.clear()
        if progress is not None:
            progress(t)
    if sums.releases == 0:
        raise CanaryError(f"none of {config.rounds} rounds had enough clients, so nothing can be read")
    observed: list[tuple[str, Tap, Tensor]] = [
        ("whole users in the released sums", "sum", sums.filtered),
        ("whole users in the released sums, everybody else's uploads known", "sum", sums.rest),
    ]
    after = directions.find(server.public().shared)
    if before is not None and after is not None:
        observed.append(("whole users in the final model", "model", after - before))
    cosines = directions.cosines(range(2 * k), torch.stack([released for _, _, released in observed]))
    return CanaryRun(
        directions.dimensions,
        ledger.guarantee(),
        [
            MeasuredCosines(audited, tap, cosine_row[:k], cosine_row[k:])
            for (audited, tap, _), cosine_row in zip(observed, cosines, strict=True)
        ],
        _noise_left(plan, population, sums.releases),
    )


def _directions(experiment: Experiment, seed: int) -> CanaryDirections:
    """Directions over the training step, or over all queries of a round that share a clip norm.

    Raises:
        CanaryError: the method trains nothing that a canary could send.
    """
    registered, schema = experiment.registered, experiment.server.schema
    whole_round = registered.training.step is None and any(block.share < 1 for block in schema.values())
    if whole_round:
        queries = registered.training.program(experiment.server)
        schema = {name: block for query in queries for name, block in query.schema.items()}
    directions = CanaryDirections(schema, seed)
    if (registered.training.step is None and not whole_round) or directions.dimensions < MIN_DIMENSIONS:
        raise CanaryError(f"{registered.name} trains no real numbers that a canary could send: audit another method")
    return directions


class _CanarySums:
    """Released sums in the coordinates of directions, over all rounds.

    Attributes:
        filtered: each release divided by its squared length, as a matched filter weighs it.
        rest: all releases less what everybody but the canaries sent.
        releases: how many there were.
    """

    def __init__(self, directions: CanaryDirections, step: str | None) -> None:
        self.filtered, self.rest = torch.zeros(2, directions.dimensions, dtype=torch.float64)
        self.releases = 0
        self._directions, self._step = directions, step

    def add(self, released: Sequence[Mapping[str, Tensor]], known: Sequence[Mapping[str, Tensor]]) -> None:
        """Add the sums of one round, and what all others put into them.

        Raises:
            CanaryError: the run never queried a block that canaries send.
        """
        for tensors in _releases(released, self._step):
            if missing := self._directions.blocks.keys() - tensors.keys():
                raise CanaryError(f"the run never queried block {min(missing)!r}, so canaries cannot be read from it")
            total = self._directions.join(tensors)
            self.filtered.add_(total, alpha=1 / max(float(total @ total), SMALLEST))
            self.rest.add_(total)
            self.releases += 1
        for tensors in _releases(known, self._step):
            self.rest.sub_(self._directions.join(tensors))


def _releases(queries: Sequence[Mapping[str, Tensor]], step: str | None) -> Sequence[Mapping[str, Tensor]]:
    """Sums of a round as releases: one per query of the training step; without such a step one for the round."""
    return (
        queries
        if step is not None or not queries
        else [{name: sums for query in queries for name, sums in query.items()}]
    )


def refuse_untestable(plan: PrivacyPlan) -> None:
    """Refuse a plan whose releases canaries cannot read, or whose clip bends their directions.

    Raises:
        CanaryError: why, and what to do.
    """
    mechanism, clip = plan.mechanism, plan.mechanism.clip
    if mechanism.release == "individual":
        raise CanaryError(
            f"the plan {plan.name!r} releases every upload by itself, and canaries are read from sums: its claim is "
            f"about one upload, which the audit of the mechanism tests"
        )
    if clip is not None and clip.per_block is not None:
        raise CanaryError(
            f"the plan {plan.name!r} clips block by block, which bends a canary's direction: set clipping = 'flat'"
        )
    if mechanism.secret_sharing is not None and not mechanism.secret_sharing.padding.every_row:
        raise CanaryError(
            f"the plan {plan.name!r} opens rows that enough clients announced, and canaries announce none: set "
            f"padding.kind = 'full_support'"
        )


def _chunk(wanted: Chunk | None, schema: Schema, memory_limit_gib: float | None) -> int:
    """Clients of a chunk: as many as wanted, or the whole tiles whose dense updates fit the memory."""
    memory = _MEMORY if memory_limit_gib is None else int(memory_limit_gib * 2**30)
    return min(clients_at_once(wanted, schema), max(memory // (_COPIES * upload_bytes(schema)) // TILE, 1) * TILE)


def _noise_left(plan: PrivacyPlan, population: int, rounds: int) -> float | None:
    """Deviation of the noise in a sum over rounds, over what a canary adds to that sum on average.

    Noise grows with the root of the rounds, and a direction that repeats grows with their number.
    """
    mechanism = plan.mechanism
    deviation = mechanism.server_noise_multiplier
    if mechanism.noise_shares is not None:
        deviation = mechanism.noise_shares.multiplier
    joined = plan.sampling.expected(population) / population * rounds
    return None if deviation is None else deviation * math.sqrt(rounds) / joined
