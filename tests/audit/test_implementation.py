"""What the audit says of runs whose noise is wrong in the machine though right on paper, and of honest ones.

Old samplers and other faults are planted in the guards. Honest noise is planted too, as whole numbers on a grid, so
that these tests do not depend on how the library draws its noise.
"""

import tracemalloc
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
import torch

from attacks.implementation.claimed_noise import MAX_FALSE_ALARM
from privfed.audit.checks.check_run import check_run
from privfed.audit.checks.implementation import IMPLEMENTATION_CHECKS, grid, inclusion_bits, named_rows, noise
from privfed.audit.checks.implementation import release_game as game
from privfed.audit.checks.implementation.claims import FALSE_ALARM, claimed_noise, grid_steps
from privfed.audit.grid import as_run
from privfed.audit.report.records import Check
from privfed.contracts import Block
from privfed.data import Split, SplitSpec, SyntheticSpec, generate, split
from privfed.engines.aggregation.announced_rows import AnnouncedRows
from privfed.engines.transcript import SentRows
from privfed.experiment import Experiment
from privfed.federation import SERVER
from privfed.guards import ClientGuard, ServerGuard
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

LAPLACE = "local-laplace:epsilon0=0.1,clip_norm=1"
GAUSSIAN = "local-gaussian:noise_multiplier=22,clip_norm=1"
CENTRAL = "central-gaussian:noise_multiplier=100,clip_norm=1"
STEP = 2.0**-12

Sampler = Callable[[int, int, int, str, float, int], np.ndarray]
"""(round, query, user, block, scale, count) -> noise of scale `scale`."""


def seeded(round: int, query: int, user: int, block: str) -> np.random.Generator:
    return np.random.default_rng([round, query, user + 2, *block.encode()])


def old_laplace(round: int, query: int, user: int, block: str, scale: float, count: int) -> np.ndarray:
    rng = seeded(round, query, user, block)
    uniform = ((rng.integers(2**53, size=count) + 0.5) * 2.0**-53).astype(np.float32)
    logarithm = np.log(uniform.astype(np.float64)).astype(np.float32)
    return logarithm * rng.choice([-1, 1], count).astype(np.float32) * np.float32(scale)


def old_gaussian(round: int, query: int, user: int, block: str, scale: float, count: int) -> np.ndarray:
    draw = seeded(round, query, user, block).standard_normal(count).astype(np.float32)
    # On the device noise is float32; a server multiplies and adds in float64.
    return draw * np.float32(scale) if user != SERVER else draw.astype(np.float64) * scale


def on_grid(law: str) -> Sampler:
    def draw(round: int, query: int, user: int, block: str, scale: float, count: int) -> np.ndarray:
        rng = seeded(round, query, user, block)
        values = rng.laplace(size=count) if law == "laplace" else rng.standard_normal(count)
        return np.rint(values * scale / STEP) * STEP

    return draw


class Planted:
    """Guards that add what a sampler gives, on values rounded to the grid or as they are."""

    def __init__(self, patch: pytest.MonkeyPatch, sampler: Sampler, *, rounded: bool = False) -> None:
        self.sampler, self.rounded = sampler, rounded
        patch.setattr(ClientGuard, "protect", partialmethod(_wire, self))
        patch.setattr(ServerGuard, "add_noise_", partialmethod(_total, self))

    def protect(
        self, guard: ClientGuard, updates: Any, call: Any, positions: Any, out: Any = None, steps: Any = None
    ) -> dict[str, torch.Tensor]:
        del steps
        uploads, noise = updates.materialise(positions, out), guard.plan.mechanism.noise
        users = call.clients[positions].tolist()
        for name, block in call.schema.items():
            flat = self._rounded(uploads[name].view(len(users), -1))
            if noise is not None:
                for at, user in enumerate(users):
                    drawn = self.sampler(call.round, call.query_id, user, name, noise.scale / block.weight, block.size)
                    flat[at] += torch.from_numpy(drawn.astype(np.float32))
        return uploads

    def total(
        self, guard: ServerGuard, sums: Any, cohort: Any, step: str, query_id: int, schema: Any, **_: Any
    ) -> None:
        del step
        mechanism = guard.plan.mechanism
        for name, block in schema.items():
            if mechanism.server_noise_multiplier is not None:
                scale = mechanism.server_noise_multiplier * mechanism.clip.norm / block.weight
                drawn = self.sampler(cohort.round, query_id, SERVER, name, scale, block.size)
                self._rounded(sums[name]).view(-1).add_(torch.from_numpy(np.asarray(drawn, np.float64)))

    def _rounded(self, values: torch.Tensor) -> torch.Tensor:
        return values.div_(STEP).round_().mul_(STEP) if self.rounded else values


@pytest.fixture(scope="module")
def parts() -> Split:
    """Enough histories among enough items that untouched rows are common."""
    spec = SyntheticSpec(
        name="synthetic-rows", n_users=90, n_items=900, mean_per_user=30, min_per_user=12, rank=4, seed=1
    )
    return split(generate(spec), SplitSpec())


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def _wire(guard: ClientGuard, planted: Planted, *given: Any, **named: Any) -> dict[str, torch.Tensor]:
    return planted.protect(guard, *given, **named)


