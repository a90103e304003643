"""Reads the single values that a file gives in addition to the JSON of a definition.

A value that can't be taken adds a text to a list of mistakes, and the default is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_NAME_LENGTH = 200


def fault_of_name(name: object) -> str | None:
    """Return what is wrong with the name of a definition, or None."""
    if name is None:
        return "is missing; write it into the file, or give it with --name"
    if not isinstance(name, str):
        return "must be text"
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with white space"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if not name.isprintable():
        return "has a control character"
    return None


def number_in(
    entry: Mapping[str, Any],
    key: str,
    mistakes: list[str],
    *,
    default: int,
    lowest: int,
) -> int:
    """Return a whole number, or the default if it is missing or wrong."""
    value = entry.get(key)
    if value is None or value == "":
        return default
    try:
        number = int(str(value).strip()[:20])
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= 10_000_000:
        mistakes.append(f"{key}: must be a whole number from {lowest}, not {value!r:.60}")
        return default
    return number


def word_in(
    wrapped: Mapping[str, Any], key: str, known: Iterable[str], wrong: list[str]
) -> str | None:
    """Return the known word; None where the file has none, so that what is set stays."""
    value = wrapped.get(key)
    if value is None or value == "":
        return None
    words = {each.lower(): each for each in known}
    if not isinstance(value, str) or value.lower() not in words:
        wrong.append(f"{key}: must be one of {', '.join(words.values())}, not {value!r:.60}")
        return None
    return words[value.lower()]


def first_in(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key that has one, or None."""
    return next((entry[key] for key in keys if entry.get(key) is not None), None)
