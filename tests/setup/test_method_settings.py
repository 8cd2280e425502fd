"""A method in words: presets, overrides, and a file of one's own."""

from pathlib import Path

import pytest

from privfed.audit.config import AuditConfig, Variant
from privfed.audit.grid import run_id
from privfed.methods import UnknownMethodError, method
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.setup import display_name, method_settings, our_variant
from privfed.setup.config import ExperimentConfig

WORDS = "gpfedrec:published"
OWN = """
from dataclasses import replace
from privfed.methods.popularity import METHOD as POPULARITY
METHOD = replace(POPULARITY, name="mine", display_name="Mine")
"""


def test_a_preset_is_written_out_and_overrides_win() -> None:
    table = method_settings(WORDS, reg=2.0)
    assert table == {"name": WORDS} | method("gpfedrec").presets["published"].settings | {"reg": 2.0}
    assert method_settings({"name": WORDS, "reg": 2.0}) == table
    assert method_settings(table) == table
    assert method_settings("gpfedrec") == {"name": "gpfedrec"}


def test_a_configuration_takes_words_and_tables_alike() -> None:
    config = configure(ExperimentConfig, {"method": WORDS})
    assert config == configure(ExperimentConfig, {"method": {"name": WORDS}})
    assert config.settings().model_dump()["gamma"] == 0.5
    assert config.method_name == WORDS
    assert config.registered() is method("gpfedrec")
    other = configure(ExperimentConfig, {"method": {"name": WORDS, "gamma": 2.0}})
    assert other.settings().model_dump()["gamma"] == 2.0
    assert ExperimentConfig.model_validate(config.model_dump(mode="json")) == config


def test_a_configuration_takes_a_plan_in_words_and_as_a_table() -> None:
    words = "central-gaussian:clip_norm=2,noise_multiplier=5,sampling.kind=poisson,sampling.rate=0.1,delta=1e-6"
    plan = PrivacyPlan.parse(words)
    assert configure(ExperimentConfig, {"privacy": words}).privacy == plan
    assert configure(ExperimentConfig, {"privacy": plan.to_dict()}).privacy == plan
    with pytest.raises(PlanError, match=r"privacy.*'clip_norm' is not of the form key=value"):
        configure(ExperimentConfig, {"privacy": "clip:clip_norm"})
    with pytest.raises(PlanError, match=r"privacy.*'clipp'.*did you mean.*clip"):
        configure(ExperimentConfig, {"privacy": "clipp"})


def test_an_audit_takes_them_too() -> None:
    none = PrivacyPlan.named("none")
    assert Variant.model_validate({"method": WORDS, "privacy": none}).method["gamma"] == 0.5
    assert AuditConfig.model_validate({"methods": [WORDS], "plans": [none]}).methods[0]["gamma"] == 0.5


def test_an_unknown_preset_is_one_sentence_about_the_method() -> None:
    with pytest.raises(PlanError, match="method: gpfedrec has no preset 'paper'; choose one of published, released"):
        configure(ExperimentConfig, {"method": {"name": "gpfedrec:paper"}})


def test_folders_and_reports_name_the_preset() -> None:
    assert run_id(configure(ExperimentConfig, {"method": WORDS}), "data").startswith("gpfedrec-published-")
    assert display_name(WORDS) == "GPFedRec as published"
    assert display_name("gpfedrec:released") == "GPFedRec (released)"
    assert display_name("gpfedrec") == "GPFedRec"


def test_how_a_run_differs_from_what_it_is_named_after() -> None:
    assert our_variant(method_settings("gpfedrec")) is None
    assert our_variant(method_settings(WORDS)) is None
    assert our_variant(method_settings(WORDS, reg=2.0)) == "changed here: reg = 2.0"
    assert "no code is public" in str(our_variant(method_settings("hetefedrec:published")))
    assert our_variant(configure(ExperimentConfig, {"method": WORDS}).method) is None


def test_a_method_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN, encoding="utf-8")
    config = configure(ExperimentConfig, {"method": f"{file}:METHOD"})
    assert config.registered().name == "mine"
    assert config.registered() is method(f"{file}:METHOD")
    assert display_name(f"{file}:METHOD") == "Mine"
    assert our_variant(config.method) is None


def test_files_without_a_method_are_refused(tmp_path: Path) -> None:
    file, broken = tmp_path / "mine.py", tmp_path / "broken.py"
    file.write_text(OWN, encoding="utf-8")
    broken.write_text("1 / 0", encoding="utf-8")
    for name, reason in (
        (f"{tmp_path / 'none.py'}:METHOD", "there is no file .*none.py"),
        (f"{file}:OTHER", "has no method 'OTHER': it has POPULARITY, METHOD"),
        (f"{broken}:METHOD", "cannot be run .ZeroDivisionError: division by zero."),
        (str(file), "is a file: name the variable that holds the method too, as .*:METHOD"),
    ):
        with pytest.raises(UnknownMethodError, match=reason):
            method(name)
