"""Makes Python values of a task's parameters, by the types that were declared for them.

Pure, and without pyspark: the worker daemon checks values with it before anything runs, and the
task's own process makes them. In a job a parameter is `{"type": "DATE", "value": "2026-01-31"}`.
An empty text is None, unless it is one of a text. What has no declared type is text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from common.params import DataType
from worker.binding import bound

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


class ParameterValueError(Exception):
    """A value isn't what its type says. The text names the parameter, and never the value."""


def in_job(values: Mapping[str, str], types: Mapping[str, DataType]) -> dict[str, dict[str, str]]:
    """The parameters as a job holds them. Raises `ParameterValueError`."""
    found = {}
    for name, text in values.items():
        kind = types.get(name, DataType.VARCHAR)
        typed(name, kind, text)
        found[name] = {"type": kind.name, "value": text}
    return found


def from_job(given: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a job as Python's values. Raises `ParameterValueError`."""
    return {name: _of_job(name, each) for name, each in given.items()}


def typed(name: str, kind: DataType, text: str) -> object:
    """One value. Raises `ParameterValueError`."""
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
            f"parameter {name!r} is declared {kind.name}, so its value must be {_form(kind)}"
        )
    return value


def _of_job(name: str, each: object) -> object:
    if isinstance(each, Mapping) and "type" in each:
        return typed(name, DataType[str(each["type"])], str(each["value"]))
    return each


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits


def _form(kind: DataType) -> str:
    return _FORMS.get(kind, "text without a NUL character")
