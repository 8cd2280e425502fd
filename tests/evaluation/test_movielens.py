"""Popularity on the real MovieLens-100K; skipped where the data is absent."""

import os
from pathlib import Path

import numpy as np
import pytest

from privfed.data import SplitSpec, load, split
from privfed.evaluation import HONEST, PAPER, Evaluator

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVFED_TEST_DATA", ROOT.parent / "shared" / "data")) / "ml-100k"


@pytest.mark.skipif(not DATA.exists(), reason="MovieLens-100K is not on this machine (set PRIVFED_TEST_DATA)")
def test_popularity_on_movielens_100k():
    parts = split(load(str(DATA)), SplitSpec())
    popularity = parts.train.popularity()
    users = np.arange(parts.train.n_users)
    evaluator = Evaluator(parts, HONEST)
    evaluator.add(users, np.broadcast_to(popularity.astype(np.float32), (len(users), parts.train.n_items)))
    full = evaluator.result()
    assert full.n_users == 943
    assert full.metric("hr", 20).value == pytest.approx(0.125, abs=0.015)
    evaluator = Evaluator(parts, PAPER)
    evaluator.add(users, popularity.astype(np.float32)[evaluator.candidates(users)])
    sampled = evaluator.result()
    assert 0.35 < sampled.metric("hr", 10).value < 0.5
