import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.data import DataError, SplitSpec, load, split

FLAGS = "|".join(["0"] * 5 + ["1", "0", "1"] + ["0"] * 11)
ML_100K = {
    "u.data": "2\t3\t4\t100\n1\t1\t5\t90\n2\t1\t3\t100\n",
    "u.user": "1|17|F|writer|00000\n2|56|M|other|11111\n",
    "u.item": f"1|Amélie (2001)|01-Jan-2001||http://x|{FLAGS}\n2|B|||http://x|{FLAGS}\n3|C|||http://x|{FLAGS}\n",
}
ML_1M = {
    "ratings.dat": "2::30::4::100\n1::10::5::90\n2::10::3::100\n",
    "users.dat": "1::F::1::20::00000\n2::M::56::0::11111\n",
    "movies.dat": "10::Amélie (2001)::Comedy|Drama\n20::B: the sequel::War\n30::C::War\n",
}
ATOMIC = {
    "toy.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "2\t30\t4\t100\n1\t10\t5\t90\n2\t10\t3\t100\n",
    "toy.user": "user_id:token\tage:token\tgender:token\toccupation:token\n1\t17\tF\twriter\n2\t56\tM\tother\n",
    "toy.item": "item_id:token\tmovie_title:token_seq\n10\tA\n20\tB\n30\tC\n",
}


def write(folder: Path, files: dict[str, str], encoding: str = "latin-1", *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode(encoding)))
        else:
            (folder / name).write_bytes(content.encode(encoding))
    return folder


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("files", [ML_100K, ML_1M, ATOMIC], ids=["ml-100k", "ml-1m", "atomic"])
def test_official_layouts(tmp_path, files, zipped):
    data = load(write(tmp_path / "toy", files, zipped=zipped))
    assert data.name == "toy"
    assert data.user.tolist() == [1, 0, 1]
    assert data.item.tolist() == [2, 0, 0]
    assert data.timestamp.tolist() == [100, 90, 100]
    assert data.timestamp.dtype == np.int64
    assert data.rating.tolist() == [4, 5, 3]
    assert (data.n_items, data.card.distinct_items) == (3, 2)
    assert data.attributes["gender"].tolist() == ["F", "M"]
    assert data.attributes["age_group"].tolist() == ["Under 18", "56+"]
    assert data.attributes["occupation"].tolist() == ["writer", "other"]
    assert len(data.item_info) == 3


def test_movielens_titles_and_genres(tmp_path):
    old, new = load(write(tmp_path / "a", ML_100K)), load(write(tmp_path / "b", ML_1M))
    assert old.item_info["title"][0] == new.item_info["title"][0] == "Amélie (2001)"
    assert old.item_info["genres"][0] == "Comedy|Documentary"
    assert new.item_info["title"][1] == "B: the sequel"
    assert load(write(tmp_path / "c", ATOMIC)).item_info["title"].tolist() == ["A", "B", "C"]


def test_windows_line_ends_and_trailing_blank_lines_change_nothing(tmp_path):
    plain = load(write(tmp_path / "toy", ML_100K))
    other = load(
        write(
            tmp_path / "w" / "toy",
            {
                "u.data": ML_100K["u.data"].replace("\n", "\r\n") + "\r\n\n",
                **{name: ML_100K[name] for name in ("u.user", "u.item")},
            },
        )
    )
    assert plain.card == other.card


def test_a_zip_a_wheel_and_a_single_file_are_read_alike(tmp_path):
    folder = write(tmp_path / "toy", ATOMIC)
    wheel = tmp_path / "toy.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other/readme.txt", "nothing")
        for path in folder.iterdir():
            archive.write(path, f"some/inner/folder/{path.name}")
    assert load(folder).card == load(wheel).card == load(folder / "toy.inter").card


def test_files_beside_the_main_one_may_be_absent(tmp_path):
    data = load(write(tmp_path, {"u.data": ML_100K["u.data"]}))
    assert data.attributes is None
    assert data.item_info is None
    assert data.item_ids.tolist() == [1, 3]


