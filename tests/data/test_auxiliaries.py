"""Target and auxiliary behaviours: what a split keeps beside the behaviour to recommend."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, SplitSpec, build, load, split

TIES = ("later_row_is_newer", "earlier_row_is_newer")
KINDS = ("leave_one_out", "user_time", "ratio", "published")
N_ITEMS = 8

rows_strategy = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, N_ITEMS - 1),
        st.integers(0, 5),
        st.sampled_from(["buy", "view", "cart"]),
        st.sampled_from(["train", "valid", "test"]),
    ),
    min_size=1,
    max_size=60,
)


def toy(rows):
    user, item, time, behaviour, part = zip(*rows, strict=True)
    return build("toy", user, item, timestamp=time, behaviour=behaviour, split=part, catalogue=N_ITEMS)


def listed(histories):
    return [histories.items_of(user).tolist() for user in range(histories.n_users)]


def naive_auxiliary(data, spec, behaviour, trained):
    """One user at a time; `trained` are the training items of each user."""
    sign = 1 if spec.ties == "later_row_is_newer" else -1
    result = []
    for user in range(data.n_users):
        mine = sorted(
            (row for row in range(len(data)) if data.user[row] == user),
            key=lambda row: (data.timestamp[row], sign * row),
        )
        places = [n for n, row in enumerate(mine) if data.behaviour[row] == spec.target]
        if spec.kind == "ratio":
            prefix = mine
        elif spec.kind == "published":
            prefix = [row for row in mine if data.split[row] == "train"]
        else:
            newest = [n for n in places if data.item[mine[n]] in trained[user]]
            prefix = mine[: max(newest) + 1] if newest else []
        kept = [data.item[row] for row in prefix if data.behaviour[row] == behaviour]
        result.append([int(item) for item in kept if item not in trained[user]])
    return result


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(rows=rows_strategy)
def test_auxiliaries_agree_with_a_plain_loop_and_the_target_with_its_rows_alone(kind, ties, rows):
    rows.append((0, 0, 0, "buy", "train"))
    data = toy(rows)
    spec = SplitSpec(kind=kind, ties=ties, target="buy")
    result = split(data, spec)
    alone = split(data.only("buy"), SplitSpec(kind=kind, ties=ties))
    for ours, theirs in ((result.train, alone.train), (result.valid, alone.valid), (result.test, alone.test)):
        assert listed(ours) == listed(theirs)
    assert alone.auxiliary == {}
    others = sorted(set(data.behaviour) - {"buy"})
    assert list(result.auxiliary) == others
    for name in others:
        assert listed(result.auxiliary[name]) == naive_auxiliary(data, spec, name, listed(result.train))
        assert (result.auxiliary[name].n_users, result.auxiliary[name].n_items) == (data.n_users, data.n_items)


def test_held_out_pairs_that_were_viewed_before_stay_among_the_views():
    """Only training pairs go: removing the others would tell that no view that is left can be a purchase."""
    data = build(
        "toy",
        [1] * 7,
        [1, 2, 3, 1, 2, 3, 4],
        timestamp=range(7),
        behaviour=["view", "view", "view", "buy", "buy", "buy", "buy"],
        catalogue=5,
    )
    result = split(data, SplitSpec(target="buy"))
    assert (result.train.items_of(0).tolist(), result.valid.items_of(0).tolist()) == ([1, 2], [3])
    assert result.auxiliary["view"].items_of(0).tolist() == [3]


def test_a_target_is_asked_for_by_name_and_must_exist():
    data = build("toy", [1] * 3, [1, 2, 3], behaviour=["buy", "view", "buy"], split=["train", "train", "test"])
    with pytest.raises(DataError, match=r'mixes behaviours \(buy, view\): .*SplitSpec\(target="buy"\)') as caught:
        split(data, SplitSpec(kind="published"))
    assert re.search(r"mixes behaviours \(buy, view\): .* --set split.target=buy", caught.value.command_line)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"no behaviour 'purchase': choose among those it has \(buy, view\)"):
        split(data, SplitSpec(kind="published", target="purchase"))
    with pytest.raises(DataError, match="leave the behaviour 'buy' out"):
        split(build("toy", [1], [1]), SplitSpec(kind="ratio", target="buy"))
    single = split(data.only("buy"), SplitSpec(kind="published"))
    assert (len(single.train), single.auxiliary) == (1, {})


def test_codes_never_depend_on_the_target():
    data = build("toy", [3, 7, 7], ["b", "a", "c"], behaviour=["buy", "view", "view"])
    for target in ("buy", "view"):
        result = split(data, SplitSpec(kind="ratio", target=target, test_fraction=0, valid_fraction=0))
        assert (result.train.n_users, result.train.n_items) == (2, 3)
        everything = [*result.auxiliary.values(), result.train]
        pairs = {(int(u), int(i)) for part in everything for u, i in zip(part.owners, part.items, strict=True)}
        assert pairs == {(0, 1), (1, 0), (1, 2)}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("leave_one_out", "not newer than the user's last training row"),
        ("user_time", "not newer than the user's last training row"),
        ("ratio", "those of held-out pairs included"),
    ],
)
def test_the_sentence_names_target_auxiliaries_and_prefix(kind, words):
    result = split(load("synthetic-funnel-small"), SplitSpec(kind=kind, target="buy"))
    sentence = result.describe()
    sizes = ", ".join(f"{name} {len(result.auxiliary[name]):,}" for name in ("cart", "view"))
    assert f"the target is buy, beside it {sizes}" in sentence
    assert words in sentence
    assert sentence.count(". ") == 0


def test_published_rows_of_other_parts_are_left_out_and_single_behaviours_are_named():
    data = build(
        "toy",
        [1] * 4,
        [1, 2, 3, 4],
        behaviour=["buy", "view", "view", "buy"],
        split=["train", "train", "test", "test"],
    )
    result = split(data, SplitSpec(kind="published", target="buy"))
    assert data.item_ids[result.auxiliary["view"].items].tolist() == [2]
    assert "rows of the training part" in result.describe()
    alone = split(data.only("buy"), SplitSpec(kind="published", target="buy"))
    assert alone.describe().endswith("the target is buy.")


def test_who_trains_on_nothing_has_no_auxiliary_rows_where_time_is_claimed():
    data = build("toy", [1, 1, 2], [1, 2, 1], timestamp=[1, 2, 3], behaviour=["view", "view", "buy"])
    result = split(data, SplitSpec(target="buy"))
    assert result.auxiliary["view"].counts.tolist() == [0, 0]
    assert split(data, SplitSpec(kind="ratio", target="buy")).auxiliary["view"].counts.tolist() == [2, 0]


def test_behaviours_are_counted():
    data = build("toy", [1, 1, 2], [1, 2, 1], behaviour=["view", "buy", "view"])
    assert data.behaviour_counts == {"buy": 1, "view": 2}
    assert data.only("view").behaviour_counts == {"view": 2}
    assert build("toy", [1], [1]).behaviour_counts == {}
    assert np.array_equal(data.rows_of("view"), [True, False, True])
