"""`privfed.run`: train a method on a data set behind a privacy plan."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from privfed.api.data import Data, as_data
from privfed.api.errors import UseError
from privfed.api.folder import remove_with, temporary
from privfed.api.method import AnyMethod, named, record, table
from privfed.api.result import TrainedRun
from privfed.api.tracking import Log, Tracker, chosen, flat, measured
from privfed.data import Interactions, Split, SplitSpec, default_fields, split
from privfed.evaluation import HONEST, PAPER, EvaluationError, Protocol, RoundEvaluation
from privfed.experiment import Experiment
from privfed.experiment.baseline import held_out, popularity
from privfed.experiment.folder import METRICS, FolderRecord, metric_lines, write_claims, write_evaluation, write_text
from privfed.experiment.gain import gain_over_popularity
from privfed.guards.client_guard import BrokenUploadError
from privfed.methods import Method, refreshed
from privfed.privacy import PrivacyPlan, configure
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import Control
from privfed.setup.sizing import size
from privfed.setup.target_plan import plan_for_epsilon, plan_for_tiers

AnyData = str | PathLike[str] | pd.DataFrame | Interactions
AnyPlan = str | PrivacyPlan
AnyTiers = str | Mapping[str, Any]
AnyProtocol = str | Protocol
_PROTOCOLS: dict[str, tuple[Protocol, dict[str, str]]] = {
    "honest": (HONEST, {}),
    "paper": (PAPER, {"ties": "earlier_row_is_newer"}),
}


def run(
    method: AnyMethod,
    data: AnyData,
    *,
    epsilon: float | None = None,
    tiers: AnyTiers | None = None,
    delta: float | None = None,
    privacy: AnyPlan | None = None,
    trust: str | None = None,
    rounds: int | None = None,
    refreshes: int | None = None,
    seed: int = 0,
    target: str | None = None,
    split: SplitSpec | Mapping[str, Any] | None = None,
    protocol: AnyProtocol = "honest",
    boost: Mapping[str, float] | None = None,
    control: Control | None = None,
    private_evaluation: bool = False,
    folder: str | PathLike[str] | None = None,
    device: str = "cpu",
    log: Log | None = None,
    trackers: Sequence[str | Tracker] = (),
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train a method, measure it, and say what is guaranteed.

    Args:
        method: a name (`privfed methods` lists them), `my_file.py:METHOD`, or a method of your own
            (docs/guides/add_a_method.md).
        data: what `privfed.load` gave, or anything that it takes.
        epsilon: total that nobody's data may exceed in the whole run; noise is sized for it.
        tiers: in the place of `epsilon`, budgets that people choose for themselves: name -> (epsilon, share of users),
            or in words such as "careful=1:0.8,generous=8:0.2".
        delta: probability with which epsilon may fail; by default users^-1.1.
        privacy: a plan, or one in words such as "central-gaussian:clip_norm=0.5,noise_multiplier=2" or "none"; with
            `epsilon` its noise is sized.
        trust: with `epsilon`, who adds the noise: "central", a trusted server; "distributed", every device a share
            inside a secure sum; "local", every device all of it. By default central, and local for a method that needs
            single uploads.
        rounds: rounds to train; 100, or 1 for a method that asks once, or as many as it trains on what it was told.
        refreshes: publish running totals so many times a year, a round each, for the epsilon of one release
            (`private-gram`); `split={"arrivals": 52}` lets the data arrive by time. Lists are noise, below popularity,
            until `Run.decisions` counts items on the head.
        seed: of parameters, sampling and noise.
        target: the behaviour to recommend, where the data have several.
        split: how held-out items are chosen: a `SplitSpec` or its fields. By default each user's newest item is tested
            and the second newest validates; where the data have no times, the split of their `split` column, or else a
            random part of each history.
        protocol: "honest", or "paper" to compare with tables of PFedRec and GPFedRec, or a `Protocol`.
        boost: behaviour -> standard deviations of a user's scores that the items it did this to gain when its device
            ranks, such as {"view": 2}; nothing is sent, so the guarantee is the same.
        control: a control to run instead, which the method has to beat: "no-communication", where every device trains
            alone, "shuffled", where histories say nothing about what is held out, or "untrained".
        private_evaluation: measure quality by a noisy sum that epsilon covers, too, and compute nothing exact; how much
            of the budget that takes is `options={"evaluation": {"private": True, "mu": 0.05}}`.
        folder: where to train, new or empty; by default a temporary folder (`Run.save` keeps it).
        device: "cpu", "cuda", ...
        log: called with (rounds done, metrics by name) whenever a round was evaluated.
        trackers: "mlflow", "wandb", or objects with `begin`, `log` and `end`.
        options: further fields of `ExperimentConfig`, such as {"taps": {"users": 50}} or {"fidelity": "analytic"}.
        **settings: of the method, such as `dim=16`.

    Raises:
        ValueError: something cannot be done as asked; one sentence says what, and what to do.

    Example:
        >>> import privfed
        >>> run = privfed.run("private-gram", "synthetic-small", epsilon=8)
        >>> print(str(run).splitlines()[0])
        private-gram on synthetic-small (120 users, 200 items), 1 round, seed 0, synthetic data
    """
    loaded, name = as_data(data), named(method)
    if refreshes is not None:
        name, settings = refreshed(name), settings | {"refreshes": refreshes}
    config = configured(
        name,
        loaded,
        settings,
        rounds=rounds,
        split=split_fields(loaded, split, target),
        protocol=protocol,
        seed=seed,
        device=device,
        boost=boost and dict(boost),
        control=control,
        **({"evaluation": {"private": True}} if private_evaluation else {}) | dict(options or {}),
    )
    parts = _parts(loaded, config)
    config = protected(
        config, parts, record(name), privacy=privacy, trust=trust, epsilon=epsilon, delta=delta, tiers=tiers
    )
    return _trained(Experiment(config, parts), loaded, folder, chosen(log, trackers))


