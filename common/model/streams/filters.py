"""Reads the filter of a `transformSpec`: selector, in, bound, and, or, not, true.

Pure. Filters of other types are refused by name. Used by `common.model.streams.schema`.
"""

from __future__ import annotations

from typing import Any, Final

from common.model.streams.fields import Fields, shown
from common.model.streams.spec import Bound, Every, Filter, In, Not, Selector, Some

FILTER_TYPES: Final = ("and", "bound", "in", "not", "or", "selector", "true")
MAX_DEPTH: Final = 50

_NOTHING: Final = Every(filters=())


def read_filter(fields: Fields, *, depth: int = 1) -> Filter:
    """Read one filter with all that it joins; a wrong one reads as one that all rows pass."""
    if depth > MAX_DEPTH:
        fields.wrong("type", f"filters stand in each other more than {MAX_DEPTH} deep")
        return _NOTHING

    def inner(each: Fields) -> Filter:
        return read_filter(each, depth=depth + 1)

    type_ = fields.name("type")
    read: Filter = _NOTHING
    match type_:
        case "selector":
            read = Selector(column=fields.name("dimension"), value=_value(fields, "value"))
        case "in":
            read = _in(fields)
        case "bound":
            read = _bound(fields)
        case "and" | "or":
            joined: tuple[Filter, ...] = fields.items("fields", inner)
            if not joined:
                fields.wrong("fields", "must hold at least one filter")
            read = Every(filters=joined) if type_ == "and" else Some(filters=joined)
        case "not":
            read = Not(filter=read_filter(fields.required("field"), depth=depth + 1))
        case "true" | "":
            pass
        case _:
            fields.wrong("type", f"{shown(type_)} is unknown; known are {', '.join(FILTER_TYPES)}")
            return _NOTHING
    if "extractionFn" in fields:
        fields.wrong("extractionFn", "is not supported; use a transform")
        fields.raw("extractionFn")
    fields.ignore("filterTuning")
    fields.close()
    return read


def _in(fields: Fields) -> In:
    values = fields.list("values")
    if not values:
        fields.wrong("values", "must hold at least one value")
    return In(
        column=fields.name("dimension"),
        values=tuple(_scalar(fields, "values", value) for value in values),
    )


def _bound(fields: Fields) -> Bound:
    lower, upper = _value(fields, "lower"), _value(fields, "upper")
    if lower is None and upper is None:
        fields.wrong("lower", "a bound needs lower or upper")
    ordering = fields.one_of("ordering", ("lexicographic", "numeric"), default="lexicographic")
    if ordering == "numeric":
        for key, value in (("lower", lower), ("upper", upper)):
            if value is not None and not _is_number(value):
                fields.wrong(key, f"must be a number, not {shown(value)}")
    return Bound(
        column=fields.name("dimension"),
        lower=lower,
        upper=upper,
        lower_strict=fields.flag("lowerStrict", default=False),
        upper_strict=fields.flag("upperStrict", default=False),
        numeric=ordering == "numeric",
    )


def _value(fields: Fields, key: str) -> str | None:
    return _scalar(fields, key, fields.raw(key))


def _scalar(fields: Fields, key: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    fields.wrong(key, f"must be a text or a number, not {shown(value)}")
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
