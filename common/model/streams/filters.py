"""Reads the filter of a `transformSpec`, also by the types that Druid's console writes since 27.

    selector, in, bound, regex, like, and, or, not, true     `dimension`
    equals, null, range, inType                              `column`, with the type of values

Pure. Filters of other types are refused by name. Used by `common.model.streams.schema`.
"""

from __future__ import annotations

from typing import Any, Final

from common.model.streams.fields import Fields, shown
from common.model.streams.regexes import RegexError, like_pattern, read_regex
from common.model.streams.spec import (
    Bound,
    Every,
    Filter,
    In,
    Like,
    Matches,
    Not,
    Selector,
    Some,
)

FILTER_TYPES: Final = (
    *("and", "bound", "equals", "in", "inType", "like", "not", "null", "or", "range", "regex"),
    *("selector", "true"),
)
_NUMBERS: Final = ("LONG", "DOUBLE", "FLOAT")
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
        case "equals" | "range":
            read = _typed(fields, type_)
        case "inType":
            _check_type(fields)
            read = In(column=fields.name("column"), values=_values(fields, "sortedValues"))
        case "null":
            read = Selector(column=fields.name("column"), value=None)
        case "regex":
            read = _regex(fields)
        case "like":
            read = _like(fields)
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
    return In(column=fields.name("dimension"), values=_values(fields, "values"))


def _values(fields: Fields, key: str) -> tuple[str | None, ...]:
    values = fields.list(key)
    if not values:
        fields.wrong(key, "must hold at least one value")
    return tuple(_scalar(fields, key, value) for value in values)


def _check_type(fields: Fields) -> bool:
    """Check the type of a filter's values; True for numbers."""
    type_ = fields.text("matchValueType", default="STRING").upper()
    if type_ not in ("STRING", *_NUMBERS):
        known = " or ".join(("STRING", *_NUMBERS))
        fields.wrong("matchValueType", f"must be {known}, not {shown(type_)}")
    return type_ in _NUMBERS


def _typed(fields: Fields, type_: str) -> Filter:
    """Read a filter that compares with values of a type."""
    is_number = _check_type(fields)
    column = fields.name("column")
    keys = ("matchValue",) if type_ == "equals" else ("lower", "upper")
    found = {key: _value(fields, key) for key in keys}
    if not any(each is not None for each in found.values()):
        fields.wrong(keys[0], "is missing")
    for key, each in found.items():
        if is_number and each is not None and not _is_number(each):
            fields.wrong(key, f"must be a number, not {shown(each)}")
    if type_ == "equals" and not is_number:
        return Selector(column=column, value=found["matchValue"])
    return Bound(
        column=column,
        lower=found[keys[0]],
        upper=found[keys[-1]],
        lower_strict=fields.flag("lowerOpen", default=False) if type_ == "range" else False,
        upper_strict=fields.flag("upperOpen", default=False) if type_ == "range" else False,
        numeric=is_number,
    )


def _regex(fields: Fields) -> Matches:
    pattern = fields.name("pattern")
    if pattern:
        try:
            read_regex(pattern)
        except RegexError as error:
            fields.wrong("pattern", f"{shown(pattern)} can't be used: {error}")
    return Matches(column=fields.name("dimension"), pattern=pattern)


def _like(fields: Fields) -> Like:
    written, pattern = fields.name("pattern"), ""
    try:
        pattern = like_pattern(written, fields.text("escape") or None)
    except RegexError as error:
        fields.wrong("pattern", f"{shown(written)} can't be used: {error}")
    return Like(column=fields.name("dimension"), pattern=pattern)


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