def test_a_folder_with_two_atomic_data_sets_needs_a_choice(tmp_path):
    write(tmp_path, ATOMIC | {"b.inter": ATOMIC["toy.inter"]})
    with pytest.raises(DataError, match=r"b\.inter, toy\.inter side by side"):
        load(tmp_path)
    assert len(load(tmp_path / "b.inter")) == 3


@pytest.mark.parametrize(
    ("layout", "name", "content", "message"),
    [
        (ML_100K, "u.data", "", "u.data is empty"),
        (
            ML_100K,
            "u.data",
            "1\t1\t5\t9\n1\t2\t5\n",
            r"line 2 is malformed \('1\\t2\\t5'\): expected 4 fields .* found 3",
        ),
        (ML_100K, "u.data", "1\t1\t5\t9\n\n1\t2\t5\t9\n", r"line 2 is malformed \(''\)"),
        (
            ML_100K,
            "u.data",
            "1\t1\t5\t9\n1\tx\t5\t9\n",
            r"line 2 .* the item must be a whole number, found 'x'",
        ),
        (ML_100K, "u.data", "1\t1\t5\t9\n1\t-2\t5\t9\n", r"u.data, line 2: the item id is negative \(-2\)"),
        (ML_100K, "u.data", "1\t1\tnan\t9\n", r"u.data, line 1: the rating is not a finite number"),
        (
            ML_100K,
            "u.data",
            "1\t1\t5\t99999999999999999999\n",
            r"line 1 .* the timestamp must be a whole number",
        ),
        (ML_100K, "u.data", "1\t1\t5\t9\n1\t4\t5\t9\n", r"u.data, line 2: item 4 is not among the 3 items"),
        (ML_100K, "u.user", "1|17|F|writer\n", r"u.user, line 1 is malformed .* expected 5 fields"),
        (ML_100K, "u.item", "1|A\n", r"u.item, line 1 is malformed .* expected 24 fields"),
        (
            ML_1M,
            "ratings.dat",
            "1::10::5::9\n1:10::5::9\n",
            r"line 2 is malformed \('1:10::5::9'\).* '::', found 3",
        ),
        (
            ML_1M,
            "users.dat",
            "1::F::1::20::0\n2::F::1::21::0\n",
            r"users.dat, line 2: occupation 21 is not one of 0 to 20",
        ),
        (
            ATOMIC,
            "toy.inter",
            "user_id\titem_id:token\n1\t2\n",
            r"header field 'user_id' without a RecBole type",
        ),
        (ATOMIC, "toy.inter", "user_id:token\titem_id:token\n", "has a header and no rows"),
        (
            ATOMIC,
            "toy.inter",
            "who:token\titem_id:token\n1\t2\n",
            r"no column 'user' for the user \(it has who, item_id\)",
        ),
        (
            ATOMIC,
            "toy.inter",
            "user_id:token\titem_id:token\n1\t\n",
            r"toy.inter, line 2: the item id is empty",
        ),
        (
            ATOMIC,
            "toy.user",
            "uid:token\tage:token\n1\t2\n",
            r"toy.user has no field 'user_id' \(it has uid, age\)",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, layout, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path, layout | {name: content}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,item\r1,2\r3,4\r", "ends its lines with carriage returns alone"),
        (
            f"user,item\n1,2\n3,{'x' * 200_000}\n4\n",
            "line 3 cannot be split into fields .*: correct or remove the line",
        ),
        (f"user,{'x' * 200_000}\n1,2\n", "line 1 cannot be split into fields .*: correct or remove the line"),
    ],
    ids=("carriage returns", "long field", "long name"),
)
def test_lines_that_cannot_be_split_are_refused_in_one_sentence(tmp_path, content, message):
    place = write(tmp_path, {"lines.csv": content})
    with pytest.raises(DataError, match=message) as caught:
        load(place / "lines.csv")
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8_is_named(tmp_path):
    write(tmp_path, ATOMIC)
    (tmp_path / "toy.item").write_bytes("item_id:token\tname:token_seq\n10\tA\n20\tAmélie\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"toy.item, line 3 is malformed .* it is not utf-8 text"):
        load(tmp_path)


def test_missing_and_unknown_things_are_named(tmp_path):
    with pytest.raises(DataError, match="nowhere' is not known"):
        load("nowhere")
    with pytest.raises(DataError, match="there is nothing at"):
        load("ml-100k", path=tmp_path / "absent")
    write(tmp_path, {"readme.txt": "hello"})
    with pytest.raises(DataError, match=r"holds readme.txt, which does not tell one data set"):
        load(tmp_path)
    with pytest.raises(DataError, match="of no known layout"):
        load(tmp_path / "readme.txt")
    (tmp_path / "broken.zip").write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match="not a readable zip archive"):
        load(tmp_path / "broken.zip")
    (tmp_path / "u.data.gz").write_bytes(b"not gzip at all")
    with pytest.raises(DataError, match=r"u.data cannot be read"):
        load(tmp_path / "u.data.gz")


CSV = """who,when,iid,note
ann,2020-01-01T00:00:02,x,"a, b"
bob,2020-01-01T00:00:01,y,c
ann,2020-01-01T00:00:00,y,d
"""
NAMED = {"user": "who", "item": "iid", "timestamp": "when"}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_tables_with_named_columns(tmp_path, suffix):
    path = tmp_path / f"shop{suffix}"
    frame = pd.read_csv(io.StringIO(CSV), parse_dates=["when"])
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        content = CSV if "csv" in suffix else CSV.replace("a, b", "a b").replace(",", "\t")
        path.write_bytes(gzip.compress(content.encode()) if suffix.endswith("gz") else content.encode())
    data = load(path, columns=NAMED)
    assert data.name == "shop"
    assert data.user_ids.tolist() == ["ann", "bob"]
    assert data.item_ids.tolist() == ["x", "y"]
    assert data.timestamp.tolist() == [1577836802, 1577836801, 1577836800]
    assert data.histories().items_of(0).tolist() == [1, 0]


def test_columns_with_the_names_of_roles_need_no_naming(tmp_path):
    (tmp_path / "t.csv").write_text("user,item,order,split,behaviour,extra\n1,5,2,train,buy,z\n1,6,1,test,view,z\n")
    data = load(tmp_path / "t.csv")
    assert data.order.tolist() == [2, 1]
    assert data.split.tolist() == ["train", "test"]
    assert data.behaviour.tolist() == ["buy", "view"]
    assert data.timestamp is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, r"no column 'user' for the user \(it has who, when, iid, note\).*columns="),
        ({"user": "who", "item": "article"}, r"no column 'article' for the item"),
        ({"person": "uid"}, r"columns names 'person', which is not a role"),
        (
            NAMED | {"rating": "note"},
            r"shop.csv, line 2 is malformed .* the note must be a number, found 'a, b'",
        ),
        ({"user": "who", "item": "iid", "timestamp": "note"}, r"line 2: the timestamp is neither"),
    ],
)
def test_unknown_columns_and_bad_values_of_a_table(tmp_path, columns, message):
    (tmp_path / "shop.csv").write_text(CSV)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "shop.csv", columns=columns)


