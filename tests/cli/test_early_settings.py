"""What is refused from the file of settings is what the models refuse, in their sentence, and nothing else."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from privfed.cli.early_settings import refuse_settings, refuse_words
from privfed.cli.failures import CommandError
from privfed.cli.listing import stored
from privfed.cli.settings import checked_settings, combine
from privfed.methods import method, methods
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.setup.config import ExperimentConfig

WRONG = (-1, -0.5, 0, 0.5, 1, 1.0, 3, 10**6, float("nan"), float("inf"), "torch", "sgdd", "null", True)


def fields_of(known: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, one in known.items():
        yield from fields_of(one["fields"], (*prefix, name)) if "fields" in one else [(*prefix, name)]


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {path[0]: nested(path[1:], value) if path[1:] else value}


def told(refuse: Callable[..., Any], *given: Any) -> str | None:
    try:
        refuse(*given)
    except PlanError as error:
        return str(error)
    return None


RUN = [path for path in fields_of(stored()["run"]) if path[0] not in {"method", "privacy", "data", "boost"}]
SETTINGS = {name: list(method(name).config.model_fields) for name in methods()}


@pytest.mark.parametrize("path", RUN, ids=".".join)
def test_a_run_is_refused_early_as_its_model_refuses_it(path: tuple[str, ...]) -> None:
    for value in WRONG:
        layer = nested(path, value)
        early = told(refuse_settings, "fedmf", [layer])
        assert early is None or early == told(configure, ExperimentConfig, layer), value


@pytest.mark.parametrize("name", SETTINGS)
def test_a_method_is_refused_early_as_its_settings_refuse_it(name: str) -> None:
    for key in SETTINGS[name]:
        for value in WRONG:
            early = told(refuse_settings, name, [{"method": {key: value}}])
            assert early is None or early == told(checked_settings, {"name": name, key: value}), (key, value)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([{"rounds": 0}], "rounds = 0 is not allowed: it must be greater than or equal to 1"),
        ([{"rounds": 0}, {"rounds": 5}], None),
        ([{"foo": 1}], "foo is not a known key; did you mean 'boost'?"),
        ([{"foo": 1}, {"rounds": 0}], r"allowed: data, .*evaluation \(and 1 more problem\)$"),
        ([{"protocol": {"foo": 1}}], "protocol.foo is not a known key; allowed: task, candidates"),
        ([{"protocol": "paper"}], None),
        ([{"method": {"dim": 0}}], r"method.dim = 0 is not allowed: .* 1 \(width of user and item vectors\)$"),
        ([{"method": {"dims": 8}}], "method.dims is not a known key; did you mean 'dim'"),
        ([{"method": {"name": "gpfedrec", "gamma": 0.5}}], None),
        ([{"method": "gpfedrec"}, {"method": {"dim": 8}}], None),
        ([{"columns": {"user": "who"}}], None),
    ],
)
def test_what_is_refused_early(layers: list[dict[str, Any]], sentence: str | None) -> None:
    if sentence is None:
        refuse_settings("fedmf", layers)
        return
    with pytest.raises(PlanError, match=sentence):
        refuse_settings("fedmf", layers)


@pytest.mark.parametrize("plan", ["foo", " local-laplac:epsilon0=1", "", ":clip_norm=1", *stored()["words"]["privacy"]])
def test_a_plan_is_refused_early_as_it_is_read(plan: str) -> None:
    early = told(refuse_words, ["fedmf"], [plan], None)
    late = told(PrivacyPlan.parse, plan)
    assert early == (late if late and late.startswith("privacy plan") else None)
    # Whoever comes from elsewhere may bring plans of its own.
    assert told(refuse_words, ["fedmf", "some/file.py:METHOD"], [plan], None) is None
    assert told(refuse_words, [], [plan], None) is None


def test_a_protocol_is_refused_early_as_it_is_read() -> None:
    assert all(told(refuse_words, ["fedmf"], [], word) is None for word in stored()["words"]["protocol"])
    with pytest.raises(CommandError) as late:
        combine([{"protocol": "papr"}])
    with pytest.raises(CommandError) as early:
        refuse_words(["fedmf"], [], "papr")
    assert str(early.value) == str(late.value)


def test_most_settings_are_judged_early() -> None:
    early = [
        (name, key)
        for name, keys in SETTINGS.items()
        for key in keys
        if any(told(refuse_settings, name, [{"method": {key: value}}]) for value in WRONG)
    ]
    assert len(early) > 0.6 * sum(map(len, SETTINGS.values()))
