"""A dossier of what a real node leaves: its ledger, its book, and nothing that the server says."""

import pytest

from privfed.dossier.budget import yearly_budget
from privfed.dossier.gathering import gather

SHARES = "distributed-gaussian:noise_multiplier=4,clip_norm=1.0,n_min_honest=20"


@pytest.mark.parametrize(("plan", "finite"), [(SHARES, True), ("secure-sum:clip_norm=1.0", False)])
def test_a_node_s_folder_is_read_as_it_was_left(federation, plan, finite):
    f = federation("fedmf", plan, rounds=2, checkpoint_every=1)
    f.train()
    evidence = gather(f.folder / "node100")
    assert evidence.kind == "node"
    assert evidence.guarantee.value.finite is finite
    assert evidence.mu is None
    assert evidence.ledger is not None
    assert evidence.ledger.value.entries == 2
    budget = yearly_budget(evidence, [], "2026")
    assert [run.current for run in budget.past] == [True]
    assert budget.past[0].epsilon == evidence.guarantee.value.epsilon
