"""`privfed.audit`: methods behind plans, trained, attacked and reported."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from privfed.api.data import as_data
from privfed.api.errors import UseError
from privfed.api.folder import remove_with, temporary
from privfed.api.method import AnyMethod, named, record
from privfed.api.report import Report
from privfed.api.running import AnyData, AnyPlan, AnyProtocol, configured, protected, split_fields
from privfed.audit.config import AuditConfig, Variant
from privfed.audit.grid import AuditProgress, run_audit
from privfed.data import SplitSpec, split
from privfed.methods import Method
from privfed.privacy import configure
from privfed.setup.controls import Control


def audit(
    methods: AnyMethod | Mapping[str, Any] | Sequence[AnyMethod | Mapping[str, Any]],
    data: AnyData,
    *,
    epsilon: float | Sequence[float] | None = None,
    delta: float | None = None,
    privacy: AnyPlan | Sequence[AnyPlan] | None = None,
    trust: str | None = None,
    rounds: int | None = None,
    seeds: int = 1,
    target: str | None = None,
    split: SplitSpec | Mapping[str, Any] | None = None,
    protocol: AnyProtocol = "honest",
    controls: Sequence[Control] = ("untrained", "shuffled"),
    folder: str | PathLike[str] | None = None,
    workers: int | None = None,
    device: str = "cpu",
    progress: Callable[[AuditProgress], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Train every method behind every plan with every seed, attack what was seen, and report it beside popularity.

    Args:
        methods: one or several: names, methods of your own, or tables of settings such as
            `{"name": "fedvae", "latent": 16}`. A name with a preset (`gpfedrec:published`) is audited as it was
            published, without an epsilon.
        data: what `privfed.load` gave, or anything that it takes.
        epsilon: one or several totals; noise is sized for each, for every method.
        delta: probability with which epsilon may fail; by default users^-1.1.
        privacy: one or several plans, for every method; without `epsilon` and `privacy` the default grid.
        trust: with `epsilon`, who adds the noise, as in `privfed.run`.
        rounds: rounds of every run; 40, or for a method that asks once as many as `run` takes by default.
        seeds: number of runs of each setting.
        target: the behaviour to recommend, where the data have several.
        split: how held-out items are chosen.
        protocol: how quality is measured.
        controls: what every method has to beat besides popularity, as `control` of `privfed.run`; the verdict says
            where one is not beaten.
        folder: where the page and everything measured go; finished runs found there are kept. By default a temporary
            folder.
        workers: processes; one per core by default, and 1 for a method that was given as an object.
        device: "cpu", "cuda", ...
        progress: called as rounds finish.
        options: further fields of `AuditConfig`, such as {"taps": {"users": 50}} or {"canaries": 0}.

    Raises:
        ValueError: something cannot be done as asked; one sentence says what, and what to do.

    Example:
        >>> import privfed
        >>> report = privfed.audit("private-gram", "synthetic-small", epsilon=[8, 1], workers=1)
        >>> [round(value) for value in report.to_frame()["epsilon"]]
        [8, 1]
    """
    several: list[Any] = [methods] if isinstance(methods, str | Method | Mapping) else list(methods)
    if not several:
        raise UseError("methods is empty: name at least one method")
    if seeds < 1:
        raise UseError(f"seeds={seeds} makes no runs: give a whole number of at least 1")
    loaded = as_data(data)
    tables = [_table(one) for one in several]
    fields: dict[str, Any] = {
        "data": loaded.source or loaded.name,
        "split": split_fields(loaded, split, target),
        "seeds": tuple(range(seeds)),
        "rounds": 40 if rounds is None else rounds,
        "device": device,
        "controls": tuple(controls),
        **dict(options or {}),
    }
    plans = _Plans(_list(epsilon), _list(privacy), trust, delta)
    grid = [variant for one in tables for variant in plans.variants(one, loaded, fields, protocol)]
    first = configured(tables[0]["name"], loaded, {}, rounds=1, protocol=protocol, split=fields["split"])
    config = configure(AuditConfig, fields | {"variants": grid, "protocol": first.protocol, "split": first.split})
    place = temporary("audit") if folder is None else Path(folder)
    own = any(isinstance(one, Method) for one in several)
    if own and workers not in (None, 1):
        raise UseError(
            f"workers={workers} starts processes, which a method given as an object cannot reach: leave workers out, "
            f"or name it as 'my_file.py:METHOD'"
        )
    report = Report(run_audit(config, loaded, place, workers=1 if own else workers, progress=progress), place)
    if folder is None:
        remove_with(report, place)
    return report


class _Plans:
    """The plans that each method of an audit is put behind."""

    def __init__(self, epsilons: list[Any], plans: list[Any], trust: str | None, delta: float | None) -> None:
        self.epsilons, self.plans, self.trust, self.delta = epsilons, plans, trust, delta

    def variants(
        self, method: dict[str, Any], data: Any, fields: Mapping[str, Any], protocol: AnyProtocol
    ) -> list[Variant]:
        """A variant for each plan; of a preset, or where nothing is asked for, those of the default."""
        name, settings = str(method["name"]), {key: value for key, value in method.items() if key != "name"}
        registered = record(name)
        rounds = None if registered.traits.uploads_once else fields["rounds"]
        config = configured(name, data, settings, rounds=rounds, protocol=protocol, split=fields["split"])
        parts = split(data, config.split)
        if ":" in name and ".py:" not in name:
            asked: list[dict[str, Any]] = [{"privacy": plan} for plan in self.plans or ["none"]]
        elif not self.epsilons and not self.plans:
            asked = [{"privacy": plan} for plan in AuditConfig.for_method(registered.name).plans]
        else:
            asked = [{"epsilon": one, "trust": self.trust} for one in self.epsilons]
            asked += [{"privacy": plan} for plan in self.plans]
        behind = [protected(config, parts, registered, delta=self.delta, **one) for one in asked]
        return [Variant(method=one.method, privacy=one.privacy, rounds=one.rounds) for one in behind]


def _table(given: AnyMethod | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {"name": named(given)}
    if "name" not in given:
        raise UseError(f"the method {dict(given)} has no name: add one, as in {{'name': 'fedvae', 'latent': 16}}")
    return {**given, "name": named(given["name"])}


def _list(given: Any) -> list[Any]:
    """One or several as a list."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
