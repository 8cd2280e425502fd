"""Learned inversion reads uploads without a row per item where they say something, and guesses where they do not."""

import numpy as np
import pytest

from attacks import ViewError
from attacks.membership.learned_inversion import learned_inversion
from attacks.metrics import user_auc

ITEMS, SIZE, STEPS, NEWCOMERS = 60, 400, 4, 1500


def trained(histories: np.ndarray, seed: int) -> np.ndarray:
    """A few steps of an autoencoder x -> tanh(x W) V on each history, its change sent as a sketch of signs."""
    public = np.random.default_rng(seed)
    start = 0.3 * public.normal(size=(ITEMS, 6)), 0.3 * public.normal(size=(6, ITEMS))
    signs = public.choice((-1.0, 1.0), (2 * ITEMS * 6, SIZE)) / np.sqrt(SIZE)
    x = histories / np.linalg.norm(histories, axis=1, keepdims=True)
    first, second = (np.repeat(one[None], len(x), axis=0) for one in start)
    for _ in range(STEPS):
        hidden = np.tanh(np.einsum("ui,uiw->uw", x, first))
        error = np.einsum("uw,uwi->ui", hidden, second) - x
        back = np.einsum("ui,uwi->uw", error, second) * (1 - hidden**2)
        second -= 0.5 * hidden[:, :, None] * error[:, None]
        first -= 0.5 * x[:, :, None] * back[:, None]
    change = np.concatenate([(first - start[0]).reshape(len(x), -1), (second - start[1]).reshape(len(x), -1)], axis=1)
    return change @ signs


@pytest.mark.parametrize("informative", [True, False])
def test_a_sketch_of_several_steps_shows_a_history(informative: bool) -> None:
    rng = np.random.default_rng(0)
    histories = rng.random((NEWCOMERS + 40, ITEMS)) < 0.15
    histories[:, 0] |= ~histories.any(axis=1)
    uploads = trained(histories.astype(np.float64), 1)
    if not informative:
        uploads = rng.permuted(uploads, axis=0)
    scores = learned_inversion(uploads[NEWCOMERS:], uploads[:NEWCOMERS], histories[:NEWCOMERS])
    auc = user_auc(scores, histories[NEWCOMERS:], np.ones_like(histories[NEWCOMERS:])).mean()
    if informative:
        assert auc > 0.85
    else:
        assert auc == pytest.approx(0.5, abs=0.05)


def test_noise_as_long_as_the_upload_hides_it() -> None:
    rng = np.random.default_rng(2)
    histories = rng.random((NEWCOMERS + 40, ITEMS)) < 0.15
    histories[:, 0] |= ~histories.any(axis=1)
    uploads = trained(histories.astype(np.float64), 1)
    noisy = uploads[NEWCOMERS:] + rng.normal(0, 20 * uploads.std(), (40, SIZE))
    scores = learned_inversion(noisy, uploads[:NEWCOMERS], histories[:NEWCOMERS])
    assert user_auc(scores, histories[NEWCOMERS:], np.ones_like(histories[NEWCOMERS:])).mean() == pytest.approx(
        0.5, abs=0.06
    )


def test_uploads_of_another_length_are_refused() -> None:
    with pytest.raises(ViewError, match="of the same length"):
        learned_inversion(np.ones((2, 3)), np.ones((4, 5)), np.ones((4, 6), dtype=bool))
