"""The types of fields: what a value must be, and what it is to Spark and to Arrow. Pure.

A field is declared as `"word"` or as `"count long"`; without a type it is a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

STRING: Final = "string"
OBJECT: Final = "object"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """A type by the classes of its values, and its name in Spark. A value may also be None.

    `groupable`: values have a hash that Spark, Java and Python agree on (`hashing`).
    """

    classes: tuple[type, ...]
    spark: str
    groupable: bool = True


TYPES: Final[Mapping[str, FieldType]] = {
    STRING: FieldType(classes=(str,), spark="string"),
    "long": FieldType(classes=(int,), spark="bigint"),
    "double": FieldType(classes=(float, int), spark="double"),
    "boolean": FieldType(classes=(bool,), spark="boolean"),
    "binary": FieldType(classes=(bytes,), spark="binary"),
    # With a zone: one without would mean another time on another computer.
    "timestamp": FieldType(classes=(datetime,), spark="timestamp", groupable=False),
    "date": FieldType(classes=(date,), spark="date", groupable=False),
    # Whatever can be pickled.
    OBJECT: FieldType(classes=(object,), spark="binary", groupable=False),
}


def name_and_type(declared: str) -> tuple[str, str]:
    """Return the name and the type of a declared field; neither is checked."""
    name, _, given = declared.strip().partition(" ")
    return name, given.strip() or STRING


def mistake_in(value: object, type_name: str) -> str:
    """Return what is wrong with a value of a field of this type; empty if nothing is."""
    if value is None or type_name == OBJECT:
        return ""
    if isinstance(value, datetime) and type_name == "timestamp":
        return f"{value!r:.80} has no zone" if value.tzinfo is None else ""
    # A bool is an int to Python, and a datetime a date.
    exact = bool if type_name != "boolean" else datetime
    classes = TYPES[type_name].classes
    if not isinstance(value, classes) or isinstance(value, exact | datetime):
        return f"{value!r:.80} is no {type_name}, but of type {type(value).__name__}"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return f"{value!r:.50} has more than 64 bits"
    return ""
