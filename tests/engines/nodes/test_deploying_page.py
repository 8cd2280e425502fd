"""The programs and files of `docs/guides/deploying.md` make what a node and a server read."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.policy import Policy
from privfed.privacy.mechanisms.unsized import Unsized

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "deploying.md").read_text(encoding="utf-8")
ROWS = 4


def blocks(language: str, word: str) -> list[str]:
    """Blocks of the page that hold a word."""
    return [one for one in re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL) if word in one]


def written_by(program: str, folder: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> NodeData:
    """What a program of the page writes, in a folder below `place`."""
    monkeypatch.chdir(place)
    exec(program.replace(f'"{folder}"', repr(str(place / "written"))), {})
    return NodeData.load(place / "written")


def test_an_organisation_gives_its_users_the_numbers_of_the_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = blocks("python", "from_split")
    (tmp_path / "alpha").mkdir()
    rows = [f"u{user:04},{(user + row) % 1500},{row}" for user in range(1000) for row in range(ROWS)]
    (tmp_path / "alpha" / "sales.csv").write_text("\n".join(["user,item,time", *rows]))
    (tmp_path / "alpha" / "meta.json").write_text(json.dumps({"catalog": {"items": 1500}}))
    moved = program.replace("np.arange(0, 1000)", "np.arange(1000, 2000)")
    data = written_by(moved, "/srv/node", tmp_path, monkeypatch)
    assert (data.population, data.items) == (3000, 1500)
    assert data.users.tolist() == list(range(1000, 2000))
    for part, position in ((data.parts.valid, ROWS - 2), (data.parts.test, ROWS - 1)):
        assert part.owners.tolist() == list(range(1000, 2000))
        assert part.items.tolist() == [(user + position) % 1500 for user in range(1000)]
    assert set(np.unique(data.parts.train.owners)) == set(range(1000, 2000))


def test_a_server_writes_a_catalogue_and_nobodys_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks("python", "items.csv")
    (tmp_path / "items.csv").write_text("item,title,genres,year\nb,Later,x|y,2001\na,Sooner,x,1999\n")
    data = written_by(program, "/srv/catalogue", tmp_path, monkeypatch)
    assert (data.population, data.items, len(data.users), len(data.parts.train)) == (3000, 2, 0, 0)
    described = data.parts.item_info
    assert described is not None
    assert described["title"].tolist() == ["Later", "Sooner"]


def policies(place: Path) -> list[Policy]:
    """The policies that the page shows: of a node, and of the owner of a guarded app."""
    found = []
    for text in blocks("toml", "[policy]"):
        (place / "node.toml").write_text(text)
        found.append(Policy.read(place / "node.toml"))
    return found


def test_the_policies_bound_epsilon(tmp_path: Path) -> None:
    assert [policy.max_epsilon for policy in policies(tmp_path)] == [4.0, 8.0]


def test_the_run_file_fits_the_policy(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from privfed.engines.flower.server import FederationConfig

    (text,) = blocks("toml", "[federation.experiment]")
    (tmp_path / "run.toml").write_text(text)
    federation = FederationConfig.read(tmp_path / "run.toml")
    experiment, policy = federation.experiment, policies(tmp_path)[0]
    assert (federation.data, federation.party) == (Path("/srv/catalogue"), Path("/srv/server"))
    assert experiment.evaluation.private
    assert experiment.privacy.target is not None
    assert experiment.privacy.target.epsilon == policy.max_epsilon
    assert isinstance(experiment.privacy.mechanism, Unsized)
    plan = experiment.privacy.model_copy(update={"mechanism": experiment.privacy.mechanism.template})
    policy.accept_plan(experiment.method_name, plan, experiment.rounds, 3000, seeded=False)
    policy.accept_share(plan, 1000)
