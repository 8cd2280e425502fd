"""A run with donors through the front door: who is protected, who is not, and who can be recommended to."""

import pytest

import privfed
from privfed.data import DataError, SplitSpec, split


@pytest.fixture(scope="module")
def run():
    return privfed.run("private-gram", "synthetic-small", epsilon=8, split={"donors": ["3", "17"]}, protocol="honest")


def test_the_guarantee_is_about_everybody_else_and_says_so(run):
    sentence = next(s for s in run.guarantee.statements if "opened their history" in s)
    assert sentence.startswith("2 people opened their history to the server and have no guarantee at all")
    assert "the other 118" in sentence


def test_donors_are_recommended_to_by_their_history_alone(run):
    assert len(run.recommend(4, k=3)) == 3
    with pytest.raises(DataError, match=r"user 3 is a donor.*from the history"):
        run.recommend(3, k=3)
    assert len(run.recommend(history=[3, 8], k=3)) == 3


def test_everybody_else_keeps_their_own_history(run):
    """Rows move up where donors left, and nobody is recommended what they trained on."""
    data = run.data
    code = int(data.user_ids.astype(str).get_indexer(["18"])[0])
    trained = split(data, SplitSpec()).train.items_of(code)
    listed = set(run.recommend(18, k=data.n_items)["item"])
    assert listed == set(data.item_ids) - set(data.item_ids.take(trained))
