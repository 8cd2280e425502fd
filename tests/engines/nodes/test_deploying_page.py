"""The files of `docs/guides/deploying.md` are what a node and a server read."""

import re
from pathlib import Path

import pytest

from privfed.engines.nodes.policy import Policy
from privfed.privacy.mechanisms.unsized import Unsized

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "deploying.md").read_text(encoding="utf-8")


def blocks(language: str, word: str) -> list[str]:
    """Blocks of the page that hold a word."""
    return [one for one in re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL) if word in one]


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
