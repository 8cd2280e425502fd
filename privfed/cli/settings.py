"""From flags, a TOML file and `--set` to one validated configuration.

Each source is a layer: a nested dictionary with the keys of the configuration. Later layers win:
defaults (or, on resume, what the run was started with), then the file, then the flags, then each `--set` in
order. A method, a privacy plan or a protocol may be given as a word wherever its table could stand:
`privacy = "clip:clip_norm=5"`, `protocol = "paper"`. The word "null" stands for an empty value, which TOML
cannot write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from privfed.cli.early import refuse_missing
from privfed.cli.failures import CommandError
from privfed.cli.importing import importing
from privfed.cli.layers import Layer, read_setting
from privfed.cli.listing import profile
from privfed.cli.screen import Screen
from privfed.data import DataError, SplitSpec, catalogue
from privfed.evaluation import HONEST, PAPER
from privfed.methods import method, refreshed
from privfed.methods.own import in_file
from privfed.methods.registry import entries, refuse_unknown
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.privacy.errors import nearest
from privfed.privacy.refusals import method_refusal
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig

if TYPE_CHECKING:
    from privfed.data import Interactions
    from privfed.methods import MethodConfig

FALLBACK_DATA = "synthetic"
PROTOCOLS: dict[str, Layer] = {
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


def combine(layers: Sequence[Layer]) -> Layer:
    """One dictionary from layers, later ones winning field by field."""
    result: Layer = {}
    for layer in layers:
        result = overlay(result, expanded(layer))
    return result


@importing()
def run_config(layers: Sequence[Layer]) -> tuple[ExperimentConfig, DataSource]:
    """The configuration of a run, and where its data come from.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    fields = combine(layers)
    if not (name := table_of(fields, "method").get("name")):
        raise CommandError(
            f"no method is named: choose one of {', '.join(sorted(entries()))}, for example privfed run gpfedrec"
        )
    refuse_unknown(str(name))
    source = take_source(fields, ExperimentConfig)
    if source.chosen:
        refuse_missing(source.name)
    if isinstance(privacy := fields.get("privacy"), dict) and not privacy.keys() & {"epsilon", "target_epsilon"}:
        privacy.setdefault("mechanism", {"kind": "unprotected"})
    config = configure(ExperimentConfig, fields)
    check(config.method, config.privacy)
    if "rounds" not in fields:
        own = config.registered().own_rounds(config.settings())
        config = config.model_copy(update={"rounds": own or config.rounds})
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
    table = expanded({key: file[key] for key in ("method",) if key in file}).get("method")
    other = table.get("name") if isinstance(table, dict) else None
    name = table_of(combine([{"method": {"name": argument}}, *settings]), "method").get("name")
    if isinstance(name, str) and other is not None and str(other).partition(":")[0] != name.partition(":")[0]:
        raise CommandError(
            f"the file's [method] table is of {other}, and {'METHOD' if name == argument else '--set method.name'} is "
            f"{name}: leave that out, or take name and settings of {other} out of the file"
        )
    return file


def split_spec(settings: Sequence[str]) -> SplitSpec:
    """The split that `--set split.x=value` asks for; leave-one-out where nothing does.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    fields = combine([read_setting(text) for text in settings])
    if other := [key for key, value in fields.items() if key != "split" or not isinstance(value, dict)]:
        raise CommandError(f"--set {other[0]}=... means nothing here: set a field of the split, as split.target=buy")
    try:
        return configure(SplitSpec, table_of(fields, "split"))
    except PlanError as error:
        raise PlanError(f"split.{error}") from error


def load_data(source: DataSource, screen: Screen) -> "Interactions":
    """Load the data, say once on what terms, and fall back to generated data where nobody chose.

    Raises:
        DataError, CommandError: they are not to be had, or unfit.
    """
    from privfed.data import load, terms_once

    if source.chosen:
        refuse_missing(source.name)
    try:
        interactions = load(source.name, columns=source.columns, progress=screen.note)
    except DataError as error:
        if source.chosen:
            raise
        screen.note(f"{error}\nGoing on with generated data ({FALLBACK_DATA}); no number from it is a measurement.")
        return load(FALLBACK_DATA)
    if not screen.quiet and (terms := terms_once(source.name)):
        screen.note(f"Terms of {source.name}: {terms}")
    return interactions


def fitted_to(source: DataSource, given: SplitSpec, interactions: "Interactions") -> Layer:
    """What a configuration says of the data that were found, with their kind of split where none was chosen."""
    from privfed.data import fitted

    return {"data": source.name if source.chosen else interactions.name, "split": fitted(given, interactions)}


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


def overlay(base: Layer, change: Layer, path: str = "") -> Layer:
    """A layer above another, field by field."""
    tag = _TAGS.get(path)
    if tag and tag in change and _kind(change[tag]) != _kind(base.get(tag, change[tag])):
        base = {}
    merged = dict(base)
    for key, value in change.items():
        below = f"{path}.{key}" if path else key
        old = merged.get(key)
        merged[key] = overlay(old if isinstance(old, dict) else {}, value, below) if isinstance(value, dict) else value
    return merged


def _kind(tag: Any) -> Any:
    """What the fields of a table depend on: of a method with a preset the method."""
    return tag.partition(":")[0] if isinstance(tag, str) and not in_file(tag) else tag


def expanded(layer: Layer) -> Layer:
    """The layer with words for a method, a plan or a protocol replaced by their tables."""
    plain = dict(layer)
    preset: Layer = {}
    if isinstance(word := plain.get("protocol"), str):
        if word not in PROTOCOLS:
            raise CommandError(f"protocol {word!r} is not known{nearest(word, PROTOCOLS)}")
        preset = PROTOCOLS[plain.pop("protocol")]
    if "privacy" in plain:
        plain["privacy"] = plan_table(plain["privacy"])
    if isinstance(plain.get("method"), str):
        plain["method"] = named(plain["method"])
    return overlay(preset, plain)


def named(settings: Any) -> Any:
    """A method in a word, as a table."""
    return {"name": settings} if isinstance(settings, str) else settings


def plan_table(plan: Any) -> Any:
    """A plan in words, as a table."""
    return PrivacyPlan.parse(plan).to_dict() if isinstance(plan, str) else plan


def table_of(fields: Layer, key: str) -> Layer:
    """The table under a key; empty where there is none."""
    table = fields.get(key, {})
    return table if isinstance(table, dict) else {}


def take_source(fields: Layer, model: type[BaseModel]) -> DataSource:
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


def check(settings: Layer, plan: PrivacyPlan) -> None:
    """Refuse a plan that hides what the method needs, and settings that the method does not have."""
    name, known = profile(str(settings["name"]))
    if reason := method_refusal(plan, known):
        raise PlanError(f"the plan '{plan.name}' does not fit {name}: {reason}")
    checked_settings(settings)


def checked_settings(table: Layer) -> "MethodConfig":
    """The settings of a method, which has to have them."""
    registered = method(str(table.get("name", "")))
    try:
        return configure(
            registered.config, {key: value for key, value in method_settings(table).items() if key != "name"}
        )
    except PlanError as error:
        raise PlanError(f"method.{error}") from error
