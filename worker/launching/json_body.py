"""Puts the values of parameters into a JSON text that an HTTP task sends.

Pure. Within a JSON text's strings a value is escaped, so that it ends where the string ends. A
`${name}` outside of strings stands for a whole JSON value, as a number, and has to be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from common.model.task_type import ValueFaultError, is_absent

_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\$\{([^{}"\s]{1,200})\}', re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_MAX_CHARS: Final = 1_000_000


def with_values(text: str, value_of: Callable[[str], str | None]) -> str:
    """Return the JSON with values put in; `ValueFaultError` if it is no JSON then."""
    if len(text) > _MAX_CHARS:
        raise ValueFaultError(f"has {len(text):,} characters; {_MAX_CHARS:,} are allowed")

    def part(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return _REFERENCE.sub(_escaped, found[0])
        value = value_of(name)
        if value is None:
            raise ValueFaultError(f"there is no parameter {name[:80]!r}")
        if not _is_json(value):
            raise ValueFaultError(
                f"the value of parameter {name[:80]!r} is not a JSON value; write it in quotation"
                " marks to send text"
            )
        return value

    def _escaped(found: re.Match[str]) -> str:
        value = value_of(found[1])
        return found[0] if value is None else json.dumps(value, ensure_ascii=False)[1:-1]

    made = _PART.sub(part, text)
    try:
        _decoded(made)
    except (ValueError, RecursionError) as error:
        # No message repeats the text: it may hold a secret.
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueFaultError(f"must be JSON: an object, a list or a single value{place}") from None
    return made


def text_of_body(value: object) -> str:
    """Return the JSON text of a body that is given as text, or as what JSON makes of it."""
    if is_absent(value):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        _decoded(text)
    except (ValueError, RecursionError):
        return False
    return True


def _decoded(text: str) -> Any:
    # Numbers stay the text they are: one of ten thousand digits must not be computed.
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")