def test_a_fixed_layout_takes_no_columns(tmp_path):
    with pytest.raises(DataError, match="fixed layout"):
        load(write(tmp_path, ML_100K), columns={"user": "a"})


def test_a_parquet_folder_translates_codes_and_knows_its_catalogue(tmp_path):
    pd.DataFrame({"user": [1, 0, 0], "item": [2, 0, 2], "order": [0, 1, 0]}).to_parquet(
        tmp_path / "interactions.parquet"
    )
    pd.DataFrame({"user": [0, 1], "user_id": [5, 9], "gender": ["F", "M"]}).to_parquet(tmp_path / "users.parquet")
    pd.DataFrame(
        {"item": pd.array([0, 2, None], "Int32"), "item_id": [11, 33, 44], "title": ["a", "b", "never seen"]}
    ).to_parquet(tmp_path / "items.parquet")
    (tmp_path / "meta.json").write_text(json.dumps({"terms": "ask first"}))
    data = load(tmp_path)
    assert data.user_ids.tolist() == [5, 9]
    assert data.item_ids.tolist() == [11, 33, 44]
    assert (data.user.tolist(), data.item.tolist()) == ([1, 0, 0], [1, 0, 1])
    assert data.attributes["gender"].tolist() == ["F", "M"]
    assert data.card.terms == "ask first"
    assert len(split(data, SplitSpec(kind="ratio")).train) >= 2
    pd.DataFrame({"user": [0], "item": [1]}).to_parquet(tmp_path / "interactions.parquet")
    with pytest.raises(DataError, match=r"interactions.parquet, row 1: item 1 is not in the table of items"):
        load(tmp_path)


