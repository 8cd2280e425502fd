"""From flags, a TOML file and `--set` to one validated configuration.

Each source is a layer: a nested dictionary with the keys of the configuration. Later layers win:
defaults (or, on resume, what the run was started with), then the file, then the flags, then each `--set` in
order. A method, a privacy plan or a protocol may be given as a word wherever its table could stand:
`privacy = "clip:clip_norm=5"`, `protocol = "paper"`. The word "null" stands for an empty value, which TOML
cannot write.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from privfed.audit.grid import AuditConfig
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen
from privfed.data import DataError, Interactions, SplitSpec, catalogue, fitted, load, terms_once
from privfed.evaluation import HONEST, PAPER
from privfed.methods import MethodConfig, method, methods, refreshed
from privfed.methods.own import in_file
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.privacy.errors import nearest
from privfed.privacy.refusals import method_refusal
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig
from privfed.setup.refusals import method_profile

Layer = dict[str, Any]
Config = TypeVar("Config", ExperimentConfig, AuditConfig)

FALLBACK_DATA = "synthetic"
_PROTOCOLS: dict[str, Layer] = {
    "honest": {"protocol": HONEST.model_dump(mode="json"), "split": {"ties": "later_row_is_newer"}},
    "paper": {"protocol": PAPER.model_dump(mode="json"), "split": {"ties": "earlier_row_is_newer"}},
}
_TAGS = {"method": "name", "privacy.mechanism": "kind", "privacy.sampling": "kind"}
"""Tables whose fields depend on one of them: another value there starts the table afresh."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """Which data to load.

    Attributes:
        name: of a data set, or a path.
        columns: role -> column of a table of one's own.
        chosen: whether somebody asked for this data set; the default may be replaced where it cannot be had.
    """

    name: str
    columns: dict[str, str] | None
    chosen: bool


def read_file(path: Path | None) -> Layer:
    """The layer of a TOML file; empty where none was named.

    Raises:
        CommandError: it cannot be read or is not TOML.
    """
    if path is None:
        return {}
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the experiment file {path} ({error.strerror}): correct the path") from error
    except ValueError as error:
        raise CommandError(f"the experiment file {path} is not valid TOML: {error}") from error
    return {key: _without_null(value) for key, value in fields.items()}


def read_setting(text: str) -> Layer:
    """The layer of one `--set a.b=value`; the value is read as TOML, or else as plain text.

    Raises:
        CommandError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise CommandError(f"--set {text!r} is not of the form key=value, for example --set method.lr=0.05")
    try:
        read = tomllib.loads(f"value = {value}")
        parsed = read["value"] if len(read) == 1 else value.strip()
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    layer: Layer = {names.pop(): _without_null(parsed)}
    for name in reversed(names):
        layer = {name: layer}
    return layer


def read_boost(text: str) -> Layer:
    """The layer of one `--boost behaviour=size`.

    Raises:
        CommandError: it is not of that form.
    """
    behaviour, equals, _ = text.partition("=")
    if not equals or not behaviour.strip() or "." in behaviour:
        raise CommandError(f"--boost {text!r} is not of the form behaviour=size, for example --boost view=2")
    return read_setting(f"boost.{text}")


def combine(layers: Sequence[Layer]) -> Layer:
    """One dictionary from layers, later ones winning field by field."""
    result: Layer = {}
    for layer in layers:
        result = _overlay(result, _expanded(layer))
    return result


