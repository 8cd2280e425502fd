"""Facts about the public data sets, checked where a local copy is present."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

from privfed.data import SplitSpec, behaviours_from_ratings, catalogue, downloads, load, split

COLUMNS = ("user", "item", "rating", "timestamp")


@pytest.fixture(scope="module")
def ml_100k(real_data):
    return load(real_data / "raw" / "ml-100k")


def assert_same(one, other):
    for column in COLUMNS:
        a, b = getattr(one, column), getattr(other, column)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
    assert one.card.sha256 == other.card.sha256
    for attribute in ("gender", "age", "age_group", "occupation"):
        assert one.attributes[attribute].tolist() == other.attributes[attribute].tolist()


def test_ml_100k_codes_are_ids_less_one(ml_100k):
    assert ml_100k.user_ids.tolist() == list(range(1, 944))
    assert ml_100k.item_ids.tolist() == list(range(1, 1683))
    assert (ml_100k.user[0], ml_100k.item[0], ml_100k.timestamp[0]) == (195, 241, 881250949)
    assert ml_100k.card.interactions == ml_100k.card.rows_read == 100_000
    assert ml_100k.item_info["title"][0] == "Toy Story (1995)"


def test_ml_100k_is_the_same_from_official_files_and_from_tables(ml_100k, real_data):
    assert_same(ml_100k, load("ml-100k", path=real_data))


def test_ml_100k_is_the_same_from_a_recbole_wheel(ml_100k, monkeypatch):
    cached = [d.cached() for d in next(d for d in catalogue.list() if d.name == "ml-100k").downloads]
    if not cached[0] and importlib.util.find_spec("recbole") is None:
        pytest.skip(f"no RecBole wheel in {downloads.cache_folder()}: run `privfed data fetch ml-100k`")
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)
    assert_same(ml_100k, load("ml-100k", offline=True))


@pytest.mark.parametrize("ties", ["earlier_row_is_newer", "later_row_is_newer"])
def test_ml_100k_leave_one_out_has_the_published_sizes(ml_100k, ties):
    parts = split(ml_100k, SplitSpec(ties=ties))
    counts = parts.train.counts
    assert (counts.min(), np.median(counts), counts.max()) == (18, 63, 735)
    assert counts.mean() == pytest.approx(104.04, abs=0.01)
    assert parts.users_without_holdout == 0


def test_ml_100k_ties_decide_what_is_tested(ml_100k):
    newest = np.zeros(ml_100k.n_users, dtype=np.int64)
    np.maximum.at(newest, ml_100k.user, ml_100k.timestamp)
    at_newest = np.bincount(ml_100k.user[ml_100k.timestamp == newest[ml_100k.user]])
    assert (at_newest > 1).sum() == 415
    early, late = (
        split(ml_100k, SplitSpec(ties=ties)).test.items for ties in ("earlier_row_is_newer", "later_row_is_newer")
    )
    assert (early != late).sum() == 415


def test_lastfm_counts_tags_and_not_listening(real_data):
    dropped = load(real_data / "lastfm-2k-tags", min_per_user=5)
    kept = load(real_data / "lastfm-2k-tags", min_per_user=5, duplicates="keep")
    assert (dropped.n_users, dropped.card.distinct_items) == (1600, 12_454)
    assert (kept.card.interactions, dropped.card.interactions) == (185_649, 70_508)
    assert dropped.card.duplicates_dropped == kept.card.duplicates_kept == 185_649 - 70_508
    assert split(kept, SplitSpec()).leaked > 0
    assert split(dropped, SplitSpec()).leaked == 0


def test_ml_1m_is_ordered_by_rank_with_unknown_ranks_first(real_data):
    data = load("ml-1m", path=real_data)
    assert (data.n_users, data.n_items, data.card.distinct_items) == (6040, 3883, 3706)
    assert len(data) == 1_000_209
    parts = split(data, SplitSpec())
    last = np.full(data.n_users, -1)
    np.maximum.at(last, data.user, data.order)
    newest = data.order == last[data.user]
    expected = np.empty(data.n_users, dtype=np.int64)
    expected[data.user[newest]] = data.item[newest]
    assert np.array_equal(parts.test.items, expected)
    published = split(data, SplitSpec(kind="published"))
    assert [len(part) for part in (published.train, published.valid, published.test)] == [
        720_152,
        80_016,
        200_041,
    ]


def test_ml_1m_official_files(real_data, tmp_path):
    raw = real_data / "raw" / "ml-1m"
    (tmp_path / "ratings.dat").write_bytes((raw / "ratings.sample.dat").read_bytes())
    for name in ("users.dat.gz", "movies.dat.gz"):
        (tmp_path / name).write_bytes((raw / name).read_bytes())
    data = load("ml-1m", path=tmp_path)
    assert (data.n_users, data.n_items, len(data)) == (1, 3883, 53)
    assert data.attributes.loc[0, ["gender", "age", "occupation"]].tolist() == ["F", 1, "K-12 student"]
    assert data.item_info["title"][0] == "Toy Story (1995)"


def test_amazon_users_with_ten_rows_match_the_published_count(real_data):
    data = load(real_data / "amazon-instant-video", min_per_user=10)
    assert (data.n_users, data.card.distinct_items, len(data)) == (1372, 7957, 23_181)
    assert data.n_items == 11_830


@pytest.fixture(scope="module")
def jd(real_data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(catalogue.ENVIRONMENT, str(real_data))
        return load("jd-dfmr")


def test_jd_has_its_declared_catalogue_and_counts(jd):
    assert (jd.n_users, jd.n_items, jd.card.distinct_items) == (10_690, 13_465, 13_058)
    assert jd.behaviour_counts == {"buy": 71_872, "fav": 7_380, "view": 217_977}
    assert jd.card.duplicates_dropped == 0
    assert len(np.unique(jd.user)) == 10_690


def test_jd_published_split_with_its_views(jd):
    parts = split(jd, SplitSpec(kind="published", target="buy"))
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [60_967, 5_892, 5_013]
    assert {name: len(rows) for name, rows in parts.auxiliary.items()} == {"fav": 3_539, "view": 168_764}
    pairs = {
        name: part.owners * jd.n_items + part.items
        for name, part in {"train": parts.train, "test": parts.test, "view": parts.auxiliary["view"]}.items()
    }
    assert not np.isin(pairs["view"], pairs["train"]).any()
    assert np.isin(pairs["test"], pairs["view"]).mean() == pytest.approx(0.07, abs=0.005)


def test_jd_from_files_has_the_same_codes(jd, tmp_path):
    part_of, behaviour_of = {"train": "trn", "valid": "vld", "test": "tst"}, {"buy": "buy", "fav": "fav", "view": "pv"}
    labels = pd.DataFrame({"part": jd.split, "behaviour": jd.behaviour})
    rows_of = labels.groupby(["behaviour", "part"], observed=True).indices
    for (behaviour, part), rows in rows_of.items():
        pairs = pd.DataFrame({"user": jd.user[rows] + 1, "item": jd.item[rows] + 1})
        pairs.to_csv(tmp_path / f"{part_of[part]}_{behaviour_of[behaviour]}", sep=" ", header=False, index=False)
    (tmp_path / "meta.json").write_text('{"catalog": {"items": 13465}}')
    spec = SplitSpec(kind="published", target="buy")
    ours, theirs = split(jd, spec), split(load(tmp_path), spec)
    assert ours.describe().removeprefix(ours.source) == theirs.describe().removeprefix(theirs.source)
    for one, other in (
        (ours.train, theirs.train),
        (ours.test, theirs.test),
        (ours.auxiliary["view"], theirs.auxiliary["view"]),
    ):
        assert np.array_equal(one.indptr, other.indptr)
        assert np.array_equal(one.items, other.items)


@pytest.mark.parametrize(
    ("name", "users", "items", "auxiliaries"),
    [("tmall-dfmr", 17_202, 16_177, ["fav"]), ("ub-dfmr", 20_443, 30_947, ["cart", "fav"])],
)
def test_tmall_and_ub_have_purchases_and_some_auxiliaries(real_data, name, users, items, auxiliaries):
    data = load(real_data / name)
    assert (data.n_users, data.n_items) == (users, items)
    assert list(split(data, SplitSpec(kind="published", target="buy")).auxiliary) == auxiliaries


def test_ml_100k_behaviours_has_the_sizes_of_the_research_note(ml_100k):
    """What the note counts as 22,564 examinations depends on how equal times are ordered; u.data gives 22,562."""
    data = behaviours_from_ratings(ml_100k)
    assert (data.n_users, data.n_items) == (937, 621)
    spec = SplitSpec(kind="user_time", target="buy", valid_fraction=0.1, test_fraction=0.1)
    parts = split(data, spec)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [39_937, 5_005, 5_456]
    assert len(parts.auxiliary["view"]) == 22_562
    assert parts.users_without_holdout == 0
    early = split(data, spec.model_copy(update={"ties": "earlier_row_is_newer"}))
    assert (len(early.train), len(early.auxiliary["view"])) == (39_937, 22_494)


def test_ml_100k_behaviours_is_found_by_its_name(real_data, ml_100k):
    assert load("ml-100k-behaviours", path=real_data).card.sha256 == behaviours_from_ratings(ml_100k).card.sha256


def test_last_fm_has_the_official_sizes_and_fewer_pairs_than_tags(real_data):
    played = load(real_data / "raw" / "lastfm-2k" / "user_artists.dat.gz")
    assert (played.n_users, played.n_items, len(played)) == (1892, 17_632, 92_834)
    tags = load(real_data / "raw" / "lastfm-2k" / "user_taggedartists.part1.dat.gz")
    assert (tags.n_users, tags.n_items, tags.card.rows_read) == (1892, 12_523, 186_478)
    active = load(real_data / "raw" / "lastfm-2k" / "user_taggedartists.part1.dat.gz", min_per_user=5)
    assert (active.n_users, active.card.distinct_items, len(active)) == (1600, 12_454, 70_508)


def test_published_splits_leave_room_for_validation(real_data):
    ml_1m = split(load(real_data / "ml-1m"), SplitSpec(kind="published"))
    assert [len(part) for part in (ml_1m.train, ml_1m.valid, ml_1m.test)] == [720_152, 80_016, 200_041]
    books = load(real_data / "goodreads-100")
    published = split(books, SplitSpec(kind="published"))
    assert [len(part) for part in (published.train, published.valid, published.test)] == [482_745, 0, 206_869]
    assert published.untrained == 83_394
    tuned = split(books, SplitSpec(kind="published", valid_from_train=True))
    assert len(tuned.train) + len(tuned.valid) == 482_745
    assert len(tuned.valid) == pytest.approx(48_274.5, abs=50)
    assert tuned.test.items.tobytes() == published.test.items.tobytes()
