"""Users who help the adversary, and whose taste others share."""

import numpy as np
import pytest

from attacks import Knowledge, ServerView, Targets, ViewError, measure
from attacks.membership import COLLUSION_ATTACKS, NeighbourVote, observe
from attacks.metrics import user_auc


@pytest.fixture(scope="module")
def circles():
    """60 users in three circles, each with 80 items of its own that are otherwise alike; half of the users help."""
    rng = np.random.default_rng(0)
    circle = np.arange(60) % 3
    own = circle[:, None] == np.arange(240)[None] // 80
    members = rng.random((60, 240)) < np.where(own, 0.3, 0.02)
    direction = rng.normal(size=6)
    uploads = members[:, :, None] * direction + rng.normal(0, 0.7, (60, 240, 6))
    colluding = np.arange(60) < 30
    knowledge = Knowledge(members.sum(axis=0).astype(np.float64), colluding=colluding, histories=members)
    return members, own, ServerView(0, uploads.astype(np.float32)), knowledge


def test_neighbours_give_taste_away_under_noise_on_every_row(circles):
    members, _, view, knowledge = circles
    targets = Targets.trained_vs_never_seen(members, members).excluding(knowledge.colluding)
    rows = {row.attack: row for row in measure(observe(COLLUSION_ATTACKS, [view], knowledge), knowledge, targets)}
    assert rows["neighbours"].n_users == 30
    assert rows["neighbours"].auc.lo > 0.7
    assert rows["popularity"].auc.value == pytest.approx(0.55, abs=0.1)
    assert rows["neighbours"].gain.lo > 0.1


def test_it_is_the_circle_that_is_found_and_not_the_item(circles):
    """Within the user's own circle, items of members and of others are told apart no better than by popularity."""
    members, own, view, knowledge = circles
    scores = NeighbourVote(prior=0.0).score(view, knowledge)[30:]
    assert user_auc(scores, own[30:], np.ones_like(own[30:])).mean() > 0.8
    within = user_auc(scores, members[30:], own[30:]).mean()
    assert within == pytest.approx(0.5, abs=0.06)


def test_noise_gives_popularity_at_best(circles):
    members, _, view, knowledge = circles
    noise = np.random.default_rng(1).normal(size=view.uploads.shape).astype(np.float32)
    scores = NeighbourVote().score(ServerView(0, noise), knowledge)[30:]
    assert user_auc(scores, members[30:], np.ones_like(members[30:])).mean() == pytest.approx(0.52, abs=0.05)


def test_the_vote_by_hand(circles):
    _, _, view, knowledge = circles
    few = ServerView(0, np.where(np.arange(60)[:, None, None] == 4, 0, view.uploads))
    scores = NeighbourVote(5, prior=2.0).score(few, knowledge)
    flat = few.uploads.reshape(60, -1).astype(np.float64)
    here = np.delete(np.arange(60), 4)
    centred = flat - flat[here].mean(axis=0)
    for user in (31, 47):
        cosine = {
            v: centred[user] @ centred[v] / np.linalg.norm(centred[user]) / np.linalg.norm(centred[v])
            for v in range(30)
            if v != 4
        }
        nearest = sorted(cosine, key=cosine.get)[-5:]
        most = max(cosine.values())
        votes = sum(max(cosine[v], 0) / most * knowledge.histories[v] for v in nearest)
        size = knowledge.histories[[v for v in range(30) if v != 4]].sum(axis=1).mean()
        votes = votes + 2.0 * size * knowledge.popularity / knowledge.popularity.sum()
        assert scores[user] == pytest.approx((votes - votes.mean()) / votes.std(), abs=1e-4)
    assert (scores[:30] == 0).all()


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_length_of_uploads_and_histories_of_others_do_not_matter(circles, factor):
    _, _, view, knowledge = circles
    base = NeighbourVote().score(view, knowledge)
    scaled = ServerView(0, (view.uploads * np.float32(factor)).astype(np.float32))
    unknown = np.where(knowledge.colluding[:, None], knowledge.histories, True)
    other = Knowledge(knowledge.popularity, colluding=knowledge.colluding, histories=unknown)
    assert NeighbourVote().score(scaled, other) == pytest.approx(base, abs=1e-3)


def test_refusals(circles):
    members, _, view, knowledge = circles
    with pytest.raises(ViewError, match="at least one user"):
        NeighbourVote().score(view, Knowledge(knowledge.popularity))
    nobody = Knowledge(knowledge.popularity, colluding=np.zeros(60, bool), histories=members)
    with pytest.raises(ViewError, match="at least one user"):
        NeighbourVote().score(view, nobody)
    fewer = Knowledge(knowledge.popularity, colluding=np.ones(59, bool), histories=members[1:])
    with pytest.raises(ViewError, match="about 59 users but the view about 60"):
        NeighbourVote().score(view, fewer)
    with pytest.raises(ViewError, match="only one of colluding and histories"):
        Knowledge(knowledge.popularity, colluding=np.ones(60, bool))
    with pytest.raises(ViewError, match=r"boolean masks of shapes \[users\]"):
        Knowledge(knowledge.popularity, colluding=np.ones(60, bool), histories=members[:, :5])
    for wrong in (lambda: NeighbourVote(0), lambda: NeighbourVote(prior=-1.0)):
        with pytest.raises(ValueError, match="NeighbourVote got"):
            wrong()
