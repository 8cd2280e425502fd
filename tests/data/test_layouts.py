"""Data as people have them: each layout loads, or one sentence says what to do."""

import gzip
import json
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from privfed.data import DataError, DataWarning, SplitSpec, load, overview, read_ids, split

LATEST = {
    "ratings.csv": "userId,movieId,rating,timestamp\n1,10,4.0,100\n2,20,3.5,200\n2,10,3,300\n",
    "movies.csv": 'movieId,title,genres\n10,"American President, The (1995)",Comedy|Drama\n20,B,(no genres listed)\n'
    "30,C,War\n",
    "tags.csv": "userId,movieId,tag,timestamp\n1,10,fun,100\n",
    "links.csv": "movieId,imdbId,tmdbId\n10,1,2\n",
    "README.txt": "read me",
}
BEHAVIOURS = {
    "view/train.txt": "0 1 2\n1 0\n",
    "cart/train.txt": "0 1\n",
    "buy/train.txt": "0 2\n1 0\n",
    "buy/test.txt": "0 3\n1 2\n",
}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder


def zipped(path: Path, files: dict[str, str | bytes], above: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(above + name, content)
    return path


@pytest.mark.parametrize("form", ["folder", "zip", "wrapped", "csv"])
def test_movielens_of_today(tmp_path, form):
    folder = write(tmp_path / "a" / "latest", LATEST)
    path = {
        "folder": folder,
        "zip": zipped(tmp_path / "latest.zip", LATEST, "ml-latest-small/"),
        "wrapped": tmp_path / "a",
        "csv": folder / "ratings.csv",
    }[form]
    data = load(path)
    assert (data.n_users, data.n_items, data.rating.tolist(), data.timestamp.tolist()) == (
        2,
        3,
        [4, 3.5, 3],
        [100, 200, 300],
    )
    assert data.item_info["title"][0] == "American President, The (1995)"
    assert data.item_info["genres"].fillna("").tolist() == ["Comedy|Drama", "", "War"]
    assert (
        "ratings.csv: user = userId, item = movieId, timestamp = timestamp, rating = rating" in data.reading.recognised
    )
    if form != "csv":
        assert {phrase.partition(":")[0] for phrase in data.reading.ignored} == {"tags.csv", "links.csv", "README.txt"}


def test_a_dat_file_with_tabs_and_a_header(tmp_path):
    data = load(write(tmp_path / "t", {"ratings.dat": "user_id\titem_id\trating\n1\t10\t4\n2\t20\t3\n"}))
    assert (data.user_ids.tolist(), data.item_ids.tolist(), data.rating.tolist()) == ([1, 2], [10, 20], [4, 3])
    write(tmp_path / "t", {"ratings.csv": "user,item\n1,1\n"})
    assert load(tmp_path / "t" / "ratings.dat").card.sha256 == data.card.sha256
    with pytest.raises(DataError, match=r"'::' between its fields, as MovieLens-1M does: call it ratings.dat"):
        load(write(tmp_path / "m", {"scores.dat": "1::10::5::9\n"}) / "scores.dat")


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_folders_of_behaviours(tmp_path, form):
    folder = write(tmp_path / "tmall", BEHAVIOURS)
    data = load(folder if form == "folder" else zipped(tmp_path / "tmall.zip", BEHAVIOURS, "Tmall/"))
    assert data.behaviour_counts == {"buy": 4, "cart": 1, "view": 3}
    assert (data.n_items, data.card.catalogue_derived) == (4, True)
    parts = split(data, SplitSpec(kind="published", target="buy"))
    assert (parts.train.items.tolist(), parts.test.items.tolist()) == ([2, 0], [3, 2])
    assert parts.auxiliary["view"].items.tolist() == [1]


def test_of_a_pair_in_two_parts_the_training_row_stays(tmp_path):
    data = load(write(tmp_path / "b", BEHAVIOURS | {"buy/test.txt": "0 2 3\n"}))
    assert data.card.duplicates_dropped == 1
    assert split(data, SplitSpec(kind="published", target="buy")).test.items.tolist() == [3]
    tables = load(write(tmp_path / "c", {"train.csv": "user,item\n1,2\n1,3\n", "test.csv": "user,item\n1,2\n1,4\n"}))
    assert tables.split.tolist() == ["train", "train", "test"]


def test_tables_beside_a_table(tmp_path):
    folder = write(
        tmp_path,
        {
            "shop.csv": "customer_id;sku;bought_at\nann;x;2020-01-01\nbob;y;2020-01-02\n",
            "items.csv": 'sku,name,category\nx,X,"a, b"\ny,Y,c\n,Z,c\n',
            "users.csv": "customer_id,sex\nann,F\n",
        },
    )
    data = load(folder / "shop.csv")
    assert data.item_info.to_dict("list") == {"title": ["X", "Y"], "genres": ["a|b", "c"]}
    assert data.attributes["gender"].isna().tolist() == [False, True]
    assert load(folder).card.sha256 == data.card.sha256


def test_floats_in_text_files_are_the_numbers_they_were(tmp_path):
    write(tmp_path, {"a.csv": "user,item\n1,5\n2,6\n", "items.csv": "item,title\n5.0,A\n6.0,B\n,\n"})
    assert load(tmp_path / "a.csv").item_info["title"].tolist() == ["A", "B"]
    data = load(write(tmp_path / "b", {"a.csv": "user,item\n1.0,5\n2.0,6\n"}) / "a.csv")
    assert data.user_ids.tolist() == [1, 2]
    versions = load(write(tmp_path / "c", {"a.csv": "user,item\n1.0,01\n1.5,1\n"}) / "a.csv")
    assert (versions.user_ids.tolist(), versions.item_ids.tolist()) == (["1.0", "1.5"], ["01", "1"])


@pytest.mark.parametrize("columns", [("item", "item_id"), ("item_id",)])
def test_floats_in_a_folder_of_parquet_tables(tmp_path, columns):
    item, original = columns[0], columns[-1]
    pd.DataFrame({"user": [1, 2], item: [0, 1]}).to_parquet(tmp_path / "interactions.parquet")
    items = pd.concat([pd.DataFrame({item: [0, 1], original: [0, 1], "genres": ["x", "y"]}), pd.DataFrame({"z": [1]})])
    items.to_parquet(tmp_path / "items.parquet")
    assert load(tmp_path).item_info["genres"].tolist() == ["x", "y"]


def test_reviews_of_amazon(tmp_path):
    old = load(
        write(
            tmp_path,
            {
                "reviews_Toys_5.json.gz": '{"reviewerID":"A","asin":"B1","overall":5.0,"unixReviewTime":1,"x":[1]}\n'
                '{"reviewerID":"C","asin":"B2","overall":4,"unixReviewTime":2}\n'
            },
        )
        / "reviews_Toys_5.json.gz"
    )
    assert (old.user_ids.tolist(), old.item_ids.tolist(), old.timestamp.tolist()) == (["A", "C"], ["B1", "B2"], [1, 2])
    new = {
        "Video_Games.jsonl": '{"rating":5.0,"asin":"v","parent_asin":"P","user_id":"U","timestamp":1588687728923}\n'
        '{"rating":4,"asin":"w","parent_asin":"Q","user_id":"U","timestamp":1588687728924}\n',
        "meta_Video_Games.jsonl": '{"parent_asin":"P","title":"p","categories":["a","b"]}\n'
        '{"parent_asin":"Q","title":"q","categories":[]}\n',
    }
    data = load(write(tmp_path / "2023", new))
    assert (data.item_ids.tolist(), data.rating.tolist()) == (["P", "Q"], [5, 4])
    assert data.item_info["genres"].fillna("").tolist() == ["a|b", ""]


def test_json_and_arrow_tables(tmp_path):
    records = [{"user": "a", "item": 1}, {"user": "b", "item": 2}]
    (tmp_path / "t.json").write_text(json.dumps(records))
    pyarrow.feather.write_feather(pa.Table.from_pylist(records), tmp_path / "t.feather")
    assert load(tmp_path / "t.json").card.sha256 == load(tmp_path / "t.feather").card.sha256


def test_a_published_split_of_recbole(tmp_path):
    header = "user_id:token\titem_id:token\n"
    files = {
        "x.train.inter": header + "1\t2\n",
        "x.test.inter": header + "1\t3\n",
        "x.item": "item_id:token\tmovie_title:token_seq\tclass:token_seq\trelease_year:token\n"
        "2\tA b\tSci-Fi War\t1995\n",
    }
    data = load(write(tmp_path, files))
    assert data.split.tolist() == ["train", "test"]
    assert data.item_info.iloc[0].to_dict() == {"title": "A b", "genres": "Sci-Fi|War", "release_date": "1995"}


def lenskit(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {"rating": {"layout": "scalar"}, "timestamp": {"layout": "scalar"}}
    schema = {
        "version": "2025.3",
        "name": "toy",
        "default_interaction": "rating",
        "entities": {
            "user": {"id_type": "int", "attributes": {}},
            "item": {"id_type": "str", "attributes": {"title": {"layout": "scalar"}, "genres": {"layout": "list"}}},
        },
        "relationships": {
            "rating": {"entities": {"user": None, "item": None}, "interaction": True, "attributes": attributes}
        },
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    pd.DataFrame({"user_id": [5, 9, 7]}).to_parquet(folder / "user.parquet")
    items = {"item_id": ["a", "b", "c"], "title": ["A", "B", "C"], "genres": [["x", "y"], ["x"], None]}
    pd.DataFrame(items).to_parquet(folder / "item.parquet")
    rows = {"user_num": [0, 0, 1], "item_num": [0, 2, 2], "rating": [4.0, 5.0, 3.0]}
    pd.DataFrame(rows).assign(timestamp=pd.to_datetime([90, 100, 100], unit="s")).to_parquet(folder / "rating.parquet")
    (folder / "summary.md").write_text("# toy")
    return folder


def test_a_data_set_of_lenskit(tmp_path):
    data = load(lenskit(tmp_path / "lk"))
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([5, 9], ["a", "b", "c"])
    assert (data.user.tolist(), data.item.tolist()) == ([0, 0, 1], [0, 2, 2])
    assert (data.timestamp.tolist(), data.rating.tolist()) == ([90, 100, 100], [4, 5, 3])
    assert data.item_info["genres"].fillna("").tolist() == ["x|y", "x", ""]
    pd.DataFrame({"user_num": [3], "item_num": [0]}).to_parquet(tmp_path / "lk" / "rating.parquet")
    with pytest.raises(DataError, match="numbers of rows that are not in the table of ids"):
        load(tmp_path / "lk")
    (tmp_path / "lk" / "schema.json").write_text("{}")
    with pytest.raises(DataError, match="is not a schema of LensKit"):
        load(tmp_path / "lk")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le-bom"])
def test_byte_order_marks(tmp_path, encoding):
    text = "user,item\nAmélie,2\n"
    raw = b"\xff\xfe" + text.encode("utf-16-le") if encoding == "utf-16-le-bom" else text.encode(encoding)
    assert load(write(tmp_path, {"a.csv": raw}) / "a.csv").user_ids.tolist() == ["Amélie"]


def test_text_of_windows_is_read_and_said(tmp_path):
    write(tmp_path, {"a.csv": "user,item\n1,2\n", "items.csv": "item,title\n2,Amélie\n".encode("cp1252")})
    with pytest.warns(DataWarning, match=r"items.csv is not UTF-8 and was read as Windows-1252"):
        assert load(tmp_path / "a.csv").item_info["title"].tolist() == ["Amélie"]


def test_quoted_separators_line_breaks_and_windows_line_ends(tmp_path):
    text = 'user,item,title\r\n1,"x, y","a ""b"""\r\n2,z,"two\r\nlines"\r\n'
    data = load(write(tmp_path, {"a.csv": text}) / "a.csv")
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([1, 2], ["x, y", "z"])


def test_a_guessed_column_that_does_not_fit_is_left_out_with_a_word(tmp_path):
    path = write(tmp_path, {"a.csv": "user,item,date\n1,2,soon\n1,3,later\n"}) / "a.csv"
    with pytest.warns(DataWarning, match=r"the column 'date' was taken for the timestamp and is left out: .* line 2"):
        assert load(path).timestamp is None
    with pytest.raises(DataError, match="line 2: the timestamp is neither"):
        load(path, columns={"timestamp": "date"})


BOMB = b"user,item\n" + b"1,2\n" * 18_000_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "", "empty.csv is empty"),
        ("header.csv", "user,item\n", "has a header and no rows"),
        ("rows.csv", "1,2,978300760\n4,5,978300761\n", "its first line looks like data, so put a header"),
        ("twice.csv", "user,item,user\n1,2,3\n", "has two columns called 'user': rename one"),
        ("nan.csv", "user,item\n,2\n1,3\n", "nan.csv, line 2: the user id is empty"),
        ("ragged.csv", "user,item\n1,2\n1,2,3\n", r"line 3 is malformed \('1,2,3'\)"),
        ("quote.csv", 'user,item\n1,"2\n3,4\n', "a double quote that is never closed"),
        ("binary.csv", bytes(range(256)), "binary.csv is not text"),
        ("half.csv", b"\xff\xfeu", "begins as UTF-16 and is not"),
        ("lines.jsonl", '{"user":1,"item":2}\n{user:1}\n', r"line 2 is not valid JSON \('{user:1}'\)"),
        ("list.json", "[1, 2]", "has no column 'user'"),
        ("broken.parquet", b"PAR1nonsense", "not a readable parquet file"),
        ("broken.feather", b"nonsense", "not a readable Arrow file"),
        ("a.tar.gz", b"x", "an archive of a kind that is not read: unpack it"),
        ("bomb.csv.gz", BOMB, "unpacks to more than 64 MiB"),
        ("equal.csv", "1,1,978300760\n4,5,978300761\n", "its first line looks like data, so put a header"),
        ("texts.csv", "ann,soap,2026-01-03\nbob,salt,2026-01-04\n", "its first line looks like data, so put a header"),
        ("mac.csv", "user,item\r1,2\r3,4\r", "ends its lines with carriage returns alone"),
        ("stray.csv", "user,item,rating\n1,2,3\n4,5\r6,7\n", "line 3 is malformed .* a carriage return ends no line"),
        (
            "matrix.csv",
            ",".join(map(str, range(40_000))) + "\n1,2\n",
            "its first line looks like data, so put a header",
        ),
    ],
)
def test_hostile_files_are_refused_in_one_sentence(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path, {name: content}) / name)
    assert "\n" not in str(caught.value)


