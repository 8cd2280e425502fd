"""Folders as runs, audits and nodes leave them, made by hand so that any value in them can be another one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.audit.report.records import LedgerLine, Setting, write_report
from privfed.data import DatasetCard
from privfed.dossier.gathering import gather
from privfed.engines.nodes.budget import run_cost
from privfed.engines.nodes.record import ActiveRun, Book
from privfed.evaluation import HONEST, EvaluationResult, Metric
from privfed.evaluation.result import BeyondAccuracy, Ratio
from privfed.experiment.folder import DevicesRecord, EvaluationRecord, FolderRecord, write_json
from privfed.privacy import Ledger, PrivacyPlan, SchemaSummary
from privfed.setup.config import ExperimentConfig
from tests.audit.conftest import attack_row, full_run, guarantee, make_report, make_run

USERS = 1000
DATA = "a" * 64
GAUSSIAN = "central-gaussian:clip_norm=1,noise_multiplier=2"
CARD = DatasetCard(
    name="shop", users=USERS, items=50, distinct_items=50, interactions=9000, rows_read=9000, duplicates_dropped=0,
    density=0.18, synthetic=False, has_timestamps=True, sha256=DATA, terms=None,
)  # fmt: skip


def metric(value: float, name: Any = "ndcg") -> Metric:
    return Metric(name=name, k=10, value=value, lo=value - 0.01, hi=value + 0.01, n_users=USERS)


def evaluated(value: float, *, groups: bool = True) -> EvaluationResult:
    tenths = tuple(metric(value + 0.01 * n) for n in range(10)) if groups else ()
    beyond = BeyondAccuracy(k=10, exposure=(0.1,) * 10, by_activity=tenths)
    return EvaluationResult(
        metrics=(metric(value), metric(2 * value, "hr")), popularity=None, n_users=USERS, tie_fraction=0.0, part="test",
        protocol=HONEST, warning=None, beyond=beyond if groups else None,
    )  # fmt: skip


def charge(ledger: Ledger, rounds: int = 1) -> Ledger:
    """Queries of everybody, one a round."""
    everybody = None if ledger.plan.mechanism.trust == "central" else np.arange(ledger.population)
    for number in range(rounds):
        ledger.record(
            cohort_id=number, round=number, step="gram", index=0, schema=SchemaSummary(("gram",)),
            participants=everybody,
        )  # fmt: skip
    return ledger


def write_run(
    folder: Path,
    plan: str = GAUSSIAN,
    *,
    quality: float = 0.2,
    popularity: float = 0.1,
    data: str = DATA,
    rounds: int = 1,
    attacked: bool = False,
    card: DatasetCard = CARD,
) -> Path:
    """The folder of a finished run of `private-gram`."""
    folder.mkdir(parents=True)
    privacy = PrivacyPlan.parse(plan)
    config = ExperimentConfig(data="shop", method={"name": "private-gram"}, privacy=privacy, rounds=rounds)
    FolderRecord(kind="run", config=config.model_dump(mode="json"), columns=None, data_sha256=data).write(folder)
    ledger = charge(Ledger(privacy, USERS, folder / "ledger.jsonl", run=config.digest()), rounds)
    write_json(folder / "guarantee.json", ledger.guarantee().model_dump(mode="json"))
    record = EvaluationRecord(
        run=config.digest(),
        data=card.model_dump(mode="json") | {"sha256": data},
        split="the newest is tested",
        protocol=HONEST.sentence(),
        selected_round=0,
        test=evaluated(quality),
        popularity=evaluated(popularity, groups=False),
        gain=Ratio(value=quality - popularity, lo=quality - popularity - 0.01, hi=quality - popularity + 0.01),
        clipped_fraction=0.25,
    )
    write_json(folder / "evaluation.json", record.model_dump(mode="json"))
    if attacked:
        rows = [
            attack_row(name, auc, rounds, tap="wire")
            for name, auc, rounds in (("popularity", 0.842, [1]), ("rank-1 sign", 0.97, [1]), ("vote", 0.99, [1, 2]))
        ]
        write_json(
            folder / "attacks.json", {"plan": privacy.name, "attacks": [row.model_dump(mode="json") for row in rows]}
        )
    return folder


def write_audit(folder: Path, **changes: Any) -> Path:
    """The folder of an audit of two settings, one of them with Gaussian noise."""
    folder.mkdir(parents=True)
    gaussian = make_run(
        "private-gram", "local_laplace", 0, run_id="gram", setting=Setting(slug="gaussian", name="central Gaussian"),
        plan=PrivacyPlan.parse(GAUSSIAN).to_dict(), attacks=[],
        guarantee=guarantee("local_laplace", epsilon=1.99, neighbours="add_or_remove_one", trust="central"),
        ledger=[LedgerLine(event="gaussian: noise multiplier 2", times=1, squared_mu=0.25)],
    )  # fmt: skip
    report = make_report([make_run("popularity", "none", 0), full_run("gpfedrec", "none", 0), gaussian], **changes)
    write_report(report, folder / "report.json")
    (folder / "index.html").write_text("<!doctype html><title>The audit</title>")
    return folder


def write_node(folder: Path, runs: int = 1, policy: str = "[policy]\nmax_epsilon = 8.0\n") -> Path:
    """The folder of a node that has taken part in runs."""
    (folder / "state").mkdir(parents=True)
    (folder / "secret.key").write_bytes(bytes(32))
    (folder / "node.toml").write_text(policy)
    book = Book()
    for number in range(runs):
        name = f"run-{number}"
        ledger = charge(Ledger(PrivacyPlan.parse(GAUSSIAN), USERS, folder / f"ledger-{name}.jsonl", run=name))
        cost = run_cost(name, ledger)
        book.active[name] = ActiveRun(entries=len(ledger.entries), head=ledger.head, cost=cost, costed=1)
    book.save(folder / "state")
    return folder


def write_devices(folder: Path, **changes: Any) -> Path:
    """The folder of a finished run over people's devices."""
    folder.mkdir(parents=True)
    privacy = PrivacyPlan.parse("distributed-gaussian:noise_multiplier=4,clip_norm=1.0,n_min_honest=600")
    config = ExperimentConfig(data="devices", method={"name": "popularity"}, privacy=privacy, rounds=1)
    ledger = charge(Ledger(privacy, USERS, folder / "ledger.jsonl", run="b" * 32))
    write_json(folder / "guarantee.json", ledger.guarantee(seeded=False).model_dump(mode="json"))
    said = {
        "run": "b" * 32, "config": config.model_dump(mode="json"), "federation": "people", "version": 3, "sha256": DATA,
        "people": USERS, "items": 50, "started": "2026-11-01T08:00:00+00:00", "ended": "2026-11-02T08:00:00+00:00",
        "joined": 900, "summed": (870,), "unused": {"masking": 2},
    }  # fmt: skip
    DevicesRecord(**said | changes).write(folder)
    return folder


def change(file: Path, **fields: Any) -> None:
    """Other values for some fields of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of a kind, made once; read it, do not write to it."""
    above = tmp_path_factory.mktemp("sources")
    made = {
        "run": write_run(above / "a" / "run"),
        "attacked": write_run(above / "b" / "attacked", attacked=True),
        "unprotected": write_run(above / "c" / "unprotected", "none", quality=0.05, attacked=True),
        "laplace": write_run(above / "d" / "laplace", "local-laplace:epsilon0=1,clip_norm=1"),
        "audit": write_audit(above / "audit"),
        "node": write_node(above / "node"),
        "devices": write_devices(above / "e" / "devices"),
    }
    gather(made["audit"], "gpfedrec:none")
    return made.__getitem__