def run_config(layers: Sequence[Layer]) -> tuple[ExperimentConfig, DataSource]:
    """The configuration of a run, and where its data come from.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    fields = combine(layers)
    if not _table(fields, "method").get("name"):
        raise CommandError(
            f"no method is named: choose one of {', '.join(methods())}, for example privfed run gpfedrec"
        )
    source = _take_source(fields, ExperimentConfig)
    if method(str(fields["method"]["name"])).traits.uploads_once:
        fields.setdefault("rounds", 1)
    if isinstance(privacy := fields.get("privacy"), dict) and not privacy.keys() & {"epsilon", "target_epsilon"}:
        privacy.setdefault("mechanism", {"kind": "unprotected"})
    config = configure(ExperimentConfig, fields)
    _check(config.method, config.privacy)
    if "rounds" not in fields and (own := config.registered().training.rounds(config.settings())):
        config = config.model_copy(update={"rounds": own})
    return config, source


def method_table(name: str, refreshes: int | None) -> Layer:
    """The settings that METHOD and `--refreshes` are.

    Raises:
        UnknownMethodError: the method keeps no running totals.
    """
    return {"name": name} if refreshes is None else {"name": refreshed(name), "refreshes": refreshes}


def of_the_method(file: Layer, argument: str | None, settings: Sequence[Layer]) -> Layer:
    """The layer of a file, whose settings of a method have to be of the one that METHOD or a `--set` names.

    Raises:
        CommandError: they are of another.
    """
    table = _expanded({key: file[key] for key in ("method",) if key in file}).get("method")
    other = table.get("name") if isinstance(table, dict) else None
    name = _table(combine([{"method": {"name": argument}}, *settings]), "method").get("name")
    if isinstance(name, str) and other is not None and str(other).partition(":")[0] != name.partition(":")[0]:
        raise CommandError(
            f"the file's [method] table is of {other}, and {'METHOD' if name == argument else '--set method.name'} is "
            f"{name}: leave that out, or take name and settings of {other} out of the file"
        )
    return file


def audit_config(file: Layer, flags: Layer, settings: Sequence[Layer]) -> tuple[AuditConfig, DataSource]:
    """The configuration of an audit, and where its data come from.

    `method.x` and `privacy.x` in a `--set` change every method and plan of the grid that has such a field.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    spread = [layer for layer in settings if layer.keys() & {"method", "privacy"}]
    fields = combine([file, flags, *(layer for layer in settings if layer not in spread)])
    source = _take_source(fields, AuditConfig)
    if "variants" in fields:
        if also := [key for key in ("methods", "plans") if key in fields]:
            raise CommandError(f"variants stand beside {' and '.join(also)}: give methods and plans, or variants alone")
        fields["variants"] = [_expanded(_variant(variant)) for variant in _several(fields["variants"], "variants")]
    else:
        _fill_grid(fields)
    if isinstance(seeds := fields.get("seeds"), int):
        fields["seeds"] = list(range(seeds))
    for layer in spread:
        for key, change in _expanded(layer).items():
            _change_grid(fields, key, change)
    config = configure(AuditConfig, fields)
    if config.protocol.task == "rating":
        raise CommandError(
            "an audit compares rankings, and protocol.task is rating: choose task=ranking here, and predict ratings "
            "with 'privfed run'"
        )
    for variant in config.grid():
        _check(variant.method, variant.privacy)
    return config, source


def _change_grid(fields: Layer, key: str, change: Any) -> None:
    """Change `method` or `privacy` all over a grid.

    Raises:
        CommandError: it names one method, where all of the grid have theirs.
    """
    if key == "method" and isinstance(change, dict) and "name" in change:
        raise CommandError(
            f"--set method.name={change['name']} would put one method in the place of all that are audited: name it by "
            f"--method {change['name']}"
        )
    if "variants" in fields:
        changed = _spread([variant[key] for variant in fields["variants"]], change, key)
        fields["variants"] = [{**variant, key: new} for variant, new in zip(fields["variants"], changed, strict=True)]
    else:
        table = "methods" if key == "method" else "plans"
        fields[table] = _spread(fields[table], change, key)


def _fill_grid(fields: Layer) -> None:
    """Methods and plans with their tables; what is missing is the default grid."""
    fields["methods"] = [_named(m) for m in _several(fields.get("methods", ["gpfedrec"]), "methods")]
    if not fields["methods"]:
        raise PlanError("methods = [] is not allowed: name at least one method")
    first = str(fields["methods"][0].get("name", ""))
    if "plans" in fields:
        fields["plans"] = [_plan(p) for p in _several(fields["plans"], "plans")]
    else:
        fields["plans"] = [plan.to_dict() for plan in AuditConfig.for_method(first).plans]


def _variant(variant: Any) -> Layer:
    if not isinstance(variant, dict) or not variant.keys() >= {"method", "privacy"}:
        raise PlanError(f"variants: {variant!r} is not allowed: each must be a table with method and privacy")
    return variant


