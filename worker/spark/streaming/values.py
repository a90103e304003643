"""Columns with the kind of value that they hold, and conversions between kinds.

Fields of records are texts of which nobody knows whether they stand for numbers: such a value is
ANY, and counts as a number where it looks like one. Conversions yield null for what can't be
converted, and never an error, since one record must not end a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f


class Kind(Enum):
    """The kind of a value; TRUTH is a condition, which counts as 1 or 0."""

    LONG = auto()
    DOUBLE = auto()
    TEXT = auto()
    ANY = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True)
class Value:
    """A column of one kind; TEXT and ANY are strings in Spark."""

    column: Column
    kind: Kind


NUMBERS: Final = frozenset({Kind.LONG, Kind.DOUBLE, Kind.TRUTH})


def null() -> Value:
    """A missing value."""
    return Value(f.lit(None).cast("string"), Kind.ANY)


def text(value: Value) -> Column:
    """Return the value as a text."""
    if value.kind is Kind.TRUTH:
        return value.column.cast("bigint").cast("string")
    return value.column.cast("string") if value.kind in NUMBERS else value.column


def exact_whole(value: Value) -> Column:
    """Return a whole number, null for one with a fraction and for what is no number."""
    if value.kind is Kind.LONG:
        return value.column
    if value.kind is Kind.TRUTH:
        return value.column.cast("bigint")
    if value.kind is Kind.DOUBLE:
        return f.lit(None).cast("bigint")
    return value.column.try_cast("bigint")


def whole(value: Value) -> Column:
    """Return a whole number, fractions cut off."""
    if value.kind in {Kind.LONG, Kind.TRUTH}:
        return exact_whole(value)
    cut = real(value).try_cast("bigint")
    return cut if value.kind is Kind.DOUBLE else f.coalesce(exact_whole(value), cut)


def real(value: Value) -> Column:
    """Return a number that may have a fraction."""
    if value.kind is Kind.TRUTH:
        return value.column.cast("bigint").cast("double")
    if value.kind in NUMBERS:
        return value.column.cast("double")
    return value.column.try_cast("double")


def truth(value: Value) -> Column:
    """Return a condition: numbers above 0 are true, and so is the text `true`."""
    match value.kind:
        case Kind.TRUTH:
            return value.column
        case Kind.LONG | Kind.DOUBLE:
            return value.column > 0
        case _:
            return (f.lower(value.column) == "true") | (f.coalesce(real(value), f.lit(0.0)) > 0)


def holds(value: Value) -> Column:
    """Return a condition that is false where nothing is known."""
    return f.coalesce(truth(value), f.lit(False))


def of_one_kind(values: Sequence[Value]) -> tuple[Kind, list[Column]]:
    """Return columns of one kind that holds all of the values."""
    kinds = {each.kind for each in values}
    if kinds == {Kind.TRUTH}:
        return Kind.TRUTH, [each.column for each in values]
    if kinds <= {Kind.LONG, Kind.TRUTH}:
        return Kind.LONG, [exact_whole(each) for each in values]
    if kinds <= NUMBERS:
        return Kind.DOUBLE, [real(each) for each in values]
    return Kind.TEXT if kinds == {Kind.TEXT} else Kind.ANY, [text(each) for each in values]