def configured(
    name: str, data: Data, settings: Mapping[str, Any], *, rounds: int | None, protocol: AnyProtocol, **fields: Any
) -> ExperimentConfig:
    """The configuration of a run without its privacy plan.

    Raises:
        ValueError: a bad setting or value, in one sentence that names it.
    """
    registered = record(name)
    chosen_protocol, ties = _protocol(protocol)
    if ties:
        fields["split"] = {**_fields(fields.get("split")), **ties}
    config = configure(
        ExperimentConfig,
        {
            "data": data.source or data.name,
            "method": table(name, dict(settings)),
            **({} if rounds is None else {"rounds": rounds}),
            "protocol": chosen_protocol,
            **{key: value for key, value in fields.items() if value is not None},
        },
    )
    own = registered.own_rounds(config.settings())
    return config if rounds is not None or own is None else config.model_copy(update={"rounds": own})


def protected(
    config: ExperimentConfig,
    parts: Split,
    registered: Method,
    *,
    privacy: AnyPlan | None = None,
    trust: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    tiers: AnyTiers | None = None,
) -> ExperimentConfig:
    """The same run behind a plan, its noise sized where an epsilon or tiers are given.

    Raises:
        ValueError: the plan is not known, does not fit the method, or reaches no such epsilon.
    """
    if tiers is not None:
        if epsilon is not None:
            raise UseError(f"epsilon={epsilon:g} is for everybody and tiers={tiers!r} for each tier: give one of them")
        plan = plan_for_tiers(tiers, registered, parts.train.n_users, plan=privacy, trust=trust, delta=delta)
        return size(config.model_copy(update={"privacy": plan}), parts).config
    if epsilon is not None:
        plan = plan_for_epsilon(epsilon, registered, parts.train.n_users, plan=privacy, trust=trust, delta=delta)
        return size(config.model_copy(update={"privacy": plan}), parts).config
    if trust is not None:
        raise UseError(f"trust={trust!r} says who adds noise, and epsilon is not given: give epsilon, too")
    plan = privacy if isinstance(privacy, PrivacyPlan) else PrivacyPlan.parse(privacy or "none")
    changed = plan if delta is None else PrivacyPlan.from_dict(plan.to_dict() | {"delta": delta})
    return config.model_copy(update={"privacy": changed})


