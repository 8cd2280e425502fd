"""The two tables of Last.fm 2K: pairs kept once, months as times, parts put together."""

import gzip
from datetime import UTC, datetime

import pytest

from privfed.data import DataError, SplitSpec, load, split

PLAYS = "userID\tartistID\tweight\n2\t51\t13883\n2\t52\t11690\n4\t51\t1\n"
HEADER = "userID\tartistID\ttagID\tday\tmonth\tyear\n"
TAGS = ["2\t52\t13\t1\t4\t2009\n", "2\t52\t15\t1\t3\t2009\n", "2\t63\t13\t1\t5\t2009\n", "4\t52\t7\t1\t12\t2005\n"]


def write(folder, files, *, zipped=False):
    for name, content in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_plays_are_kept_as_a_number_of_each_pair(tmp_path, zipped):
    data = load(write(tmp_path, {"user_artists.dat": PLAYS}, zipped=zipped))
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([2, 4], [51, 52])
    assert data.rating.tolist() == [13883, 11690, 1]
    assert data.timestamp is None
    assert "HetRec 2011" in data.card.terms


@pytest.mark.parametrize("zipped", [False, True])
def test_a_pair_tagged_twice_is_one_pair_at_its_first_month(tmp_path, zipped):
    whole = load(write(tmp_path, {"user_taggedartists.dat": HEADER + "".join(TAGS)}, zipped=zipped))
    assert (len(whole), whole.card.duplicates_dropped) == (3, 1)
    assert whole.timestamp.tolist() == [
        int(datetime(*month, 1, tzinfo=UTC).timestamp()) for month in ((2009, 3), (2009, 5), (2005, 12))
    ]
    assert split(whole, SplitSpec(kind="user_time", test_fraction=0.5)).leaked == 0
    kept = load(next(tmp_path.iterdir()), duplicates="keep")
    assert (len(kept), kept.card.duplicates_kept) == (4, 1)


def test_parts_are_one_table_and_a_gap_is_noticed(tmp_path):
    names = [f"user_taggedartists.part{number}.dat" for number in (1, 2, 10)]
    parts = dict(zip(names, [HEADER + TAGS[0], HEADER + TAGS[1] + TAGS[2], HEADER + TAGS[3]], strict=True))
    with pytest.raises(DataError, match=r"user_taggedartists\.part3\.dat is missing in .*, and later parts"):
        load(write(tmp_path, parts))
    (tmp_path / names[2]).rename(tmp_path / "user_taggedartists.part3.dat")
    in_parts = load(tmp_path / names[0])
    whole = tmp_path / "whole"
    whole.mkdir()
    assert in_parts.card.sha256 == load(write(whole, {"user_taggedartists.dat": HEADER + "".join(TAGS)})).card.sha256
    write(tmp_path, {names[1]: HEADER + TAGS[1] + "2\t63\t13\t31\t2\t2009\n"})
    with pytest.raises(DataError, match=r"part2\.dat, line 3: there is no day 31 of month 2 of 2009"):
        load(tmp_path)


def test_two_data_sets_in_one_folder_need_a_choice(tmp_path):
    folder = write(tmp_path, {"user_artists.dat": PLAYS, "user_taggedartists.dat": HEADER + "".join(TAGS)})
    with pytest.raises(DataError, match=r"user_artists\.dat, user_taggedartists\.dat side by side"):
        load(folder)
    assert load(folder / "user_artists.dat").rating is not None
    assert load(folder / "user_taggedartists.dat").timestamp is not None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "user_artists.dat",
            PLAYS + "2\t53\n",
            r"line 5 is malformed .*expected 3 fields \(userID, artistID, weight\)",
        ),
        ("user_artists.dat", "userID\tartistID\tweight\n", "has a header and no rows"),
        (
            "user_taggedartists.dat",
            HEADER + "2\t52\t13\t1\tMay\t2009\n",
            "the month must be a whole number, found 'May'",
        ),
    ],
)
def test_bad_lines_are_named(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        load(write(tmp_path, {name: content}))
