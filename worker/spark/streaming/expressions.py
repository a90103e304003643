"""Turns expressions of transforms into columns of Spark.

`common.model.streams.expressions` has read the trees, and has refused unknown functions and wrong
constants. Times in expressions are milliseconds, as in Druid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

from common.model.streams.expressions import (
    Call,
    Column,
    Literal,
    Node,
    has_pattern,
    is_of_hours,
    written_like,
    written_number,
    written_period,
    written_regex,
    written_text,
    zone_of,
)
from common.model.streams.joda import Field, printed_parts, reader_of
from common.model.streams.periods import read_granularity
from worker.spark.streaming import arithmetic, joda, times, zoned
from worker.spark.streaming.values import (
    Kind,
    Value,
    exact_whole,
    holds,
    null,
    of_one_kind,
    real,
    text,
    truth,
    whole,
)

_OPERATORS: Final = frozenset(
    ("&&", "||", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%", "^")
)
_ISO_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS"
_WITH_ZONES: Final = frozenset({Field.OFFSET, Field.ZONE, Field.SHORT_ZONE})
"""Fields of texts that have a zone already."""
_CASTS: Final[Mapping[str, Callable[[Value], Value]]] = {
    "LONG": lambda value: Value(whole(value), Kind.LONG),
    "DOUBLE": lambda value: Value(real(value), Kind.DOUBLE),
    "FLOAT": lambda value: Value(real(value), Kind.DOUBLE),
    "STRING": lambda value: Value(text(value), Kind.TEXT),
}


def columns_of(node: Node) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    match node:
        case Column():
            return frozenset({node.name})
        case Call():
            return frozenset().union(*map(columns_of, node.arguments))
        case Literal():
            return frozenset()


def value_of(node: Node, row: Callable[[str], Value]) -> Value:
    """Return the value of an expression; `row` returns that of a column by its name."""
    match node:
        case Literal():
            return _literal(node)
        case Column():
            return row(node.name)
        case Call():
            pass
    arguments = [value_of(each, row) for each in node.arguments]
    if node.function in _OPERATORS:
        if len(arguments) == 1:
            return arithmetic.negative(arguments[0])
        return arithmetic.binary(node.function, *arguments)
    return _FUNCTIONS[node.function](node, arguments)


def _literal(node: Literal) -> Value:
    match node.value:
        case None:
            return null()
        case str():
            return Value(f.lit(node.value), Kind.TEXT)
        case int():
            return Value(f.lit(node.value).cast("bigint"), Kind.LONG)
        case float():
            return Value(f.lit(node.value), Kind.DOUBLE)


_Function = Callable[[Call, list[Value]], Value]


def _on_number(compute: Callable[[SparkColumn], SparkColumn]) -> _Function:
    return lambda _, given: Value(compute(real(given[0])), Kind.DOUBLE)


def _on_text(compute: Callable[..., SparkColumn], kind: Kind = Kind.TEXT) -> _Function:
    return lambda _, given: Value(compute(*map(text, given)), kind)


def _kept_whole(compute: Callable[[SparkColumn], SparkColumn]) -> _Function:
    """A rounding, which leaves whole numbers as they are."""

    def function(node: Call, given: list[Value]) -> Value:
        (value,) = given
        if value.kind in {Kind.LONG, Kind.TRUTH}:
            return Value(exact_whole(value), Kind.LONG)
        return Value(compute(real(value)), Kind.DOUBLE)

    return function


def _absolute(node: Call, given: list[Value]) -> Value:
    (value,) = given
    negated = arithmetic.negative(value)
    below = arithmetic.compared("<", value, Value(f.lit(0).cast("bigint"), Kind.LONG))
    kind, (one, other) = of_one_kind([negated, value])
    return Value(f.when(below, one).otherwise(other), kind)


def _round(node: Call, given: list[Value]) -> Value:
    digits = 0
    if len(node.arguments) > 1:
        digits = max(-18, min(18, written_number(node, 1)))
    value = given[0]
    if value.kind in {Kind.LONG, Kind.TRUTH} and digits >= 0:
        return Value(exact_whole(value), Kind.LONG)
    return Value(f.round(real(value), digits), Kind.DOUBLE)


def _divided(node: Call, given: list[Value]) -> Value:
    left, right = (Value(whole(each), Kind.LONG) for each in given)
    return arithmetic.computed("/", left, right)


def _cast(node: Call, given: list[Value]) -> Value:
    return _CASTS[written_text(node, 1).upper()](given[0])


def _chosen(pairs: list[tuple[SparkColumn, Value]], otherwise: Value) -> Value:
    """Return the value of the first condition that holds."""
    kind, columns = of_one_kind([*(value for _, value in pairs), otherwise])
    found = columns[-1]
    for (condition, _), column in zip(reversed(pairs), reversed(columns[:-1]), strict=True):
        found = f.when(condition, column).otherwise(found)
    return Value(found, kind)


def _if(node: Call, given: list[Value]) -> Value:
    condition, then, otherwise = given
    return _chosen([(holds(condition), then)], otherwise)


def _case_searched(node: Call, given: list[Value]) -> Value:
    otherwise = given.pop() if len(given) % 2 else null()
    conditions = map(holds, given[::2])
    return _chosen(list(zip(conditions, given[1::2], strict=True)), otherwise)


def _case_simple(node: Call, given: list[Value]) -> Value:
    subject, *cases = given
    otherwise = cases.pop() if len(cases) % 2 else null()
    conditions = (
        f.coalesce(arithmetic.compared("==", subject, each), f.lit(False)) for each in cases[::2]
    )
    return _chosen(list(zip(conditions, cases[1::2], strict=True)), otherwise)


def _first_known(node: Call, given: list[Value]) -> Value:
    kind, columns = of_one_kind(given)
    return Value(f.coalesce(*columns), kind)


def _outermost(sign: str) -> _Function:
    def function(node: Call, given: list[Value]) -> Value:
        found = given[0]
        for each in given[1:]:
            further = f.coalesce(
                arithmetic.compared(sign, each, found), text(found).isNull() | f.lit(False)
            )
            kind, (one, other) = of_one_kind([each, found])
            found = Value(f.when(further, one).otherwise(other), kind)
        return found

    return function


def _trimmed(compute: Callable[..., SparkColumn]) -> _Function:
    return lambda _, given: Value(compute(*map(text, given)), Kind.TEXT)


def _padded(compute: Callable[..., SparkColumn]) -> _Function:
    def function(node: Call, given: list[Value]) -> Value:
        subject, length, pad = given
        return Value(compute(text(subject), whole(length).try_cast("int"), text(pad)), Kind.TEXT)

    return function


def _substring(node: Call, given: list[Value]) -> Value:
    """From an index, the first being 0; a length below 0, or none, takes the rest."""
    subject = text(given[0])
    start = whole(given[1]).try_cast("int")
    length = whole(given[2]).try_cast("int") if len(given) > 2 else f.lit(-1)
    rest = f.length(subject)
    counted = f.when(length < 0, rest).otherwise(length)
    return Value(f.substring(subject, start + 1, counted), Kind.TEXT)


def _position(node: Call, given: list[Value]) -> Value:
    subject, part = map(text, given)
    return Value((f.position(part, subject) - 1).cast("bigint"), Kind.LONG)


def _repeat(node: Call, given: list[Value]) -> Value:
    # A record must not be able to ask for all memory.
    times_ = f.least(whole(given[1]), f.lit(10_000).cast("bigint")).cast("int")
    return Value(f.call_function("repeat", text(given[0]), times_), Kind.TEXT)


def _extracted(node: Call, given: list[Value]) -> Value:
    group = written_number(node, 2) if len(given) > 2 else 0
    found = f.regexp_extract(text(given[0]), written_regex(node), group)
    return Value(f.nullif(found, f.lit("")), Kind.TEXT)


def _json_value(node: Call, given: list[Value]) -> Value:
    path = written_text(node, 1)
    return Value(f.get_json_object(text(given[0]), path), Kind.ANY)


def _time(value: Value) -> SparkColumn:
    """Return microseconds within all years that chunks may have."""
    micros = f.try_multiply(whole(value), f.lit(times.MILLI).cast("bigint"))
    return times.usable(micros, read_granularity("YEAR"))


def _milliseconds(micros: SparkColumn) -> Value:
    # Towards the past also before 1970.
    return Value(
        f.call_function("div", micros - f.pmod(micros, f.lit(times.MILLI)), f.lit(times.MILLI)),
        Kind.LONG,
    )


def _floor(node: Call, given: list[Value]) -> Value:
    cut = written_period(node, 1), zone_of(node)
    return _milliseconds(zoned.floor(_time(given[0]), *cut, of_hours=is_of_hours(node)))


def _ceil(node: Call, given: list[Value]) -> Value:
    cut = written_period(node, 1), zone_of(node)
    return _milliseconds(zoned.ceil(_time(given[0]), *cut, of_hours=is_of_hours(node)))


def _shift(node: Call, given: list[Value]) -> Value:
    steps = f.coalesce(whole(given[2]), f.lit(0).cast("bigint"))
    zone = "" if is_of_hours(node) else zone_of(node)
    return _milliseconds(zoned.shift(_time(given[0]), written_period(node, 1), steps, zone))


_UNITS: Final[Mapping[str, Callable[[SparkColumn], SparkColumn]]] = {
    "SECOND": f.second,
    "MINUTE": f.minute,
    "HOUR": f.hour,
    "DAY": f.dayofmonth,
    "DOW": lambda moment: f.weekday(moment) + 1,
    "DOY": f.dayofyear,
    "WEEK": f.weekofyear,
    "MONTH": f.month,
    "QUARTER": f.quarter,
    "YEAR": f.year,
}


def _part_of_time(node: Call, given: list[Value]) -> Value:
    unit = written_text(node, 1).upper()
    micros = _time(given[0])
    if unit == "EPOCH":
        return Value(f.call_function("div", micros, f.lit(times.SECOND)), Kind.LONG)
    moment = f.timestamp_micros(zoned.wall_of(micros, zone_of(node)))
    return Value(_UNITS[unit](moment).cast("bigint"), Kind.LONG)


def _parsed_time(node: Call, given: list[Value]) -> Value:
    written, zone = text(given[0]), zone_of(node)
    if not has_pattern(node):
        read = times.iso_micros(written)
        return _milliseconds(zoned.placed(read, written, zone))
    reader = reader_of(written_text(node, 1))
    micros = joda.micros_read(written, reader, trimmed=False)
    is_in_zone = zone and not _WITH_ZONES.intersection(reader.fields)
    return _milliseconds(zoned.only_time_at(micros, zone) if is_in_zone else micros)


def _formatted_time(node: Call, given: list[Value]) -> Value:
    micros, zone = _time(given[0]), zone_of(node)
    wall = zoned.wall_of(micros, zone)
    if has_pattern(node):
        return Value(joda.printed(wall, printed_parts(written_text(node, 1))), Kind.TEXT)
    printed = joda.printed(wall, printed_parts(_ISO_TIME))
    return Value(f.concat(printed, zoned.offset_text(micros, zone)), Kind.TEXT)


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "!": lambda _, given: Value(~truth(given[0]), Kind.TRUTH),
    "abs": _absolute,
    "ceil": _kept_whole(lambda number: f.ceil(number).cast("double")),
    "floor": _kept_whole(lambda number: f.floor(number).cast("double")),
    "sqrt": _on_number(f.sqrt),
    "exp": _on_number(f.exp),
    "log": _on_number(f.ln),
    "log10": _on_number(f.log10),
    "round": _round,
    "pow": lambda _, given: arithmetic.computed("^", *given),
    "div": _divided,
    "mod": lambda _, given: arithmetic.computed("%", *given),
    "cast": _cast,
    "if": _if,
    "case_searched": _case_searched,
    "case_simple": _case_simple,
    "nvl": _first_known,
    "isnull": lambda _, given: Value(text(given[0]).isNull(), Kind.TRUTH),
    "notnull": lambda _, given: Value(text(given[0]).isNotNull(), Kind.TRUTH),
    "greatest": _outermost(">"),
    "least": _outermost("<"),
    "strlen": lambda _, given: Value(f.length(text(given[0])).cast("bigint"), Kind.LONG),
    "lower": _on_text(f.lower),
    "upper": _on_text(f.upper),
    "reverse": _on_text(f.reverse),
    "concat": _on_text(f.concat),
    "replace": _on_text(f.replace),
    "trim": _trimmed(f.trim),
    "ltrim": _trimmed(f.ltrim),
    "rtrim": _trimmed(f.rtrim),
    "lpad": _padded(f.lpad),
    "rpad": _padded(f.rpad),
    "substring": _substring,
    "strpos": _position,
    "repeat": _repeat,
    "contains_string": _on_text(f.contains, Kind.TRUTH),
    "icontains_string": lambda _, given: Value(
        f.contains(f.lower(text(given[0])), f.lower(text(given[1]))), Kind.TRUTH
    ),
    "like": lambda node, given: Value(
        f.like(text(given[0]), f.lit(written_like(node))), Kind.TRUTH
    ),
    "regexp_like": lambda node, given: Value(
        f.regexp_like(text(given[0]), f.lit(written_regex(node))), Kind.TRUTH
    ),
    "regexp_extract": _extracted,
    "json_value": _json_value,
    "timestamp": _parsed_time,
    "timestamp_parse": _parsed_time,
    "timestamp_format": _formatted_time,
    "timestamp_floor": _floor,
    "timestamp_ceil": _ceil,
    "timestamp_shift": _shift,
    "timestamp_extract": _part_of_time,
}
