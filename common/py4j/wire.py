"""Commands and answers of py4j's text protocol. Pure.

A command is lines of text: a letter, its parts, and a line `e`. A part of a call begins with the
letter of its type. An answer is one line. An object that an answer refers to is a *thing*: its id
holds its fields, so that nothing is kept for it, and nobody's id leads to anything of another.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from common.errors import SchedulerError

END: Final = "e"
ENTRY_POINT: Final = "t"
VOID: Final = "!yv\n"
_THING: Final = "x"
_LONGEST_ID: Final = 8_000
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_LARGEST_INT: Final = 2**31
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_MEANT: Final = {"n": "\n", "r": "\r"}

Value: TypeAlias = "str | int | bool | float | Thing | None"


class WireError(SchedulerError):
    """The text is no command of the protocol, or one that is not served. Answer it as an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """An object with fields, which a client reads by getters; or a map, read by `get`."""

    fields: Mapping[str, Any]
    is_map: bool = False

    @property
    def id(self) -> str:
        text = json.dumps({"map": self.is_map, "fields": self.fields}, separators=(",", ":"))
        return _THING + base64.urlsafe_b64encode(text.encode()).decode()


def argument(part: str) -> str | int | bool | float | None:
    """Read a part of a call; `WireError` for a reference, or whatever else is no plain value."""
    kind, text = part[:1], part[1:]
    if kind == "s":
        return _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), text)
    if kind == "n":
        return None
    if kind == "b":
        return text.lower() == "true"
    if kind in ("i", "L") and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "d":
        try:
            return float(text[:40])
        except ValueError:
            pass
    raise WireError("an argument is neither a text, a number, a truth value nor null")


def answer(value: Value) -> str:
    """Write the answer of a call that succeeded."""
    return f"!y{_encoded(value)}\n"


def failure(text: str) -> str:
    """Write the answer of a call that failed; the client raises an error with this text."""
    return f"!xs{_escape(text)}\n"


def read_thing(thing_id: str) -> Thing:
    """Return the thing of an id; `WireError` if it is none."""
    text = thing_id[len(_THING) :]
    try:
        if not thing_id.startswith(_THING) or len(thing_id) > _LONGEST_ID:
            raise ValueError
        found = json.loads(base64.b64decode(text.encode(), altchars=b"-_", validate=True))
        return Thing(fields=dict(found["fields"]), is_map=bool(found["map"]))
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error) as error:
        raise WireError("there is no such object") from error


def member(thing: Thing, method: str, arguments: Sequence[object]) -> Value:
    """Carry out a method of a thing: a getter, or a question to a map. It has no others."""
    if method == "toString" and not arguments:
        return str(dict(thing.fields))[:1000]
    if thing.is_map and method == "size" and not arguments:
        return len(thing.fields)
    if thing.is_map and method == "containsKey" and len(arguments) == 1:
        return str(arguments[0]) in thing.fields
    if thing.is_map and method == "get" and len(arguments) == 1:
        return _field(thing, str(arguments[0]))
    if not thing.is_map and not arguments and len(method) > 3 and method.startswith("get"):
        return _field(thing, method[3].lower() + method[4:])
    raise WireError(f"the object has no method {method!r:.100} for {len(arguments)} arguments")


def _field(thing: Thing, name: str) -> Value:
    found = thing.fields.get(name)
    if isinstance(found, Mapping):
        return Thing(fields=found)
    if found is None or isinstance(found, str | int | bool | float):
        return found
    raise WireError("there is no such object")


def _encoded(value: Value) -> str:
    match value:
        case None:
            return "n"
        case bool():
            return "btrue" if value else "bfalse"
        case int():
            return f"{'i' if -_LARGEST_INT <= value < _LARGEST_INT else 'L'}{value}"
        case float():
            return f"d{value!r}"
        case str():
            return f"s{_escape(value)}"
        case Thing():
            return f"{'a' if value.is_map else 'r'}{value.id}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
