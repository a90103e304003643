"""Takes answers apart without believing them: what isn't as it should be makes the answer none.

Pure. Half an answer would make an application look gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.spark.managers.base import ManagerUnreachableError


def an_object(value: object, what: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise ManagerUnreachableError(f"half an answer: {what} is no object")
    return value


def objects(value: object, what: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects."""
    if not isinstance(value, list):
        raise ManagerUnreachableError(f"half an answer: {what} is no list")
    return [an_object(each, what) for each in value]


def needed_text(document: Mapping[str, Any], key: str) -> str:
    """Text that has to be there."""
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ManagerUnreachableError(f"half an answer: there is no {key}")
    return value


def text(document: Mapping[str, Any], key: str) -> str:
    """Text, "" if it isn't there."""
    value = document.get(key)
    return value if isinstance(value, str) else ""


def link(value: str) -> str:
    """A link that may be shown, or ""."""
    usable = value.startswith(("http://", "https://")) and value.isprintable() and " " not in value
    return value if usable else ""