def _total(guard: ServerGuard, planted: Planted, *given: Any, **named: Any) -> None:
    planted.total(guard, *given, **named)


def trained(parts: Split, words: str, method: str = "pfedrec", **settings: Any) -> tuple[Experiment, Any]:
    """Three tapped rounds."""
    config = ExperimentConfig(
        method={"name": method, "dim": 16, "negatives": 1, **settings},
        privacy=PrivacyPlan.parse(words),
        rounds=3,
        taps=TapConfig(places=("raw", "wire", "sum"), users=90, rounds=(0, 1, 2), inclusion=0.4),
    )
    experiment = Experiment(config, parts)
    return experiment, experiment.run(parts=("test",))


def failed(experiment: Experiment, result: Any) -> dict[str, Check]:
    rows = [row for check in IMPLEMENTATION_CHECKS for row in check(experiment, result)]
    return {row.name: row for row in rows if not row.passed}


OLD = [
    (LAPLACE, old_laplace, {game.NAME, inclusion_bits.NAME}),
    (GAUSSIAN, old_gaussian, {game.NAME, inclusion_bits.NAME}),
    (CENTRAL, old_gaussian, {game.NAME}),
]


@pytest.mark.parametrize(("words", "sampler", "names"), OLD, ids=["laplace", "gaussian", "central"])
def test_the_old_noise_denies_the_claim(
    parts: Split, patch: pytest.MonkeyPatch, words: str, sampler: Sampler, names: set[str]
) -> None:
    Planted(patch, sampler)
    experiment, result = trained(parts, words)
    found = failed(experiment, result)
    assert names | {grid.NAME} == set(found)
    for name in names:
        assert "is claimed" in found[name].detail
    run = as_run(experiment, result, "planted")
    assert {row.name for row in run.checks if not row.passed} == set(found)


@pytest.mark.parametrize("law", ["laplace", "gaussian", "central"])
def test_the_noise_of_the_library_passes_every_check(parts: Split, law: str) -> None:
    words = {"laplace": LAPLACE, "gaussian": GAUSSIAN, "central": CENTRAL}[law]
    experiment, result = trained(parts, words)
    rows = check_run(experiment, result)
    assert [row for row in rows if not row.passed and row.name in _names()] == []
    wanted = {grid.NAME, noise.SIZE, noise.FRESH, game.NAME} | ({inclusion_bits.NAME} if law != "central" else set())
    assert wanted <= {row.name for row in rows}


@pytest.mark.parametrize("words", [LAPLACE, CENTRAL])
def test_values_that_were_not_rounded_leave_the_grid(parts: Split, patch: pytest.MonkeyPatch, words: str) -> None:
    Planted(patch, on_grid("laplace" if words == LAPLACE else "gaussian"), rounded=False)
    experiment, result = trained(parts, words)
    assert grid.NAME in failed(experiment, result)


def _names() -> set[str]:
    return {grid.NAME, noise.SIZE, noise.FRESH, game.NAME, inclusion_bits.NAME, named_rows.NAME}


