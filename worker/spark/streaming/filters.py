"""Turns filters of a `transformSpec` into conditions of Spark.

A filter passes a row or does not: where a value is missing, a comparison does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as f

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
from worker.spark.streaming.values import Kind, Value, real, text


def columns_of(condition: Filter) -> frozenset[str]:
    """Return the names of the columns that a filter reads."""
    match condition:
        case Selector() | In() | Bound() | Matches() | Like():
            return frozenset({condition.column})
        case Every() | Some():
            return frozenset().union(*map(columns_of, condition.filters))
        case Not():
            return columns_of(condition.filter)


def passes(condition: Filter, row: Callable[[str], Value]) -> Column:
    """Return the condition of a filter, never null; `row` returns a column's value by its name."""
    match condition:
        case Selector():
            return _equals(row(condition.column), condition.value)
        case In():
            value = row(condition.column)
            return reduce(or_, (_equals(value, each) for each in condition.values))
        case Bound():
            return _within(row(condition.column), condition)
        case Matches():
            found = f.regexp_like(text(row(condition.column)), f.lit(condition.pattern))
            return f.coalesce(found, f.lit(False))
        case Like():
            return f.coalesce(
                f.like(text(row(condition.column)), f.lit(condition.pattern)), f.lit(False)
            )
        case Every():
            return reduce(and_, (passes(each, row) for each in condition.filters), f.lit(True))
        case Some():
            return reduce(or_, (passes(each, row) for each in condition.filters), f.lit(False))
        case Not():
            return ~passes(condition.filter, row)


def _equals(value: Value, wanted: str | None) -> Column:
    if wanted is None:
        return text(value).isNull()
    if value.kind is Kind.DOUBLE:
        # 1 is 1.0, whatever way a number is written.
        return f.coalesce(real(value) == f.lit(wanted).try_cast("double"), f.lit(False))
    return f.coalesce(text(value) == wanted, f.lit(False))


def _within(value: Value, bound: Bound) -> Column:
    subject = real(value) if bound.numeric else text(value)

    def edge(written: str) -> Column:
        return f.lit(float(written)) if bound.numeric else f.lit(written)

    found = subject.isNotNull()
    if bound.lower is not None:
        lower = edge(bound.lower)
        found &= subject > lower if bound.lower_strict else subject >= lower
    if bound.upper is not None:
        upper = edge(bound.upper)
        found &= subject < upper if bound.upper_strict else subject <= upper
    return f.coalesce(found, f.lit(False))