def test_hostile_archives_are_refused_in_one_sentence(tmp_path):
    whole = zipped(tmp_path / "whole.zip", LATEST).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable zip archive"):
        load(tmp_path / "cut.zip")
    with pytest.raises(DataError, match="unpacks to more than 64 MiB"):
        load(zipped(tmp_path / "bomb.zip", {"ratings.csv": BOMB}))
    with pytest.raises(DataError, match="holds nothing"):
        load(
            zipped(tmp_path / "out.zip", {"../../ratings.csv": "user,item\n1,2\n", "/ratings.csv": "user,item\n1,2\n"})
        )
    damaged = bytearray(zipped(tmp_path / "d.zip", {"ratings.csv": "user,item\n" + "1,2\n" * 50}).read_bytes())
    damaged[42:52] = b"\xff" * 10
    (tmp_path / "d.zip").write_bytes(bytes(damaged))
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "d.zip")
    hidden = {"__MACOSX/._ratings.csv": b"\0\0", "a/ratings.csv": "user,item\n1,2\n"}
    assert len(load(zipped(tmp_path / "mac.zip", hidden))) == 1


def test_several_candidates_need_a_choice(tmp_path):
    folder = write(tmp_path / "two", {"a.csv": "user,item\n1,2\n", "b.csv": "user,item\n1,2\n"})
    with pytest.raises(DataError, match=r"holds a.csv, b.csv, any of which may be the interactions"):
        load(folder)
    assert len(load(folder / "b.csv")) == 1
    write(tmp_path / "sets", {"one/u.csv": "user,item\n1,2\n", "two/u.csv": "user,item\n1,2\n"})
    with pytest.raises(DataError, match="several data sets in folders of their own: give the path of one of one, two"):
        load(tmp_path / "sets")


