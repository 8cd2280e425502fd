"""Settings that are refused from a file of what they may be, before the models that hold them are loaded.

`methods.json` has the range of every setting of a run and of its method. Only what is plain is judged here: a key that
nobody knows, a number outside its range, a word that is not on a list. Everything else is left to the models, which
judge all again; a test holds both to one sentence.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privfed.cli.failures import CommandError
from privfed.cli.listing import stored
from privfed.privacy.errors import PlanError, nearest, not_allowed, unknown_key

if TYPE_CHECKING:
    from pydantic import BaseModel

_ELSEWHERE = frozenset({"columns", "method", "privacy", "data"})
"""Tables of a run that say more than they are checked for here."""
_RULES: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("greater than or equal to", operator.ge),
    "exclusiveMinimum": ("greater than", operator.gt),
    "maximum": ("less than or equal to", operator.le),
    "exclusiveMaximum": ("less than", operator.lt),
}


def settable(model: "type[BaseModel]") -> dict[str, Any]:
    """Every field of a model: its JSON schema and description, or the fields of the model that it holds."""
    properties = model.model_json_schema().get("properties", {})
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if hasattr(inner, "model_fields") and name not in _ELSEWHERE:
            fields[name] = {"fields": settable(inner)}
        else:
            schema = {
                key: value for key, value in properties[name].items() if key in (*_RULES, "anyOf", "enum", "type")
            }
            fields[name] = {"schema": {} if "$ref" in str(schema) else schema, "description": field.description or ""}
    return fields


def refuse_settings(method: str | None, layers: Sequence[Mapping[str, Any]]) -> None:
    """Refuse plain mistakes in the settings of a run.

    Args:
        method: its name; None where a file names it, or whoever resumes a run.
        layers: what was set, later ones above earlier ones.

    Raises:
        PlanError: in the sentence in which the models refuse it.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        _lay_over(merged, layer)
    problems = list(_problems({key: value for key, value in merged.items() if key not in _ELSEWHERE}, stored()["run"]))
    if not problems and isinstance(of_method := merged.get("method"), dict) and "name" not in of_method:
        known = stored()["methods"].get(_entry(method))
        problems = list(_problems(of_method, known["settings"], "method.")) if known else []
    if problems:
        first = next((said for said, is_key in problems if is_key), problems[0][0])
        more = len(problems) - 1
        raise PlanError(f"{first} (and {more} more problem{'s' if more > 1 else ''})" if more else first)


def refuse_words(methods: Sequence[str], plans: Sequence[str], protocol: str | None) -> None:
    """Refuse privacy plans and a protocol whose names nobody knows.

    Args:
        methods: that run; one from elsewhere may bring plans of its own, and then nothing is said of them.
        plans: in words.
        protocol: its name.

    Raises:
        PlanError, CommandError: in the sentence in which the run refuses it.
    """
    words = stored()["words"]
    if methods and all(_entry(method) in stored()["methods"] for method in methods):
        for plan in (plan.strip().partition(":")[0].strip() for plan in plans):
            if plan not in words["privacy"]:
                raise PlanError(f"privacy plan {plan!r} is not known{nearest(plan, words['privacy'])}")
    if protocol is not None and protocol not in words["protocol"]:
        raise CommandError(f"protocol {protocol!r} is not known{nearest(protocol, words['protocol'])}")


def _lay_over(merged: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            _lay_over(merged[key], value)
        else:
            merged[key] = dict(value) if isinstance(value, Mapping) else value


def _entry(method: str | None) -> str:
    """The entry point of a method of this package; nothing for others."""
    from privfed.methods.own import of_this_process
    from privfed.methods.registry import entries

    base = (method or "").partition(":")[0]
    return "" if of_this_process(base) is not None or base not in entries() else entries()[base].value


def _problems(given: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """What is wrong, in sentences, and whether it is with a key."""
    for key, value in given.items():
        if key not in known:
            yield unknown_key(prefix + key, known), True
        elif "fields" in known[key]:
            if isinstance(value, Mapping):
                yield from _problems(value, known[key]["fields"], f"{prefix}{key}.")
        elif rule := _broken(value, known[key]["schema"]):
            yield not_allowed(prefix + key, value, rule, known[key]["description"]), False


def _broken(value: Any, schema: Mapping[str, Any]) -> str | None:
    """The rule that a value breaks; None where it breaks none that is plain."""
    either = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if len(either) != 1 or value is None:
        return None
    (plain,) = either
    kind, allowed = plain.get("type"), plain.get("enum")
    if kind == "string" and allowed and isinstance(value, str) and value not in allowed:
        *others, last = map(repr, allowed)
        listed = f"{', '.join(others)} or {last}" if others else last
        return f"it must be {listed}{nearest(value, allowed, listing=False)}"
    finite = type(value) is int or (type(value) is float and math.isfinite(value))
    if finite and type(value) in {"integer": (int,), "number": (int, float)}.get(kind, ()):
        for name, (words, holds) in _RULES.items():
            if name in plain and not holds(value, plain[name]):
                bound = plain[name]
                return f"it must be {words} {int(bound) if bound == int(bound) else bound}"
    return None