def faulty(fault: str, law: str) -> Sampler:
    honest = on_grid(law)

    def draw(round: int, query: int, user: int, block: str, scale: float, count: int) -> np.ndarray:
        match fault:
            case "nothing":
                return np.zeros(count)
            case "nothing in one round":
                return honest(round, query, user, block, scale, count) * (round != 1)
            case "nothing for one client":
                return honest(round, query, user, block, scale, count) * (user != 17)
            case "four fifths":
                return np.rint(0.8 * honest(round, query, user, block, scale, count) / STEP) * STEP
            case "nothing on a few rows":
                return honest(round, query, user, block, scale, count) * (np.arange(count) // 16 % 100 != 3)
            case "the same every round":
                return honest(0, query, user, block, scale, count)
            case "the same for every client":
                return honest(round, query, 0, block, scale, count)
            case _:
                return honest(0, query, user, block, scale, count) * (-1) ** round

    return draw


FAULTS = [
    ("nothing", noise.SIZE),
    ("nothing in one round", noise.SIZE),
    ("nothing for one client", noise.SIZE),
    ("four fifths", noise.SIZE),
    ("nothing on a few rows", noise.SIZE),
    ("the same every round", noise.FRESH),
    ("the same for every client", noise.FRESH),
    ("the same with the other sign", noise.FRESH),
]


@pytest.mark.parametrize(("fault", "name"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_faulty_noise_of_devices_is_found(parts: Split, patch: pytest.MonkeyPatch, fault: str, name: str) -> None:
    Planted(patch, faulty(fault, "laplace"), rounded=True)
    assert name in failed(*trained(parts, LAPLACE))


CENTRAL_FAULTS = [pair for pair in FAULTS if "client" not in pair[0]]


@pytest.mark.parametrize(("fault", "name"), CENTRAL_FAULTS, ids=[fault for fault, _ in CENTRAL_FAULTS])
def test_faulty_noise_of_a_server_is_found(parts: Split, patch: pytest.MonkeyPatch, fault: str, name: str) -> None:
    Planted(patch, faulty(fault, "gaussian"), rounded=True)
    assert name in failed(*trained(parts, CENTRAL))


def test_dense_uploads_that_share_noise_are_found(parts: Split, patch: pytest.MonkeyPatch) -> None:
    Planted(patch, faulty("the same for every client", "gaussian"), rounded=True)
    config = ExperimentConfig(
        method={"name": "fedvae", "latent": 4},
        privacy=PrivacyPlan.parse(GAUSSIAN),
        rounds=1,
        taps=TapConfig(places=("wire",), users=20, rounds=(0,)),
    )
    experiment = Experiment(config, parts)
    found = failed(experiment, experiment.run(parts=()))
    assert "agrees with" in found[noise.FRESH].detail or "occur twice" in found[noise.FRESH].detail


def test_padding_drawn_anew_is_found_in_what_was_sent(parts: Split, patch: pytest.MonkeyPatch) -> None:
    words = "shared-sum:clip_norm=1,padding.kind=fake_items,padding.rho=1,padding.drawn=uniform"
    assert named_rows.NAME not in failed(*trained(parts, words, "fedmf"))
    honest = AnnouncedRows._pattern

    def drawn_anew(self: Any, support: Any, draw: int, clients: Any, rows: int) -> Any:
        users = np.arange(support.n_users)
        extra = type(support).from_pairs(users, (users + 7 * draw) % rows, support.n_users, rows)
        self._patterns, self._earlier = {}, {}
        return honest(self, support.union(extra), draw, clients, rows)

    patch.setattr(AnnouncedRows, "_pattern", drawn_anew)
    experiment, result = trained(parts, words, "fedmf")
    row = failed(experiment, result)[named_rows.NAME]
    assert "90 of 90 clients" in row.detail


def test_rows_that_audited_clients_named_take_no_more_memory_than_they_are_long() -> None:
    users, table = 500, 400
    every = torch.arange(users * table)
    sent = SentRows(0, 0, "items", torch.arange(20), every, torch.full((table,), users))
    tracemalloc.start()
    rows = named_rows._by_user([sent], np.arange(20))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [row.tolist() for row in rows] == [list(range(table))] * 20
    assert kept < 2 * 20 * table * every.element_size()


def test_what_claims_nothing_is_not_asked(parts: Split) -> None:
    for words in ("none", "clip:clip_norm=1", "published-noise", "secure-sum:clip_norm=1"):
        experiment, result = trained(parts, words)
        assert [row for check in IMPLEMENTATION_CHECKS for row in check(experiment, result)] == []


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_noise_without_a_clip_is_checked_without_a_formula(parts: Split, law: str) -> None:
    experiment, result = trained(parts, f"published-noise:law={law},scale=0.1")
    assert all(row.passed for row in check_run(experiment, result))


@pytest.mark.parametrize(
    "words",
    [
        "local-laplace:epsilon0=1,clip_norm=1,upload_bits=3",
        "local-laplace:epsilon0=1,clip_norm=1,upload_bits=16",
        "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=40",
        "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=40,bits=12",
        "central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.quantile=0.5",
        "central-gaussian:clip_norm=1,noise_multiplier=2,clipping=per_block",
    ],
)
def test_size_and_freshness_of_honest_noise_are_never_doubted(parts: Split, words: str) -> None:
    for method in ("pfedrec", "fedvae"):
        experiment, result = trained(parts, words, "fedmf") if method == "pfedrec" else _vae(parts, words)
        assert not {noise.SIZE, noise.FRESH, inclusion_bits.NAME} & set(failed(experiment, result))


def _vae(parts: Split, words: str) -> tuple[Experiment, Any]:
    config = ExperimentConfig(
        method={"name": "fedvae", "latent": 4},
        privacy=PrivacyPlan.parse(words),
        rounds=2,
        taps=TapConfig(places=("raw", "wire", "sum"), users=30, rounds=(0, 1), inclusion=0.2),
    )
    experiment = Experiment(config, parts)
    return experiment, experiment.run(parts=())


def test_false_alarms_of_a_run_are_as_rare_as_promised() -> None:
    assert len(IMPLEMENTATION_CHECKS) * FALSE_ALARM <= MAX_FALSE_ALARM


def test_claimed_noise_is_that_of_the_plan() -> None:
    schema = {"a": Block((4,), weight=2.0)}
    values = np.ones((3, 4), np.float32)
    assert claimed_noise(PrivacyPlan.parse(LAPLACE), schema, "a", values, 10).scale == pytest.approx(10.0)
    assert claimed_noise(PrivacyPlan.parse(CENTRAL), schema, "a", values, 10).scale == pytest.approx(50.0)
    rounded = PrivacyPlan.parse(f"{LAPLACE},upload_bits=2")
    assert claimed_noise(rounded, schema, "a", values, 10).step == 1.0
    assert claimed_noise(PrivacyPlan.parse("none"), schema, "a", values, 10) is None
    assert grid_steps(PrivacyPlan.parse("none"), schema, 10) == {}
    assert grid_steps(PrivacyPlan.parse(f"{CENTRAL},adaptive.count_noise=60"), schema, 10) == {}
