"""`privfed methods` and `privfed data`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed import data
from privfed.cli.ranges import values
from privfed.data import DataError, catalogue
from privfed.methods import methods


def test_methods_with_the_mechanisms_that_fit(cli: Callable) -> None:
    found = {row["name"]: row for row in cli("methods", "--json").document}
    assert set(found) == set(methods())
    graph = found["gpfedrec"]["mechanisms"]
    assert not graph["none:release=total"]["runs"]
    assert "would see only a sum" in graph["none:release=total"]["reason"]
    assert graph["local-laplace"] == {
        "runs": True,
        "reason": None,
        "finite_epsilon": True,
        "reason_if_inf": None,
    }
    assert "not clipped" in graph["published-noise"]["reason_if_inf"]
    assert found["fedmf"]["mechanisms"]["none:release=total"]["runs"]


def test_methods_for_people(cli: Callable) -> None:
    text = cli("methods").out
    assert "under a" in text
    assert "Not possible:" in text
    settings = cli("methods", "show", "gpfedrec").out
    assert "method.refresh_every" in settings
    assert "Not possible:" not in cli("methods", "show", "fedmf", "--quiet").out


def test_all_of_one_method(cli: Callable) -> None:
    text = cli("methods", "show", "gpfedrec").out
    for said in (
        "Source: ",
        "Its server reads ",
        "Uploads say something about single items",
        "whole number from 1",
        "What gpfedrec:published changes",
        "Clip norms where a plan names none",
        "central-gaussian",
    ):
        assert said in text
    assert text == cli("methods", "show", "gpfedrec:published").out
    assert "It has no settings." in cli("methods", "show", "popularity").out


@pytest.mark.parametrize("name", methods())
def test_every_method_can_be_shown(cli: Callable, name: str) -> None:
    (shown,) = [row for row in cli("methods", "--json").document if row["name"] == name]
    assert cli("methods", "show", name, "--json").document == shown
    assert cli("methods", "show", name).out.startswith(f"{name}: {shown['title']}")
    assert all(said["values"] and said["values"] != "value" for said in shown["settings"].values())


def test_ranges_in_words() -> None:
    assert values({"type": "integer", "minimum": 1, "exclusiveMaximum": 9}) == "whole number from 1 below 9"
    assert values({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}) == "number above 0 or null"
    assert values({"type": "array", "items": {"type": "string"}}) == "list of texts"
    assert values({"enum": ["a", "b"]}) == "a, b"
    assert values({"const": "a"}) == "a"


def test_an_unknown_method(refused: Callable) -> None:
    assert "unknown method 'gpfedrek'; did you mean 'gpfedrec'? Choose one of" in refused("methods", "show", "gpfedrek")


def test_the_list_says_where_data_are(cli: Callable) -> None:
    rows = {row["name"]: row for row in cli("data", "list", "--json").document}
    assert rows["synthetic-small"]["here"]
    assert rows["ml-100k"]["terms"]
    assert "synthetic-small" in cli("data", "list").out


def test_fetch_of_what_is_here(cli: Callable, refused: Callable) -> None:
    assert cli("data", "fetch", "synthetic").out == "synthetic: generated\n"
    assert cli("data", "fetch", "synthetic", "--json").document["route"] == "generated"
    assert "choose one of ml-100k" in refused("data", "fetch", "ml-100m")


def test_show(cli: Callable) -> None:
    card = cli("data", "show", "synthetic-small", "--json").document
    assert card["synthetic"] is True
    assert "leave-one-out" in card["split"]
    text = cli("data", "show", "synthetic-small").out
    assert "synthetic-small (synthetic)" in text
    assert "12.13%" in text


def test_show_a_table_of_ones_own(cli: Callable, own: Path, table: Callable) -> None:
    words = ("--user-column", "who", "--item-column", "what")
    card = cli("data", "show", own, *words, "--time-column", "at", "--json").document
    assert card["users"] == 13
    assert "1 of 13 users have no test item" in card["split"]
    timeless = cli("data", "show", own, *words).out
    assert "There are no times to tell the newest by." in timeless


def test_terms_come_once(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from privfed.data import generate
    from privfed.data.synthetic_spec import SPECS

    told = iter(["cite the authors", None])
    monkeypatch.setattr(data, "load", lambda *_, **__: generate(SPECS["synthetic-small"]))
    monkeypatch.setattr(data, "terms_once", lambda _: next(told))
    first, second = (cli("data", "show", "ml-100k", "--json") for _ in range(2))
    assert "Terms of ml-100k: cite the authors" in first.err
    assert second.err == ""
    assert json.loads(first.out) == json.loads(second.out)


def test_generated_data_stand_in_only_where_nobody_chose(
    cli: Callable, refused: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = data.load

    def offline(name: str, **options: object) -> object:
        if name == "ml-100k":
            raise DataError("ml-100k is not on this machine and cannot be fetched")
        return original("synthetic-small")

    monkeypatch.setattr(data, "load", offline)
    monkeypatch.setattr(catalogue, "find", lambda *_: None)
    out = tmp_path / "run"
    answer = cli("run", "popularity", "--rounds", 1, "--out", out, "--json")
    assert "Going on with generated data (synthetic)" in answer.err
    assert answer.document["synthetic"] is True
    assert json.loads((out / "config.json").read_text())["config"]["data"] == "synthetic-small"
    told = refused("run", "popularity", "--data", "ml-100k", "--rounds", 1, "--out", tmp_path / "other")
    assert "cannot be fetched" in told


FUNNEL = "synthetic-funnel-small"


def test_show_under_a_split(cli: Callable, refused: Callable) -> None:
    shown = cli("data", "show", FUNNEL, "--set", "split.target=buy", "--set", "split.kind=user_time", "--json").document
    assert shown["behaviours"]["buy"] == 1231
    assert "the target is buy, beside it cart" in shown["split"]
    assert cli("data", "show", FUNNEL, "--json").document["split"] is None
    assert "has no behaviour 'like'" in refused("data", "show", FUNNEL, "--set", "split.target=like")
    assert "did you mean 'target'" in refused("data", "show", FUNNEL, "--set", "split.targt=buy")
    assert "set a field of the split" in refused("data", "show", FUNNEL, "--set", "split=3")
    assert "set a field of the split" in refused("data", "show", FUNNEL, "--set", "method.d=8")


def test_a_behaviour_column_of_another_name(cli: Callable, table: Callable) -> None:
    file = table("1,2,3,0\n1,3,4,1\n1,4,5,1\n1,5,6,1\n", header="user,item,timestamp,event\n")
    words = ("data", "show", file, "--behaviour-column", "event", "--set", "split.target=1", "--json")
    shown = cli(*words).document
    assert shown["behaviours"] == {"0": 1, "1": 3}
    assert "the target is 1, beside it 0 1" in shown["split"]


def test_the_list_names_other_folders(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "trn_buy").write_text("1 1\n")
    (tmp_path / "letters").mkdir()
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(tmp_path))
    assert catalogue.others() == ("shop",)
    assert "by the names of their folders: shop" in cli("data", "list").out
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(tmp_path / "nowhere"))
    assert catalogue.others() == ()
