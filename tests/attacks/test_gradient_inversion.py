"""Gradient inversion of a step that is known in closed form, through a sketch in which no row is visible."""

from dataclasses import dataclass

import numpy as np
import pytest

from attacks import ViewError
from attacks.membership.gradient_inversion import gradient_inversion

ITEMS, PEOPLE, WIDTH = 60, 5, 40


@dataclass
class Squares:
    """Uploads are sketches of history^2 plus what the private numbers add."""

    seen: np.ndarray
    mixed: np.ndarray
    people: int = PEOPLE
    private: int = 3

    def uploads(self, history, private):
        return np.concatenate([history**2, 0.3 * private], -1) @ self.mixed

    def mismatch(self, history, private):
        error = self.uploads(history, private) - self.seen
        back = 2 * error @ self.mixed.T
        return (error**2).sum(-1), back[..., :ITEMS] * 2 * history, 0.3 * back[..., ITEMS:]


@pytest.fixture
def step():
    rng = np.random.default_rng(0)
    made = Squares(np.zeros(0), rng.choice([-1.0, 1.0], (ITEMS + 3, WIDTH)))
    made.history = rng.random((PEOPLE, ITEMS)) < 0.1
    made.seen = made.uploads(made.history.astype(float), rng.normal(size=(PEOPLE, 3)))
    return made


def test_a_history_is_found_though_no_row_of_the_upload_belongs_to_an_item(step):
    scores = gradient_inversion(step, np.full(ITEMS, 0.1), steps=400)
    inside, outside = scores[step.history], scores[~step.history]
    assert (inside[:, None] > outside).mean() > 0.95


def test_the_gradient_is_followed_and_not_the_prior_alone(step):
    prior = np.where(step.history[0], 0.05, 0.15)
    scores = gradient_inversion(step, prior, steps=400)
    assert (scores[0][step.history[0]][:, None] > scores[0][~step.history[0]]).mean() > 0.9
    pulled = gradient_inversion(step, prior, steps=50, proximal=1e6)
    assert (pulled[0][step.history[0]][:, None] < pulled[0][~step.history[0]]).mean() > 0.9


def test_a_start_that_explains_worse_is_dropped(step):
    few, many = (gradient_inversion(step, np.full(ITEMS, 0.1), steps=100, starts=n) for n in (1, 6))
    explained = [step.mismatch(1 / (1 + np.exp(-scores)), np.zeros((PEOPLE, 3)))[0].mean() for scores in (few, many)]
    assert explained[1] < explained[0]


def test_probabilities_of_zero_and_no_steps_are_one_sentence(step):
    with pytest.raises(ViewError, match="strictly between"):
        gradient_inversion(step, np.zeros(ITEMS))
    with pytest.raises(ViewError, match="0 steps"):
        gradient_inversion(step, np.full(ITEMS, 0.1), steps=0)
