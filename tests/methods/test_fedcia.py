"""FedCIA is what its paper says, told user by user; its mean matrix holds GF-CF; one upload is one history."""

import numpy as np
import pytest
import torch

from privfed.audit.attack_runs.attack_run import attack_taps
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.testing import check_method


def histories(world):
    return world.data.positives.mask(np.arange(world.data.n_users)).astype(float)


def upload(x, low_pass):
    """The released filter of one user's row: normalise by user and item degree, then add the low pass."""
    degree = x.sum()
    row = x / np.sqrt(degree)
    vector = row / np.linalg.norm(row)
    inside = np.diag((x > 0).astype(float))
    return np.outer(row, row) + low_pass * inside @ np.outer(vector, vector) @ inside


def test_as_released_a_device_filters_its_history_with_the_mean_of_everybodys(world):
    w = world("fedcia", filtered_on="device", low_pass=0.3).train(2)
    x = histories(w)
    mean = sum(upload(one, 0.3) for one in x) / len(x)
    torch.testing.assert_close(w.server.tensors["weights"].double(), torch.from_numpy(mean), rtol=1e-4, atol=1e-6)
    users = torch.arange(4)
    scores = w.clients.score(users, w.server.public(), None, None)
    torch.testing.assert_close(scores.double(), torch.from_numpy(x[:4] @ mean), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [3, 500])
def test_the_mean_matrix_holds_the_graph_filter_of_the_pooled_histories(world, dim):
    """GF-CF computed centrally, from the normalised matrix of users and items itself."""
    w = world("fedcia", low_pass=0.5, dim=dim).train(1)
    x = histories(w)
    by_item = np.maximum(x.sum(0), 0.5)
    r = x / np.sqrt(x.sum(1, keepdims=True)) / np.sqrt(by_item)
    values, v = np.linalg.svd(r, full_matrices=False)[1:]
    v = v[:dim][values[:dim] > 1e-2 * values[0]].T
    low = (v / np.sqrt(by_item)[:, None]) @ (v * np.sqrt(by_item)[:, None]).T
    found = w.server.tensors["weights"].double()
    torch.testing.assert_close(found, torch.from_numpy(r.T @ r + 0.5 * low), rtol=1e-3, atol=1e-4)


def test_a_device_without_any_item_gets_popularity(world):
    w = world("fedcia").train(1)
    w.clients.rows.counts[2] = 0
    scores = w.clients.score(torch.arange(3), w.server.public(), None, None)
    assert scores[2].equal(w.server.tensors["popularity"])
    counts = torch.from_numpy(histories(w).mean(0)).float()
    torch.testing.assert_close(scores[2], counts, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("plan", ["none", "published-noise:scale=0.001"])
def test_one_upload_is_one_history_also_behind_the_published_noise(small_split, plan):
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "fedcia", "filtered_on": "device"}, privacy=PrivacyPlan.parse(plan),
        rounds=1,
        taps=TapConfig(places=("wire",), users=20),
    )  # fmt: skip
    done = Experiment(config, small_split)
    result = done.run()
    assert result.guarantee.epsilon == float("inf")
    rows = attack_taps(done, result.transcript.joined, 1).rows
    (norm,) = [row for row in rows if (row.tap, row.attack, row.scope) == ("wire", "row norm", "all items")
               and "never" in row.game]  # fmt: skip
    assert norm.auc.value == 1.0
    assert norm.n_users == 20


def test_as_published_it_keeps_the_contract():
    check_method(method("fedcia"), **method("fedcia").presets["published"].settings)