def test_names_of_data_sets_are_corrected():
    with pytest.raises(DataError, match=r"'ml100k' is not known: did you mean 'ml-100k'\?"):
        load("ml100k")


def test_an_overview_counts_what_is_described(tmp_path):
    seen = overview(load(write(tmp_path, LATEST)))
    assert str(seen.items) == "3 of 3 (title 3, genres 2)"
    assert str(seen.users) == "none of 2"
    assert seen.example_items[0] == "10 (American President, The (1995), Comedy|Drama)"
    assert seen.times == ("1970-01-01", "1970-01-01")
    assert json.loads(json.dumps(seen.document()))["items"]["fields"] == {"title": 3, "genres": 2}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("u.txt", "7\n5\n"),
        ("u", "userId\n7\n5\n"),
        ("u.csv", "user\n7\n5\n"),
        ("u.tsv", "name\tuser_id\na\t7.0\nb\t5.0\n"),
    ],
)
def test_lists_of_ids(tmp_path, name, content):
    assert read_ids(write(tmp_path, {name: content}) / name, "user").tolist() == [7, 5]
    pd.DataFrame({"uid": [7, 5]}).to_parquet(tmp_path / "u.parquet")
    assert read_ids(tmp_path / "u.parquet", "user").tolist() == [7, 5]
    with pytest.raises(DataError, match="there is no file"):
        read_ids(tmp_path / "absent", "user")