def split_spec(settings: Sequence[str]) -> SplitSpec:
    """The split that `--set split.x=value` asks for; leave-one-out where nothing does.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    fields = combine([read_setting(text) for text in settings])
    if other := [key for key, value in fields.items() if key != "split" or not isinstance(value, dict)]:
        raise CommandError(f"--set {other[0]}=... means nothing here: set a field of the split, as split.target=buy")
    try:
        return configure(SplitSpec, _table(fields, "split"))
    except PlanError as error:
        raise PlanError(f"split.{error}") from error


def load_data(source: DataSource, screen: Screen) -> Interactions:
    """Load the data, say once on what terms, and fall back to generated data where nobody chose.

    Raises:
        DataError, CommandError: they are not to be had, or unfit.
    """
    name = source.name
    if _is_a_missing_path(name):
        raise CommandError(f"there is no file or folder {name}: correct the path, or see 'privfed data list'")
    try:
        interactions = load(name, columns=source.columns, progress=screen.note)
    except DataError as error:
        if source.chosen:
            raise
        screen.note(f"{error}\nGoing on with generated data ({FALLBACK_DATA}); no number from it is a measurement.")
        return load(FALLBACK_DATA)
    if not screen.quiet and (terms := terms_once(name)):
        screen.note(f"Terms of {name}: {terms}")
    return interactions


def fitted_to(config: Config, source: DataSource, interactions: Interactions) -> Config:
    """The configuration with the data that were found, and with their kind of split where none was chosen."""
    name = config.data if source.chosen else interactions.name
    return config.model_copy(update={"data": name, "split": fitted(config.split, interactions)})


def absolute(name: str) -> str:
    """A path made independent of the current folder; names stay as they are."""
    known = {dataset.name for dataset in catalogue.list()}
    return str(Path(name).resolve()) if name not in known and Path(name).exists() else name


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> str | None:
    """`key = a, not b` of the first field in which two configurations differ; None where they are equal."""
    for key in [*one, *(key for key in other if key not in one)]:
        a, b = one.get(key), other.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return first_difference(a, b, f"{prefix}{key}.")
        return f"{prefix}{key} = {a!r}, not {b!r}"
    return None


def _overlay(base: Layer, change: Layer, path: str = "") -> Layer:
    tag = _TAGS.get(path)
    if tag and tag in change and _kind(change[tag]) != _kind(base.get(tag, change[tag])):
        base = {}
    merged = dict(base)
    for key, value in change.items():
        below = f"{path}.{key}" if path else key
        old = merged.get(key)
        merged[key] = _overlay(old if isinstance(old, dict) else {}, value, below) if isinstance(value, dict) else value
    return merged


def _kind(tag: Any) -> Any:
    """What the fields of a table depend on: of a method with a preset the method."""
    return tag.partition(":")[0] if isinstance(tag, str) and not in_file(tag) else tag


def _expanded(layer: Layer) -> Layer:
    """The layer with words for a method, a plan or a protocol replaced by their tables."""
    plain = dict(layer)
    preset: Layer = {}
    if isinstance(word := plain.get("protocol"), str):
        if word not in _PROTOCOLS:
            raise CommandError(f"protocol {word!r} is not known{nearest(word, _PROTOCOLS)}")
        preset = _PROTOCOLS[plain.pop("protocol")]
    if "privacy" in plain:
        plain["privacy"] = _plan(plain["privacy"])
    if isinstance(plain.get("method"), str):
        plain["method"] = _named(plain["method"])
    return _overlay(preset, plain)


def _named(settings: Any) -> Any:
    return {"name": settings} if isinstance(settings, str) else settings


def _plan(plan: Any) -> Any:
    return PrivacyPlan.parse(plan).to_dict() if isinstance(plan, str) else plan


def _several(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{key} = {value!r} is not allowed: it must be a list of names or tables")
    return value


def _table(fields: Layer, key: str) -> Layer:
    table = fields.get(key, {})
    return table if isinstance(table, dict) else {}


def _take_source(fields: Layer, model: type[BaseModel]) -> DataSource:
    """Take what names the data out of the fields, which keep `data` alone."""
    columns, chosen = fields.pop("columns", None), "data" in fields
    if columns is not None and not (
        isinstance(columns, dict) and all(isinstance(name, str) for name in columns.values())
    ):
        raise PlanError(f"columns = {columns!r} is not allowed: it must be a table of role = column")
    name = fields.setdefault("data", model.model_fields["data"].default)
    if not isinstance(name, str):
        raise PlanError(f"data = {name!r} is not allowed: it must be the name of a data set or a path")
    fields["data"] = absolute(name)
    return DataSource(fields["data"], columns, chosen)


def _spread(tables: Sequence[Layer], change: Any, key: str) -> list[Layer]:
    """`change` made to every table that has its field.

    Raises:
        PlanError: none of them has.
    """
    changed, problems = [], []
    for table in tables:
        new = _overlay({key: table}, {key: change})[key]
        try:
            _validate(new, key)
        except PlanError as error:
            problems.append(error)
            new = table
        changed.append(new)
    if len(problems) == len(tables):
        raise problems[0]
    return changed


def _validate(table: Layer, key: str) -> None:
    if key == "method":
        _method_settings(table)
        return
    try:
        configure(PrivacyPlan, table)
    except PlanError as error:
        raise PlanError(f"privacy.{error}") from error


def _check(settings: Layer, plan: PrivacyPlan) -> None:
    """Refuse settings that the method does not have, and a plan that hides what it needs."""
    _method_settings(settings)
    registered = method(str(settings["name"]))
    if reason := method_refusal(plan, method_profile(registered)):
        raise PlanError(f"the plan '{plan.name}' does not fit {registered.name}: {reason}")


def _method_settings(table: Layer) -> MethodConfig:
    registered = method(str(table.get("name", "")))
    try:
        return configure(
            registered.config, {key: value for key, value in method_settings(table).items() if key != "name"}
        )
    except PlanError as error:
        raise PlanError(f"method.{error}") from error


def _is_a_missing_path(name: str) -> bool:
    path = Path(name).expanduser()
    root = os.environ.get(catalogue.ENVIRONMENT)
    looks_like_one = os.sep in name or bool(path.suffix)
    return looks_like_one and not path.exists() and not (root and (Path(root).expanduser() / name).exists())


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items()}
    return None if value == "null" else value
