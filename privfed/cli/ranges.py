"""What values a setting takes, in words, from its JSON schema."""

from collections.abc import Mapping
from typing import Any

_BOUNDS = {
    "minimum": "from {:g}",
    "exclusiveMinimum": "above {:g}",
    "maximum": "to {:g}",
    "exclusiveMaximum": "below {:g}",
}
_NOUNS = {
    "integer": ("whole number", "whole numbers"),
    "number": ("number", "numbers"),
    "string": ("text", "texts"),
    "boolean": ("true or false", "true or false"),
    "null": ("null", "nulls"),
}


def values(schema: Mapping[str, Any]) -> str:
    """Values that a property of a JSON schema allows: "whole number from 1", "null or number above 0"."""
    if "anyOf" in schema:
        return " or ".join(map(values, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_simple(schema.get('items', {}), plural=True)}"
    return _simple(schema, plural=False)


def _simple(schema: Mapping[str, Any], *, plural: bool) -> str:
    if "enum" in schema:
        return values(schema)
    noun = _NOUNS.get(schema.get("type", ""), ("value", "values"))[plural]
    return " ".join([noun, *(words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema)])
