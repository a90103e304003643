"""Makes values of the text of parameters, by their declared types.

Pure. Doors check with it what callers give, the worker checks values before anything runs, and the
programs that run statements make the values. An empty text means NULL, unless the type is a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Final, TypeAlias

from common.masking import is_open
from common.params.errors import ParameterError
from common.params.properties import DataType

Value: TypeAlias = tuple[str, str | None]
"""The name of a `DataType`, and the text of a value of it; None is NULL."""

_TEXTS: Final = (DataType.VARCHAR, DataType.FILE)
_FORMS: Final[Mapping[DataType, str]] = {
    DataType.INTEGER: "a whole number of 32 bits",
    DataType.LONG: "a whole number of 64 bits",
    DataType.FLOAT: "a number such as 1.5",
    DataType.DOUBLE: "a number such as 1.5",
    DataType.DATE: "written as 2026-01-31",
    DataType.TIME: "written as 13:30:00",
    DataType.TIMESTAMP: "written as 2026-01-31 13:30:00",
    DataType.BOOLEAN: "true or false",
    DataType.LIST: "a JSON list",
}
_BITS: Final[Mapping[DataType, int]] = {DataType.INTEGER: 31, DataType.LONG: 63}


class ParameterValueError(ParameterError):
    """A value isn't what its type says. The text names the parameter, and never the value."""


def bound(value: Value) -> object:
    """Return the value for a database driver. `ValueError` for a text that is not such a value."""
    kind, text = value
    if text is None:
        return None
    match DataType[kind]:
        case DataType.INTEGER | DataType.LONG:
            return int(text.strip())
        case DataType.FLOAT | DataType.DOUBLE:
            return float(text)
        case DataType.DATE:
            return date.fromisoformat(text.strip())
        case DataType.TIME:
            return time.fromisoformat(text.strip())
        case DataType.TIMESTAMP:
            return datetime.fromisoformat(text.strip())
        case DataType.BOOLEAN:
            return _boolean(text.strip().lower())
        case _:
            if "\0" in text:
                raise ValueError("a NUL character")
            return text


def typed(name: str, kind: DataType, text: str) -> object:
    """Return one value of the declared type. Raises `ParameterValueError`."""
    if not text and kind not in _TEXTS:
        return None
    try:
        value = json.loads(text) if kind is DataType.LIST else bound((kind.name, text))
    except (ValueError, ArithmeticError, RecursionError):
        value = None
    is_list = isinstance(value, list)
    limit = _BITS.get(kind)
    too_large = limit is not None and isinstance(value, int) and not _fits(value, limit)
    if value is None or too_large or is_list is not (kind is DataType.LIST):
        raise ParameterValueError(
            f"parameter {name!r:.200} is declared {kind.name}, so its value must be {_form(kind)}"
        )
    return value


def check_given(given: Mapping[str, object], types: Mapping[str, DataType]) -> None:
    """Raise `ParameterValueError` for a given value that is not of its declared type.

    A value with a placeholder may still become one, and text is not checked.
    """
    for name, value in given.items():
        kind = types.get(name, DataType.VARCHAR)
        if kind not in _TEXTS and isinstance(value, str) and not is_open(value):
            typed(name, kind, value)


def _boolean(text: str) -> bool:
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ValueError("no boolean")


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits


def _form(kind: DataType) -> str:
    return _FORMS.get(kind, "text without a NUL character")
