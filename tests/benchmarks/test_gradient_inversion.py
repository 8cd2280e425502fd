"""The differentiable steps are those that clients take."""

import numpy as np
import pytest
import torch

from benchmarks.privacy.gradient_inversion import METHODS, Matched, Sketch, step_of
from benchmarks.privacy.ranges_and_links import flat
from privfed.audit.active.honest_run import trained
from privfed.audit.active.lying_server import LyingServer
from privfed.privacy import PrivacyPlan
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

LIKE = {"colr": 0.9, "dpals": 0.9999, "private-autoencoder": 0.9999}
"""CoLR's clients draw the order of their samples; the others draw nothing."""
PLAN = PrivacyPlan.parse("none:sampling.kind=fixed,sampling.size=20")


@pytest.fixture(scope="module", params=METHODS)
def uploads(request, small_split):
    """Step, uploads of ten people, their histories, and what else is private to them."""
    config = ExperimentConfig(
        method={"name": request.param}, privacy=PLAN, rounds=1, evaluate_every=1, fidelity="analytic"
    )
    assembly = Assembly(config, small_split)
    run = trained(assembly, 0)
    assembly.clients.load(run.devices)
    query = [one for one in run.queries if one.message.shared][-1]
    people = torch.from_numpy(np.flatnonzero(small_split.train.counts)[:10])
    sent = LyingServer(assembly, query).uploads(query.message, people)
    history = torch.from_numpy(small_split.train.mask(people.numpy())).float()
    step = step_of(request.param, dict(query.message.shared), history.shape[1], config.settings(), 20.0)
    private = torch.zeros(len(people), step.private)
    if step.private:
        touched = next(iter(sent.values())).abs().sum(2) > 0
        vectors = run.devices["w"][people] / config.settings().initial_scale
        private = torch.cat([vectors, torch.where(touched & (history == 0), 20.0, -20.0)], 1)
    return request.param, step, torch.from_numpy(flat(sent)), history, private


def test_the_step_done_again_gives_the_upload(uploads):
    name, step, sent, history, private = uploads
    alike = torch.cosine_similarity(step.uploads(history, private), sent, dim=1)
    assert (alike > LIKE[name]).all()


def test_gradients_are_those_of_the_mismatch(uploads):
    _, step, sent, history, private = uploads
    matched = Matched(step, Sketch(sent.shape[1], sent.shape[1] // 8), sent.new_ones(len(sent), sent.shape[1] // 8))
    soft = (0.1 + 0.8 * history.double().numpy())[None]
    at = private.double().numpy()[None].clip(-2, 2)
    towards = np.random.default_rng(0).normal(size=soft.shape) * 1e-2
    below, above = (matched.mismatch(soft + sign * towards, at)[0] for sign in (-1, 1))
    _, slope, _ = matched.mismatch(soft, at)
    np.testing.assert_allclose((above - below) / 2, (slope * towards).sum(2), rtol=0.05, atol=2e-6)


def test_a_sketch_is_linear_and_of_no_width_everything(uploads):
    _, _, sent, _, _ = uploads
    sketch = Sketch(sent.shape[1], 50)
    torch.testing.assert_close(sketch.of(sent[:1] + sent[1:2]), sketch.of(sent[:1]) + sketch.of(sent[1:2]))
    assert Sketch(sent.shape[1], 0).of(sent) is sent
