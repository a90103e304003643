"""The variable pool: the output of tasks for those downstream of them. Pure.

A *variable* is a value with the moment at which its task ended. A task receives the variables of
all its upstream; of equal names the latest counts (contract §9.7). A run without output pays
nothing for this.
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
    """An output value of a task; `place`, its task's in the DAG, decides between equal times."""

    at: datetime
    place: int
    value: str
    secret: bool = False


Variables: TypeAlias = Mapping[str, Variable]

NOTHING: Variables = MappingProxyType({})


def put_out(var_pool: str | None, *, at: datetime | None, place: int) -> Variables:
    """Read the variables in an attempt's row. An unreadable row has none, now and later."""
    if not var_pool or at is None:
        return NOTHING
    try:
        properties = json.loads(var_pool)
    except (ValueError, RecursionError):
        return NOTHING
    if not isinstance(properties, list):
        return NOTHING
    return {
        each["prop"]: Variable(at, place, _text(each.get("value")), each.get("secret") is True)
        for each in properties
        if isinstance(each, dict) and isinstance(each.get("prop"), str)
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def merged(sources: Iterable[Variables]) -> Variables:
    """Merge all variables; of equal names the latest wins."""
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
"""The largest input of a task. Without it, each task of a long chain would repeat in its row all
output before it."""


def too_much(variables: Variables) -> str | None:
    """Return the reason why these exceed the limit, or None. Counts characters, roughly bytes."""
    if not variables:
        return None
    size = sum(len(name) + len(variable.value) for name, variable in variables.items())
    if size <= LIMIT_BYTES:
        return None
    return (
        f"the tasks upstream have put out {len(variables):,} parameters of {size:,} characters in"
        f" all; a task is given {LIMIT_BYTES:,} at most"
    )


def values_of(variables: Variables) -> dict[str, str]:
    """Return names and values alone, in order of name."""
    if not variables:
        return {}
    return {name: variables[name].value for name in sorted(variables)}


def properties_of(variables: Variables) -> str | None:
    """Return variables as a JSON list of properties for a row; None without variables."""
    if not variables:
        return None
    return properties_json(
        Property(prop=name, value=variables[name].value, secret=variables[name].secret)
        for name in sorted(variables)
    )
