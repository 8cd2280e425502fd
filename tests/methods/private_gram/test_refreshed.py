"""`private-gram-year`: totals against one release, people who come, miss and go, the account, a resumed year."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.audit.checks.transcript_ledger import check_transcript
from privfed.contracts import RunningTotals
from privfed.data import Histories, Split, SplitSpec
from privfed.experiment import Experiment
from privfed.methods.private_gram.refreshed import _add_shared_
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.testing.population import client_data

T = 4
QUIET = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1e-5, delta=1e-5)
LOUD = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=2.0, delta=1e-5)
SETTINGS = {"head": 12, "min_items": 1, "metadata": False, "select": False, "histories": "long"}


@pytest.fixture(scope="module")
def parts():
    train = client_data().positives
    nobody = Histories.from_pairs(*(np.empty(0, np.int64),) * 2, train.n_users, train.n_items)
    return Split(SplitSpec(), train, nobody, nobody, train.n_users)


def experiment(parts, plan=QUIET, method="private-gram-year", rounds=T, **settings):
    fields = SETTINGS | ({"refreshes": T} if method.endswith("year") else {}) | settings
    config = ExperimentConfig(
        method={"name": method, **fields}, privacy=plan, rounds=rounds, taps=TapConfig(places=()), fidelity="analytic"
    )
    return Experiment(config, parts)


def arriving(parts, counts):
    """The same, everybody with so many items at each refresh."""
    return replace(parts, arrived=np.asarray(counts, dtype=np.int64))


def constant(parts, joins):
    """Everybody joins at some refresh, with everything."""
    weeks = np.arange(T)
    return arriving(parts, np.where(weeks >= np.asarray(joins)[:, None], parts.train.counts[:, None], 0))


def popularity(e):
    """The total that the server would publish now."""
    return e.server._weights() @ e.server.released["popularity"][: e.server._refresh + 1].double()


def test_without_noise_every_total_is_the_release_of_who_has_joined(parts):
    joins = np.random.default_rng(0).integers(T, size=parts.train.n_users)
    e = experiment(constant(parts, joins))
    simulation_rounds = []
    e.run(progress=lambda t, _: simulation_rounds.append(popularity(e)), parts=())
    for t, found in enumerate(simulation_rounds):
        rows = parts.train.first(np.where(joins <= t, parts.train.counts, 0))
        wanted = np.zeros(rows.n_items)
        np.add.at(wanted, rows.items, 1 / np.sqrt(rows.counts[rows.owners]))
        np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)


def test_a_year_in_which_nothing_changes_ends_with_the_weights_of_one_release(parts):
    year, once = experiment(parts), experiment(parts, method="private-gram", rounds=1)
    for e in (year, once):
        e.run(parts=())
    own, other = year.server.public().shared, once.server.public().shared
    assert torch.equal(own["head"], other["head"])
    torch.testing.assert_close(own["weights"], other["weights"], atol=2e-2, rtol=0)


def test_a_year_costs_what_one_release_costs(parts):
    year, once = experiment(parts, LOUD), experiment(parts, LOUD, method="private-gram", rounds=1)
    claims = [e.run(parts=()).guarantee for e in (year, once)]
    assert claims[0].epsilon == pytest.approx(claims[1].epsilon, rel=2e-3)
    assert claims[0].epsilon >= claims[1].epsilon


def test_the_noise_of_totals_is_what_the_server_allows_for(parts):
    nobody = replace(parts, train=Histories.from_pairs(*(np.empty(0, np.int64),) * 2, parts.train.n_users, 20_000))
    nobody = replace(nobody, valid=nobody.train, test=nobody.train)
    e = experiment(nobody, LOUD, min_items=10**6, popularity_share=0.5)
    found = []
    e.run(
        progress=lambda t, _: found.append(
            (float(popularity(e).std()), e.server._deviation(e.server.schemas[0], "popularity"))
        ),
        parts=(),
    )
    for seen, told in found:
        assert seen == pytest.approx(told, rel=0.03)
    assert found[-1][1] == pytest.approx(2.0 * RunningTotals(T).factor / np.sqrt(0.5), rel=1e-3)


def test_a_resumed_year_is_the_same_to_the_bit(parts, tmp_path):
    joins = np.random.default_rng(0).integers(T, size=parts.train.n_users)
    data = constant(parts, joins)

    def made():
        e = experiment(data, LOUD, min_items=0)
        e.config = e.config.model_copy(update={"checkpoint_every": 1})
        return e

    def killed(t, _):
        if t == 1:
            raise KeyboardInterrupt

    whole, stopped = made(), made()
    (tmp_path / "whole").mkdir(), (tmp_path / "killed").mkdir()
    first = whole.run(tmp_path / "whole", parts=())
    with pytest.raises(KeyboardInterrupt):
        stopped.run(tmp_path / "killed", progress=killed, parts=())
    resumed = made()
    second = resumed.run(tmp_path / "killed", resume=True, parts=())
    for name, value in whole.server.state().items():
        assert torch.equal(value, resumed.server.state()[name]), name
    assert first.guarantee.epsilon == second.guarantee.epsilon
    accounts = [(tmp_path / name / "ledger.jsonl").read_text().count("account") for name in ("whole", "killed")]
    assert accounts == [2 * T, 2 * T]


def test_devices_that_would_send_everything_every_time_are_held_to_a_norm(parts, monkeypatch):
    """Half the point of an account: it holds whatever a method makes devices send."""
    e = experiment(parts, LOUD)
    monkeypatch.setattr(e.clients, "_sent", np.ones(T))
    e.run(parts=())
    most = []
    for name in ("popularity", "gram"):
        sums = e.server.released[name].double()
        most.append(sums.abs().sum())
    assert all(np.isfinite(most))
    # Nothing is left after the first refresh: later sums are noise around zero.
    later = e.server.released["popularity"][1:].double()
    assert abs(float(later.mean())) < 4 * 2.0 / np.sqrt(0.1) / np.sqrt(later.numel())


def test_matrices_about_other_heads_are_added_where_they_overlap():
    rng = np.random.default_rng(0)
    head, other = torch.tensor([4, 1, 7]), torch.tensor([7, 2, 4])
    total, gram = torch.zeros(3, 3, dtype=torch.float64), torch.from_numpy(rng.normal(size=(3, 3)))
    _add_shared_(total, head, gram, other, 9)
    for i, one in enumerate(head.tolist()):
        for j, two in enumerate(head.tolist()):
            there = one in other.tolist() and two in other.tolist()
            wanted = float(gram[other.tolist().index(one), other.tolist().index(two)]) if there else 0.0
            assert float(total[i, j]) == wanted


def test_a_year_with_a_person_and_without_is_within_the_guarantee(parts):
    """Retrain without: the same noise, everybody else's uploads alike; what is left apart has at most a clip norm."""
    joins = np.zeros(parts.train.n_users, dtype=np.int64)
    joins[5] = 1
    data = constant(parts, joins)
    gone = data.arrived.copy()
    gone[5] = 0
    rows = parts.train.first(gone[:, -1])
    without = replace(data, train=rows, arrived=gone)
    released = []
    for world in (data, without):
        e = experiment(world, LOUD, head=39)
        # Heads follow noise, so both worlds are asked the same: the mechanism bounds what one answer changes.
        e.server._popularity = lambda *a, own=e.server: _fixed(own, *a)
        e.run(parts=())
        released.append({name: e.server.released[name].double() for name in ("popularity", "gram")})
    schema = {**e.server.schemas[0], **e.server.schemas[1]}
    moved = {name: (released[0][name] - released[1][name]) * schema[name].weight for name in ("popularity", "gram")}
    for name, share in (("popularity", e.server.constants.share), ("gram", 1 - e.server.constants.share)):
        apart = float(moved[name].square().sum()) / share
        # Who joined at the second of four refreshes has sent what three of them take.
        assert apart == pytest.approx(np.square(RunningTotals(T).sent[: T - 1]).sum(), rel=0.01)
        assert apart <= 1
        assert float(moved[name][0].abs().max()) < 1e-3


