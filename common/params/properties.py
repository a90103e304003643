"""A property: one declared parameter, and its stored JSON form.

Reading is lenient where users and old clients are sloppy (numbers for text, a missing direction),
and names the place where it cannot be. Nothing here looks inside a value.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from common.masking import is_open, is_secret
from common.params.errors import ParameterError, shown


class Direct(IntEnum):
    """The direction: a task reads the parameter (IN) or produces it (OUT)."""

    IN = 0
    OUT = 1


class DataType(IntEnum):
    """The type under which a value is bound; here every value is text."""

    VARCHAR = 0
    INTEGER = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    DATE = 5
    TIME = 6
    TIMESTAMP = 7
    BOOLEAN = 8
    LIST = 9
    FILE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A parameter as declared: `prop` is its name, as in the stored JSON.

    `secret` marks a value that is never shown, independent of its name. Authors set it, and workers
    set it for an output that contains a secret.
    """

    prop: str
    direct: Direct = Direct.IN
    type: DataType = DataType.VARCHAR
    value: str = ""
    secret: bool = False


def parse_properties(document: object) -> tuple[Property, ...]:
    """The properties in a decoded JSON list, or in a string that holds one; none for `None`.

    Duplicates are kept, in order: who builds a mapping lets the last one win.
    """
    if isinstance(document, str):
        document = _decoded(document)
    if document is None:
        return ()
    if not isinstance(document, list | tuple):
        raise ParameterError(f"parameters must be a JSON list, not {_kind(document)}")
    return tuple(_property(item, f"parameter {index}") for index, item in enumerate(document))


def properties_json(properties: Iterable[Property]) -> str:
    """The stored form; `parse_properties` reads it back as it was."""
    document = [
        {
            "prop": each.prop,
            "direct": each.direct.name,
            "type": each.type.name,
            "value": each.value,
            **({"secret": True} if each.secret else {}),
        }
        for each in properties
    ]
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, so no table could hold it unless it is escaped.
        return json.dumps(document, separators=(",", ":"))
    return text


def _decoded(text: str) -> object:
    if not text.strip():
        return None
    try:
        # Numbers stay the text they were written as: 1.10 must not become 1.1, and a number of
        # ten thousand digits must not be computed.
        document: object = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=_refuse_constant
        )
    except ValueError as error:
        raise ParameterError(f"parameters are not valid JSON: {error}") from error
    except RecursionError as error:
        raise ParameterError("parameters are not valid JSON: nested too deeply") from error
    return document


def _refuse_constant(name: str) -> object:
    raise ParameterError(f"parameters are not valid JSON: {name} is not a JSON value")


def _property(item: object, place: str) -> Property:
    if not isinstance(item, Mapping):
        raise ParameterError(f"{place} must be a JSON object, not {_kind(item)}")
    prop = item.get("prop")
    if not isinstance(prop, str) or not prop:
        raise ParameterError(f"{place}: key 'prop' must be a name, not {_kind(prop)}")
    secret = item.get("secret")
    # Another value must not look like a mark that protects nothing.
    if secret is not None and not isinstance(secret, bool):
        raise ParameterError(f"{place}: key 'secret' must be true or false, not {_kind(secret)}")
    return Property(
        prop=prop,
        direct=_member(Direct, item.get("direct"), place, "direct", Direct.IN),
        type=_member(DataType, item.get("type"), place, "type", DataType.VARCHAR),
        value=_value(item.get("value"), place),
        secret=secret is True,
    )


def secret_values(
    properties: Iterable[Property], parameters: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the values of properties that are marked as secret or have a secret name.

    `parameters` are the effective values by name; they replace the declared values.
    """
    found: dict[str, None] = {}
    for each in properties:
        value = each.value if parameters is None else parameters.get(each.prop, each.value)
        if value and (each.secret or is_secret(each.prop)) and not is_open(value):
            found[value] = None
    return tuple(found)


_Member = TypeVar("_Member", bound=IntEnum)


def _member(
    members: type[_Member], given: object, place: str, key: str, default: _Member
) -> _Member:
    """The member meant by a name or a code; clients have written both, the code also as text."""
    if given is None or given == "":
        return default
    if isinstance(given, str):
        for member in members:
            if given.strip().upper() in (member.name, str(member.value)):
                return member
    elif isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(members):
        return members(given)
    names = ", ".join(member.name for member in members)
    found = shown(given) if isinstance(given, str) else _kind(given)
    raise ParameterError(f"{place}: key '{key}' must be one of {names}, not {found}")


def _value(given: object, place: str) -> str:
    match given:
        case None:
            return ""
        case str():
            return given
        case bool():
            return "true" if given else "false"
        case int():
            try:
                return str(given)
            except ValueError as error:
                raise ParameterError(f"{place}: key 'value' is too large a number") from error
        case float() if math.isfinite(given):
            return repr(given)
        case _:
            raise ParameterError(
                f"{place}: key 'value' must be text, a number or a boolean, not {_kind(given)}"
            )


def _kind(value: object) -> str:
    """Name the JSON type of a value; never the value itself, which may be a secret."""
    match value:
        case None:
            return "null"
        case "":
            return "empty text"
        case str():
            return "text"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return type(value).__name__
