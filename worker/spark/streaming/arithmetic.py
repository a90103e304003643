"""Operators of expressions on columns: arithmetic, comparisons, logic.

Whole numbers stay whole, as in Druid: `7 / 2` is 3. Two values of kind ANY count as whole numbers
if both look like ones, else as numbers; `+` and comparisons take them as texts if one is none.
A division by zero, and a result that is too large for a long, is null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from worker.spark.streaming.values import NUMBERS, Kind, Value, exact_whole, real, text, truth

_COMPARISONS: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def binary(sign: str, left: Value, right: Value) -> Value:
    """Return the value of an operator with two operands."""
    if sign in _COMPARISONS:
        return Value(compared(sign, left, right), Kind.TRUTH)
    if sign == "&&":
        return Value(truth(left) & truth(right), Kind.TRUTH)
    if sign == "||":
        return Value(truth(left) | truth(right), Kind.TRUTH)
    return computed(sign, left, right)


def negative(value: Value) -> Value:
    """Return the value of the sign `-` before an operand."""
    return computed("-", Value(f.lit(0).cast("bigint"), Kind.LONG), value)


def computed(sign: str, left: Value, right: Value) -> Value:
    """Return a sum, difference, product, quotient, remainder or power."""
    kinds = {left.kind, right.kind}
    if sign == "+" and Kind.TEXT in kinds and not kinds & NUMBERS:
        return Value(f.concat(text(left), text(right)), Kind.TEXT)
    if kinds <= {Kind.LONG, Kind.TRUTH}:
        return Value(_of_wholes(sign, exact_whole(left), exact_whole(right)), Kind.LONG)
    number = _of_reals(sign, real(left), real(right))
    if kinds & {Kind.DOUBLE, Kind.TEXT}:
        return Value(number, Kind.DOUBLE)
    found = [
        _of_wholes(sign, exact_whole(left), exact_whole(right)).cast("string"),
        number.cast("string"),
    ]
    if sign == "+" and kinds == {Kind.ANY}:
        found.append(f.concat(text(left), text(right)))
    return Value(f.coalesce(*found), Kind.ANY)


def compared(sign: str, left: Value, right: Value) -> Column:
    """Return a comparison, null if one side is."""
    compare = _COMPARISONS[sign]
    kinds = {left.kind, right.kind}
    if Kind.TEXT in kinds and not kinds & NUMBERS:
        return compare(text(left), text(right))
    if kinds <= {Kind.LONG, Kind.TRUTH}:
        return compare(exact_whole(left), exact_whole(right))
    numbers = compare(real(left), real(right))
    if Kind.DOUBLE in kinds:
        return numbers
    wholes = compare(exact_whole(left), exact_whole(right))
    if kinds == {Kind.ANY}:
        return f.coalesce(wholes, numbers, compare(text(left), text(right)))
    return f.coalesce(wholes, numbers)


def _of_wholes(sign: str, left: Column, right: Column) -> Column:
    match sign:
        case "+":
            return f.try_add(left, right)
        case "-":
            return f.try_subtract(left, right)
        case "*":
            return f.try_multiply(left, right)
        case "/":
            # The least long divided by -1 is no long, which would be an error.
            negated = f.try_subtract(f.lit(0).cast("bigint"), left)
            quotient = f.call_function("div", left, f.nullif(right, f.lit(0)))
            return f.when(right == -1, negated).otherwise(quotient)
        case "%":
            return f.try_mod(left, right)
        case _:
            return f.pow(left, right).try_cast("bigint")


def _of_reals(sign: str, left: Column, right: Column) -> Column:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return f.try_divide(left, right)
        case "%":
            return f.try_mod(left, right)
        case _:
            return f.pow(left, right)