def _fixed(server, federation, cohort, schema):
    """Ask for popularity, and go on as if everything had been equally popular, in the order of the items."""
    type(server)._popularity(server, federation, cohort, schema)
    return torch.arange(server.items, 0, -1, dtype=torch.float64) * 100


def test_the_report_says_what_a_year_counts_as_and_what_leaving_means(parts):
    statements = " ".join(experiment(parts, LOUD).run(parts=()).guarantee.statements)
    assert "All 4 releases of popularity and gram that a year has are counted from the first one on" in statements
    assert "deleting one takes no retraining" in statements


def test_the_checks_of_an_audit_find_nothing_and_notice_a_year_that_is_charged_release_by_release(parts):
    e = experiment(parts, LOUD)
    e.config = e.config.model_copy(update={"taps": TapConfig(places=("raw",), rounds=(0, 1, 2, 3))})
    result = e.run(parts=())
    assert [row for row in check_transcript(e, result) if not row.passed] == []
    witness = result.witness
    assert witness is not None
    for exchange in witness.exchanges:
        exchange.schema = {name: replace(block, refreshes=1) for name, block in exchange.schema.items()}
    told = " ".join(str(row) for row in check_transcript(e, result) if not row.passed)
    assert "1 releases share its account, and the ledger records 4" in told
