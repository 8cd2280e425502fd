"""Views, games and scopes."""

import numpy as np
import pytest

from attacks import Knowledge, ServerView, Targets, ViewError
from attacks.evaluation import TOUCHED_ITEMS
from attacks.views import proximal_share, upload_support


def test_wrong_shapes_and_values_are_refused():
    good = np.ones((2, 3, 4), np.float32)
    with pytest.raises(ViewError, match="float64 of shape"):
        ServerView(0, good.astype(np.float64))
    with pytest.raises(ViewError, match=r"\(2, 3\)"):
        ServerView(0, good[:, :, 0])
    with pytest.raises(ViewError, match="NaN or infinity"):
        ServerView(0, np.where(good > 0, np.float32(np.nan), good))
    with pytest.raises(ViewError, match="proximal has shape"):
        ServerView(0, good, good[:1])
    with pytest.raises(ViewError, match="float64 number per item"):
        Knowledge(np.ones(3, np.float32))
    with pytest.raises(ViewError, match="two boolean masks"):
        Targets(np.ones((2, 3), bool), np.ones((2, 4), bool))


def test_games_choose_their_candidates():
    train = np.array([[1, 1, 0, 0, 0]], bool)
    held_out = np.array([[0, 0, 1, 0, 0]], bool)
    never = Targets.trained_vs_never_seen(train, train | held_out)
    assert never.candidates.tolist() == [[True, True, False, True, True]]
    held = Targets.trained_vs_held_out(train, held_out)
    assert held.candidates.tolist() == [[True, True, True, False, False]]
    assert (never.members == train).all()
    assert (held.members == train).all()


def test_touched_scope_keeps_touched_rows_and_says_when_it_cannot_tell(world):
    members, held_out, uploads, _ = world
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    seen = upload_support(ServerView(0, uploads))
    asked = targets.among_touched(seen)
    assert (asked.candidates == (targets.candidates & uploads.any(axis=2))).all()
    assert (asked.scope, asked.note) == (TOUCHED_ITEMS, "")
    assert (seen.rows & members).sum() == members.sum()
    noisy = uploads.copy()
    noisy[:4] += np.random.default_rng(0).normal(0, 0.01, noisy[:4].shape).astype(np.float32)
    asked = targets.among_touched(upload_support(ServerView(0, noisy)))
    assert "4 of 30 users" in asked.note
    assert (asked.candidates[:4] == targets.candidates[:4]).all()


def test_the_proximal_term_is_found_exactly_and_taken_out(world):
    _, _, uploads, _ = world
    rng = np.random.default_rng(1)
    proximal = rng.normal(size=uploads.shape).astype(np.float32)
    share = rng.uniform(0.2, 0.9, len(uploads)).astype(np.float32)
    view = ServerView(0, uploads + share[:, None, None] * proximal, proximal)
    assert proximal_share(view) == pytest.approx(share, rel=1e-5)
    assert (upload_support(view).rows == uploads.any(axis=2)).all()
    noisy = view.uploads + rng.laplace(0, 0.5, uploads.shape).astype(np.float32)
    assert proximal_share(ServerView(0, noisy, proximal)) == pytest.approx(share, abs=0.05)


def test_absent_users_are_known():
    uploads = np.zeros((3, 4, 2), np.float32)
    uploads[1, 2, 0] = 1
    view = ServerView(0, uploads)
    assert view.present().tolist() == [False, True, False]
    assert not upload_support(view).rows[0].any()
