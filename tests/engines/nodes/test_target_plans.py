"""A target epsilon over nodes: the server sizes the plan, and announces nothing that is open."""

from typing import Any

import pytest
from pydantic import ValidationError

from privfed.engines.nodes.announcement import Announcement
from privfed.privacy import PrivacyPlan

ASKED = "central-gaussian:epsilon=8"


def test_nodes_are_told_the_sized_plan(federation: Any) -> None:
    f = federation("fedmf", ASKED)
    plan = f.announced().config.privacy
    assert plan.target is None
    assert plan == f.simulated()[0].config.privacy


def test_an_unsized_plan_is_refused(federation: Any) -> None:
    f = federation("fedmf", ASKED)
    told = f.announced().model_dump(mode="json")
    told["config"]["privacy"] = PrivacyPlan.parse(ASKED).to_dict()
    with pytest.raises(ValidationError, match="the server chooses both before it announces a run"):
        Announcement.model_validate(told)


def test_training_over_nodes_keeps_to_the_target_and_goes_on(federation: Any) -> None:
    f = federation("fedmf", ASKED, rounds=2)
    trained = f.train()
    assert 0.99 * 8 <= trained.guarantee.epsilon <= 8
    assert f.train().guarantee.epsilon == trained.guarantee.epsilon
