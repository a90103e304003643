"""The map of a complement: its dates by month, day or hour, the state of each in a cell. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Final

from api.console.looks import Look, of_date

CELL: Final = 18
_MOST_IN_A_LINE: Final = 62
_PREFIXES: Final = (7, 10, 13)
"""The lengths of a month, a day and an hour in `2013-01-02 03:00:00`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Date:
    """A date as the clock of its complement shows it; `run` is None before it has one."""

    text: str
    state: str
    run: int | None
    span: timedelta | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A date at its place in its line."""

    date: Date
    look: Look
    x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The dates of a month, a day or an hour."""

    label: str
    cells: tuple[Cell, ...]
    width: int


def lines_of(dates: Sequence[Date]) -> tuple[Line, ...]:
    """Lay out dates in their order, by the longest spans of which none has too many."""
    groups: list[tuple[str, list[Date]]] = []
    for prefix in _PREFIXES:
        by_label = groupby(dates, partial(_label, prefix))
        groups = [(label, list(found)) for label, found in by_label]
        if all(len(found) <= _MOST_IN_A_LINE for _, found in groups):
            break
    return tuple(
        Line(
            label=label,
            cells=tuple(
                Cell(date=each, look=of_date(each.state), x=place * CELL)
                for place, each in enumerate(found)
            ),
            width=len(found) * CELL,
        )
        for label, found in groups
    )


def _label(length: int, date: Date) -> str:
    return date.text[:length]
