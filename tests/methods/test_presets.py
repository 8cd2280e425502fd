"""Presets: every value is a setting of its method, is valid and names its source; methods with a paper have one."""

import re

import pytest

from privfed.methods import PUBLISHED, Preset, UnknownMethodError, method, methods, preset

OURS = {"popularity", "private-gram", "private-gram-year", "private-autoencoder"}
ALL = [(name, key, one) for name, registered in methods().items() for key, one in registered.presets.items()]


def test_every_method_with_a_paper_has_its_settings() -> None:
    assert {name for name, key, _ in ALL if key == PUBLISHED} == set(methods()) - OURS


@pytest.mark.parametrize(("name", "key", "one"), ALL, ids=[f"{name}:{key}" for name, key, _ in ALL])
def test_every_setting_is_there_once_is_valid_and_has_a_source(name: str, key: str, one: Preset) -> None:
    config = method(name).config
    stated = [field for values in one.values.values() for field in values]
    assert sorted(stated) == sorted(config.model_fields)
    assert config(**one.settings).model_dump(mode="json") == one.settings
    assert all(re.search(r"[a-z]{4}", source) for source in one.sources.values())
    assert one.our_variant is None or len(one.our_variant) > 40


@pytest.mark.parametrize(("name", "key", "one"), ALL, ids=[f"{name}:{key}" for name, key, _ in ALL])
def test_a_preset_is_not_what_another_is_nor_the_defaults_under_another_name(name: str, key: str, one: Preset) -> None:
    others = [other.settings for there, word, other in ALL if there == name and word != key]
    assert one.settings not in others


def test_what_papers_state() -> None:
    paper = {name: method(name).presets[PUBLISHED].settings for name in ("gpfedrec", "hetefedrec", "feddae", "dfmr")}
    assert (paper["gpfedrec"]["gamma"], paper["gpfedrec"]["reg"]) == (0.5, 0.5)
    assert paper["hetefedrec"]["decorrelation"] == 1.0
    assert paper["hetefedrec"]["distillation"] == 1
    assert (paper["feddae"]["hidden"], paper["feddae"]["latent"]) == ([768, 512], 256)
    assert (paper["dfmr"]["min_buyers"], paper["dfmr"]["start"]) == (0, "server")


def test_a_name_may_carry_a_preset() -> None:
    assert method("gpfedrec:published") is method("gpfedrec")
    assert preset("gpfedrec:published") is method("gpfedrec").presets[PUBLISHED]
    assert preset("gpfedrec") is None


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    known = r"gpfedrec has no preset 'publisched'; did you mean 'published'\? Choose one of published, released"
    with pytest.raises(UnknownMethodError, match=known):
        method("gpfedrec:publisched")
    with pytest.raises(UnknownMethodError, match="popularity has no presets: name it without ':published'"):
        method("popularity:published")
