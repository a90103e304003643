"""Converts the text of a parameter into the value for a database driver, by its type.

Pure. The worker checks a value with it before anything runs, and the program that runs the
statement makes the value with it.
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import TypeAlias

from common.params import DataType

Value: TypeAlias = tuple[str, str | None]
"""The name of a `DataType`, and the text of a value of it; None is NULL."""


def bound(value: Value) -> object:
    """Return the value for the driver. Raises `ValueError` for a text that is no such value."""
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


def _boolean(text: str) -> bool:
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ValueError("no boolean")
