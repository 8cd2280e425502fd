"""`configure`: a model from plain data, with one sentence for any pydantic error.

`explain` serves every configuration of the project, not only plans: a bad key or value is answered by one
sentence that names the key, the value and what is allowed.
"""

import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from privfed.privacy.errors import PlanError, nearest, not_allowed, unknown_key

Model = TypeVar("Model", bound=BaseModel)


def configure(model: type[Model], data: Mapping[str, Any]) -> Model:
    """Validate `data` as `model`.

    Args:
        model: pydantic model class.
        data: plain dictionary, for example from TOML or JSON.

    Returns:
        The validated instance.

    Raises:
        PlanError: with the one-sentence explanation of the first problem.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise PlanError(explain(error, model)) from error


def explain(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Turn a pydantic error into one sentence: the key, the value, what is allowed.

    Args:
        error: what pydantic raised.
        model: the model that was validated, from which descriptions and near matches are read. Without it the
            model is looked up by the name that the error carries.

    Returns:
        One sentence about the first problem; further problems are only counted.
    """
    # A misspelt key also leaves its right spelling missing: the misspelling is the helpful half.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    first = details[0]
    spot = _Spot(model or _model_named(error.title), first["loc"])
    sentence = _sentence(first, spot)
    more = len(details) - 1
    return sentence if more == 0 else f"{sentence} (and {more} more problem{'s' if more > 1 else ''})"


class _Spot:
    """Where in a nested model an error sits: the dotted key, the model that owns it, its description."""

    def __init__(self, model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> None:
        self.owner = model
        self.description = ""
        keys: list[str] = []
        tagged: dict[str, type[BaseModel]] = {}
        for part in loc:
            if isinstance(part, int):
                keys.append(f"{keys.pop() if keys else ''}[{part}]")
            elif part in tagged:
                self.owner, tagged = tagged[part], {}
            else:
                keys.append(part)
                tagged = self._enter(part)
        self.key, self.tags = ".".join(keys), list(tagged)

    def _enter(self, name: str) -> dict[str, type[BaseModel]]:
        """Step into the field `name`; returns the models among which a union's tag will choose."""
        field = self.owner.model_fields.get(name) if self.owner else None
        if field is None:
            return {}
        self.description = field.description or ""
        models = list(_models_in(field.annotation))
        if len(models) == 1:
            self.owner = models[0]
        return {tag: m for m in models if len(models) > 1 for tag in _tags(m)}


def _sentence(detail: ErrorDetails, spot: _Spot) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        sentence = f"{spot.key} is missing: it is {spot.description or 'required'}"
    elif kind == "extra_forbidden":
        sentence = unknown_key(spot.key, spot.owner.model_fields if spot.owner else ())
    elif kind == "union_tag_not_found":
        sentence = f"{spot.key}.{_tag_key(context)} is missing: it must be one of {', '.join(spot.tags)}"
    elif kind == "union_tag_invalid":
        tag = str(context["tag"])
        sentence = f"{spot.key}.{_tag_key(context)} = {tag!r} is not known{nearest(tag, spot.tags)}"
    elif kind == "literal_error":
        guess = nearest(str(value), _quoted(context["expected"]), listing=False)
        sentence = not_allowed(spot.key, value, f"it must be {context['expected']}{guess}", spot.description)
    elif kind == "value_error":
        sentence = f"{spot.key}: {context['error']}" if spot.key else str(context["error"])
    else:
        rule = detail["msg"].replace("Input should be", "it must be")
        sentence = not_allowed(spot.key or "the input", value, rule, spot.description)
    return sentence


def _tag_key(context: Mapping[str, Any]) -> str:
    """The discriminating field, which pydantic gives in quotes."""
    return str(context["discriminator"]).strip("'")


def _quoted(text: str) -> list[str]:
    """The words of pydantic's enumeration "'a', 'b' or 'c'"."""
    return [word.strip("' ") for word in text.replace(" or ", ",").split(",")]


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    """Every model class inside a field's annotation (unions, containers, Annotated)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # A field of a family holds any of the family's registered members.
        yield from getattr(annotation, "alternatives", lambda: (annotation,))()
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, list, tuple, dict):
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _tags(model: type[BaseModel]) -> list[str]:
    """Values of the model's one-word literal fields: such a field is the tag of a discriminated union."""
    return [
        str(value)
        for field in model.model_fields.values()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        for value in get_args(field.annotation)
    ]


def _model_named(title: str, root: type[BaseModel] = BaseModel) -> type[BaseModel] | None:
    for model in root.__subclasses__():
        found = model if model.__name__ == title else _model_named(title, model)
        if found is not None:
            return found
    return None