def _trained(
    experiment: Experiment, data: Data, folder: str | PathLike[str] | None, trackers: Sequence[Tracker]
) -> TrainedRun:
    place = temporary("run") if folder is None else Path(folder)
    if place.is_file() or (place.is_dir() and any(place.iterdir())):
        raise UseError(f"{place} is not empty: choose another folder")
    place.mkdir(parents=True, exist_ok=True)
    config, parts = experiment.config, held_out(experiment)
    FolderRecord(
        kind="run", config=config.model_dump(mode="json"), columns=data.columns, data_sha256=data.card.sha256
    ).write(place)
    write_text(place / METRICS, "")

    def progress(t: int, evaluated: RoundEvaluation | None) -> None:
        if evaluated is None:
            return
        with (place / METRICS).open("a", encoding="utf-8") as file:
            file.write(metric_lines([evaluated]))
        for tracker in trackers:
            tracker.log(t + 1, measured(evaluated))

    title, about = f"{Path(config.method_name).name} on {data.name}", flat(config.model_dump(mode="json"))
    for tracker in trackers:
        tracker.begin(title, about)
    summary: dict[str, float] | None = None
    try:
        result = experiment.run(place, progress=progress, parts=parts)
        write_claims(place, result, experiment.n_users)
        popular = popularity(config, experiment.parts, result.test)
        gain = gain_over_popularity(experiment, result.selected)
        write_evaluation(place, result, popular, gain, data.card, experiment.parts.describe())
        claim = {"epsilon": result.guarantee.epsilon, "delta": result.guarantee.delta}
        summary = claim | {f"test/{metric.slug}": metric.value for metric in result.test.metrics}
    except (BrokenUploadError, EvaluationError) as error:
        raise UseError(
            f"training {config.method_name} diverged to NaN or infinity ({error}): lower its learning rate"
        ) from error
    finally:
        for tracker in trackers:
            tracker.end(summary)
    run = TrainedRun(experiment, data, place)
    if folder is None:
        remove_with(run, place)
    return run


def split_fields(data: Data, given: SplitSpec | Mapping[str, Any] | None, target: str | None) -> dict[str, Any]:
    """Fields of the split, the target among them.

    Raises:
        UseError: the data mix behaviours and none of them is chosen.
    """
    fields = _fields(given)
    if target is not None:
        fields["target"] = target
    if "kind" not in fields:
        fields = default_fields(data) | fields
    kinds = list(data.behaviour_counts)
    if len(kinds) > 1 and fields.get("target") is None:
        raise UseError(
            f"{data.name} mixes behaviours ({', '.join(kinds)}): choose the one to recommend, as in target={kinds[0]!r}"
        )
    return fields


def _fields(spec: Any) -> dict[str, Any]:
    """Fields of a split that were given."""
    if spec is None:
        return {}
    return spec.model_dump(exclude_unset=True) if isinstance(spec, SplitSpec) else dict(spec)


def _protocol(given: AnyProtocol) -> tuple[Protocol, dict[str, str]]:
    """The protocol, and what of the split goes with it."""
    if isinstance(given, Protocol):
        return given, {}
    if given not in _PROTOCOLS:
        raise UseError(f"protocol={given!r} is not known: give 'honest', 'paper' or a privfed.evaluation.Protocol")
    return _PROTOCOLS[given]


def _parts(data: Data, config: ExperimentConfig) -> Split:
    return split(data, config.split)
