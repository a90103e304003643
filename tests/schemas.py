"""A validator of the part of JSON Schema 2020-12 that Orcaflow's own schema uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_KNOWN = frozenset(
    [
        "$schema",
        "$defs",
        "$ref",
        "title",
        "description",
        "default",
        "type",
        "enum",
        "pattern",
        "minimum",
        "minItems",
        "items",
        "required",
        "properties",
        "additionalProperties",
        "anyOf",
        "allOf",
        "if",
        "then",
    ]
)


def faults(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$"
) -> Iterator[str]:
    """Yield each place at which a value breaks a schema, with the violation."""
    assert schema.keys() <= _KNOWN, schema.keys() - _KNOWN
    if "$ref" in schema:
        yield from faults(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "type" in schema and not _is_of(value, schema["type"]):
        yield f"{at}: is no {schema['type']}"
        return
    if "enum" in schema and not any(
        value == each and type(value) is type(each) for each in schema["enum"]
    ):
        yield f"{at}: is none of {schema['enum']}"
    if "anyOf" in schema:
        found = [list(faults(value, each, root, at)) for each in schema["anyOf"]]
        if all(found):
            yield max(found, key=lambda each: max(map(len, each)))[0]
    for each in schema.get("allOf", ()):
        yield from faults(value, each, root, at)
    if "if" in schema and not list(faults(value, schema["if"], root, at)):
        yield from faults(value, schema["then"], root, at)
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: does not match {schema['pattern']}"
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        yield f"{at}: is less than {schema['minimum']}"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{at}: has too few items"
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), root, f"{at}[{index}]")
    if isinstance(value, dict):
        yield from (
            f"{at}.{key}: is missing" for key in schema.get("required", ()) if key not in value
        )
        properties = schema.get("properties", {})
        for key, each in value.items():
            inner = properties.get(key, schema.get("additionalProperties", {}))
            yield from faults(each, inner, root, f"{at}.{key}")


def _is_of(value: Any, kinds: str | list[str]) -> bool:
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "number" and is_number:
            return True
        if kind == "integer" and is_number and value == int(value):
            return True
        if kind in _KINDS and isinstance(value, _KINDS[kind]):
            return True
    return False
