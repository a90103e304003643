"""The JSON schema (2020-12) of a definition file, made from the specifications of task types.

Pure. It is for editors and for programs that write definitions: what it accepts may still have
mistakes, which lint finds, and a file that lint accepts, it accepts too. Texts that hold JSON are
accepted unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

from common.model.node_keys import DEFINITION_KEYS, NODE_KEYS
from common.model.task_type import DIGESTS, LOCAL_PARAMS, RESOURCE_LIST, Key, Shape, TaskTypeSpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Final = {"type": ["string", "number", "null"]}
_ABSENT: Final = {"enum": [None, ""]}
_RESOURCE: Final = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "anyOf": [{"required": ["res"]}, {"required": ["resourceName"]}, {"required": ["id"]}],
        },
    ]
}
_SCHEDULE: Final = {
    "type": "object",
    "required": ["crontab"],
    "properties": {"crontab": {"description": "A cron line of Quartz.", "type": "string"}},
}
# A word is taken in any case; the list of words is what editors offer.
_SPACE: Final = r"\s*"


def definition_schema(types: Mapping[str, TaskTypeSpec]) -> dict[str, Any]:
    """Return the schema of a file whose tasks have these types."""
    names = sorted(types)
    return {
        "$schema": DIALECT,
        "title": "Process definitions",
        "anyOf": [
            {"$ref": "#/$defs/definition"},
            {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/definition"}},
        ],
        "$defs": {
            "definition": {
                "anyOf": [{"$ref": "#/$defs/wrapped"}, {"$ref": "#/$defs/process"}],
            },
            "wrapped": {
                "type": "object",
                "required": ["processDefinitionJson"],
                "properties": {
                    **{key: DEFINITION_KEYS[key] for key in ("name", "description")},
                    "globalParams": DEFINITION_KEYS["globalParams"],
                    "timeout": DEFINITION_KEYS["timeout"],
                    "tenantId": DEFINITION_KEYS["tenantId"],
                    "executionType": DEFINITION_KEYS["executionType"],
                    "complementDateRule": DEFINITION_KEYS["complementDateRule"],
                    "schedules": {
                        "description": "Its schedules; made OFFLINE where they are not there yet.",
                        "anyOf": [{"type": "array", "items": _SCHEDULE}, _ABSENT],
                    },
                    "processDefinitionJson": {
                        "anyOf": [{"$ref": "#/$defs/process"}, {"type": "string"}]
                    },
                },
            },
            "process": {
                "type": "object",
                "required": ["tasks"],
                "properties": {
                    **DEFINITION_KEYS,
                    "tasks": {**DEFINITION_KEYS["tasks"], "items": {"$ref": "#/$defs/task"}},
                },
            },
            "task": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {**NODE_KEYS, "type": _word(names)},
                "allOf": [_of_type(types[name]) for name in names],
            },
            **{f"params.{name}": _params(types[name]) for name in names},
        },
    }


def _of_type(spec: TaskTypeSpec) -> dict[str, Any]:
    is_type = {"properties": {"type": _word([spec.name])}, "required": ["type"]}
    params = {"anyOf": [{"$ref": f"#/$defs/params.{spec.name}"}, {"type": ["string", "null"]}]}
    return {"if": is_type, "then": {"properties": {"params": params}}}


def _params(spec: TaskTypeSpec) -> dict[str, Any]:
    keys = {key.name: key for key in (*spec.keys, RESOURCE_LIST, LOCAL_PARAMS, DIGESTS)}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _value(key) for name, key in keys.items()},
    }
    return {"description": spec.about, **schema} if spec.about else schema


def _value(key: Key) -> dict[str, Any]:
    schema = _of_shape(key)
    if key.about:
        schema = {"description": key.about, **schema}
    if key.default is not None:
        schema = {**schema, "default": key.default}
    return schema


def _of_shape(key: Key) -> dict[str, Any]:
    match key.shape:
        case Shape.TEXT:
            return dict(_TEXT)
        case Shape.NUMBER:
            digits = {"type": "string", "pattern": r"^\s*[0-9]*\s*$"}
            return {"anyOf": [{"type": "integer", "minimum": 0}, digits, {"type": "null"}]}
        case Shape.WORD:
            numbers = [int(word) for word in key.words if word.isdecimal()]
            return {"anyOf": [_word(key.words), {"enum": [*numbers, None]}, _blank()]}
        case Shape.FLAG:
            return {"anyOf": [{"type": ["boolean", "null"]}, _word(["true", "false"]), _blank()]}
        case Shape.SIZE:
            pattern = r"^\s*([0-9]{1,12}([kmgtKMGT][bB]?)?)?\s*$"
            return {
                "anyOf": [{"type": "string", "pattern": pattern}, {"type": ["integer", "null"]}]
            }
        case Shape.LIST:
            texts = {"type": "array", "items": {"type": "string"}}
            return {"anyOf": [texts, {"type": ["string", "null"]}]}
        case Shape.ENTRIES:
            return {"type": ["array", "string", "null"]}
        case Shape.SETTINGS:
            values = {"type": ["string", "number", "boolean"]}
            settings = {"type": "object", "additionalProperties": values}
            return {"anyOf": [settings, _ABSENT]}
        case Shape.RESOURCE:
            return {"anyOf": [_RESOURCE, {"type": "null"}]}
        case Shape.RESOURCES:
            return {"anyOf": [{"type": "array", "items": _RESOURCE}, _ABSENT]}
        case Shape.ANY:
            return {}
        case _:
            assert_never(key.shape)


def _word(words: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return the words as they are written, which editors offer, or in any other case."""
    in_any_case = "|".join("".join(_in_any_case(letter) for letter in word) for word in words)
    pattern = f"^{_SPACE}({in_any_case}){_SPACE}$"
    return {"anyOf": [{"enum": list(words)}, {"type": "string", "pattern": pattern}]}


def _blank() -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{_SPACE}$"}


def _in_any_case(letter: str) -> str:
    return f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter
