"""The variable pool: what tasks put out for those downstream of them. Pure.

A *variable* is a value with the moment at which its task ended. A task is given the variables of
all that is upstream of it; of equal names the one that was put out last counts (specification
§9.7). A run in which no task puts anything out pays nothing for this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias

from common.params import Property, properties_json


@dataclass(frozen=True, slots=True, order=True)
class Variable:
    """A value that a task put out; `place`, its task's in the DAG, decides between equal times."""

    at: datetime
    place: int
    value: str


Variables: TypeAlias = Mapping[str, Variable]

NOTHING: Variables = MappingProxyType({})


def put_out(var_pool: str | None, *, at: datetime | None, place: int) -> Variables:
    """The variables in an attempt's row. One that can't be read holds none, then as later."""
    if not var_pool or at is None:
        return NOTHING
    try:
        properties = json.loads(var_pool)
    except (ValueError, RecursionError):
        return NOTHING
    if not isinstance(properties, list):
        return NOTHING
    return {
        each["prop"]: Variable(at, place, _text(each.get("value")))
        for each in properties
        if isinstance(each, dict) and isinstance(each.get("prop"), str)
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def merged(sources: Iterable[Variables]) -> Variables:
    """All variables of these; of equal names the latest."""
    filled = [source for source in sources if source]
    if not filled:
        return NOTHING
    if len(filled) == 1:
        return filled[0]
    result = dict(filled[0])
    for source in filled[1:]:
        for name, variable in source.items():
            known = result.get(name)
            if known is None or known < variable:
                result[name] = variable
    return result


LIMIT_BYTES = 1_048_576
"""What a task may be given: without a limit, each of a long chain would hand on what all before it
have put out, as text in a row of its own."""


def too_much(variables: Variables) -> str | None:
    """Why these can't be handed on; None if they can. Counted as characters, roughly bytes."""
    size = sum(len(name) + len(variable.value) for name, variable in variables.items())
    if size <= LIMIT_BYTES:
        return None
    return (
        f"the tasks upstream have put out {len(variables):,} parameters of {size:,} characters in"
        f" all; a task is given {LIMIT_BYTES:,} at most"
    )


def values_of(variables: Variables) -> dict[str, str]:
    """Names and values alone, in order of name."""
    return {name: variables[name].value for name in sorted(variables)}


def properties_of(values: Mapping[str, str]) -> str | None:
    """As it stands in rows: a JSON list of properties; None for nothing."""
    if not values:
        return None
    return properties_json(Property(prop=name, value=value) for name, value in values.items())
