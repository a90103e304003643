"""Reads fields of short records of JSON, as texts, where they come from the topic.

Spark makes a reader with a buffer of 8 KB for each record that it parses: for a short one that
takes longer than all else. What is read here is, to the letter, what Spark's own columns would read
(`worker.spark.streaming.records`); a record of which they might think otherwise is left to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

LONGEST: Final = 1_000
"""Bytes of a record. Within them are no numbers and no depths that Spark's parser refuses."""

_UNREADABLE: Final = re.compile(r'["\\\x00-\x1f]')
"""Signs that msgspec takes in no name, since they are escaped in JSON."""

_Plain: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTexts:
    """The texts of fields, a column for each, and which records are left to Spark."""

    columns: list[list[str | None]]
    left: list[bool]


class _LeftError(ValueError):
    """Spark might read it otherwise."""


def is_readable(name: str) -> bool:
    """Return True if a field of this name can be read here."""
    return _UNREADABLE.search(name) is None


def read_fields(values: Iterable[bytes | None], names: Sequence[str]) -> FieldTexts:
    """Return the texts of these fields of each record; all names have to be readable."""
    decode = _decoder(tuple(names)).decode
    fields_of = msgspec.structs.astuple
    texts: list[str | None] = []
    left: list[bool] = []
    nothing = [None] * len(names)
    # For every record of a stream: nothing is called in it that could stand in it.
    for value in values:
        is_read = False
        if value is not None and len(value) <= LONGEST:
            try:
                texts += [
                    each if type(each) is str or each is None else _text(each)
                    # All of it has to be UTF-8, also what is skipped.
                    for each in fields_of(decode(str(value, "utf-8")))
                ]
                is_read = True
            except (ValueError, RecursionError, msgspec.DecodeError):
                pass
        left.append(not is_read)
        if not is_read:
            texts += nothing
    columns = [texts[place :: len(names)] for place in range(len(names))]
    return FieldTexts(columns=columns, left=left)


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = [
        (f"field{place}", _Plain, msgspec.field(default=None, name=name))
        for place, name in enumerate(names)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", fields, gc=False))


def _text(value: float) -> str:
    """Return a number or a truth value as Spark writes it, which is Java's way."""
    if type(value) is int:
        return str(value)
    if type(value) is bool:
        return "true" if value else "false"
    # Beyond that Java writes exponents; its digits are Python's, the fewest that tell it apart.
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return repr(value)
    raise _LeftError("an exponent")