def test_a_parquet_folder_may_state_the_size_of_its_catalogue(tmp_path):
    pd.DataFrame({"user": [1, 0], "item": [2, 0]}).to_parquet(tmp_path / "interactions.parquet")
    (tmp_path / "meta.json").write_text(json.dumps({"catalog": {"users": 2, "items": 7}}))
    assert load(tmp_path).n_items == 7
    (tmp_path / "meta.json").write_text(json.dumps({"catalog": {"items": "many"}}))
    with pytest.raises(DataError, match=r"gives 'many' as catalog.items: write the number of items"):
        load(tmp_path)
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(DataError, match=r"meta.json is not valid JSON"):
        load(tmp_path)
    (tmp_path / "meta.json").unlink()
    (tmp_path / "interactions.parquet").write_bytes(b"PAR?")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load(tmp_path)


BEHAVIOURS = {
    "trn_buy": "1 5\n2 7\n",
    "vld_buy": "1 2\n",
    "tst_buy": "2 5\n1 5\n",
    "trn_pv": "1 5\n3 1\n",
    "trn_fav": "2 2\n",
    "trn_cart": "2 2\n",
}


@pytest.mark.parametrize("zipped", [False, True])
def test_behaviour_files(tmp_path, zipped):
    data = load(write(tmp_path / "JD", BEHAVIOURS | {"readme.txt": "more"}, zipped=zipped))
    assert data.name == "JD"
    assert data.behaviour_counts == {"buy": 4, "cart": 1, "fav": 1, "view": 2}
    assert data.user_ids.tolist() == [1, 2, 3]
    assert data.item_ids.tolist() == [1, 2, 5, 7]
    assert data.card.duplicates_dropped == 1
    assert data.timestamp is None
    result = split(data, SplitSpec(kind="published", target="buy"))
    assert [data.item_ids[part.items].tolist() for part in (result.train, result.valid, result.test)] == [
        [5, 7],
        [2],
        [5],
    ]
    assert {name: rows.counts.tolist() for name, rows in result.auxiliary.items()} == {
        "cart": [0, 1, 0],
        "fav": [0, 1, 0],
        "view": [0, 0, 1],
    }
    few = load(write(tmp_path / "few", {name: BEHAVIOURS[name] for name in ("trn_buy", "trn_fav")}))
    assert few.behaviour_counts == {"buy": 2, "fav": 1}


def test_behaviour_files_may_state_the_size_of_their_catalogue(tmp_path):
    folder = write(tmp_path / "JD", BEHAVIOURS | {"meta.json": '{"catalog": {"items": 9}, "terms": "ask first"}'})
    data = load(folder)
    assert (data.n_items, data.item_ids.tolist(), data.card.terms) == (9, list(range(1, 10)), "ask first")
    assert data.item.min() == 0
    assert load(folder / "trn_buy").card.sha256 == data.card.sha256
    write(folder, {"trn_pv": "1 5\n3 10\n"})
    with pytest.raises(DataError, match=r"JD/trn_pv, line 2: item 10 is not among the 9 items"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trn_pv", "1 5\n3\n", r"trn_pv, line 2 is malformed \('3'\): expected 2 fields \(user, item\)"),
        ("tst_buy", "1 5\n\n3 1\n", r"tst_buy, line 2 is malformed"),
        ("vld_buy", "1\t5\n", r"vld_buy, line 1 is malformed"),
        ("trn_fav", "1 x\n", r"trn_fav, line 1 .* the item must be a whole number, found 'x'"),
        ("trn_cart", "1 5\n2 -1\n", r"trn_cart, line 2: the item id is negative \(-1\)"),
        ("trn_fav", "", "trn_fav is empty"),
    ],
)
def test_a_bad_behaviour_file_is_refused_in_one_sentence(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path, BEHAVIOURS | {name: content}))
    assert "\n" not in str(caught.value)
