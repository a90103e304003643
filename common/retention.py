"""Decides on the runs that retention keeps in spite of their age, and on the size of its batches.

Pure. A *need* names runs that a DEPENDENT task may still ask about; `common.store.retention` reads
the waits that have needs, and deletes nothing that one covers. `common.purging` carries a purge
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from common.model.asked_items import asked_items
from common.model.depend_items import DependItem
from common.model.reach import Target, resolve

# The greatest distance of an interval's ends from the moment, by cycle, with a day to spare for
# zones; `common.depend_intervals` cuts them.
_REACH: Final = {
    "hour": (timedelta(days=3), timedelta(days=2)),
    "day": (timedelta(days=9), timedelta(days=2)),
    "week": (timedelta(days=15), timedelta(days=8)),
    "month": (timedelta(days=64), timedelta(days=33)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A definition's JSON with DEPENDENT tasks that wait at moments from `first` to `last`.

    `project_id` is None if the definition was deleted. `named` are the definitions that it reaches
    by the names in its JSON.
    """

    document: str
    first: datetime
    last: datetime
    project_id: int | None = None
    named: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The runs of one definition for the times from `start` to `end`."""

    definition_id: int
    start: datetime
    end: datetime

    def covers(self, definition_id: int, moment: datetime) -> bool:
        """Return True if a run of this definition for this moment is needed."""
        return self.definition_id == definition_id and self.start <= moment <= self.end


def needs_of(waits: Iterable[Wait]) -> tuple[Need, ...]:
    """Return what the DEPENDENT tasks of these definitions may ask about, begun or not.

    More than they do, by some days: a cycle's longest look counts for all of its date values.
    """
    found: dict[Need, None] = {}
    for wait in waits:
        for item in asked_items(wait.document):
            reach = _REACH.get(item.cycle)
            number = _definition_of(item, wait)
            if reach is None or number is None:
                continue
            need = Need(
                definition_id=number,
                start=_shifted(wait.first, -reach[0]),
                end=_shifted(wait.last, reach[1]),
            )
            found[need] = None
    return tuple(found)


def _definition_of(item: DependItem, wait: Wait) -> int | None:
    """Return the definition of an item; names are resolved as masters resolve them."""
    if item.definition_id is not None:
        return item.definition_id
    found = resolve(
        [each for each in wait.named if each.name == item.definition_name],
        own_project=wait.project_id or 0,
        project=item.project,
    )
    return found.id if isinstance(found, Target) else None


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The number of rows that one transaction deletes, for it to hold its locks 50 ms at most.

    The time that the last one took decides on the next: half as many after a long one, and then
    more again, but only one by one near the number that took long. Where half as many took as long,
    it is not the rows that take the time, and less than `least` would spare nothing.
    """

    rows: int = 50
    least: int = 25
    most: int = 250
    long: int | None = None
    """The number of rows that took long, the last time that some did."""
    long_took: timedelta = timedelta()

    def after(self, took: timedelta) -> Pace:
        """Return the pace after a transaction that took so long."""
        if took > _LONG:
            return self._slower(took)
        if took >= _SHORT:
            return self
        grown = self.rows + self.rows // 4 + 1
        if self.long is not None and grown > self.long * 3 // 4:
            grown = self.rows + 1
        elif took:
            grown = max(self.rows + 1, min(grown, int(self.rows * (_AIM / took))))
        grown = min(self.most, grown)
        if self.long is not None and grown > self.long:
            return replace(self, rows=grown, long=None, long_took=timedelta())
        return replace(self, rows=grown)

    def _slower(self, took: timedelta) -> Pace:
        fewer = max(1, self.rows // 2)
        if self.long is not None and self.rows < self.long and took > self.long_took * 3 / 4:
            # Fewer did not help.
            return replace(self, rows=max(fewer, min(self.least, self.most)))
        return replace(self, rows=fewer, long=self.rows, long_took=took)


class Step(Enum):
    """The kinds of transactions of a purge; a row of one takes longer than of another."""

    MARK = "mark"
    ATTEMPTS = "attempts"
    INSTANCES = "instances"
    HISTORY = "history"


_LONG: Final = timedelta(milliseconds=40)
_AIM: Final = timedelta(milliseconds=25)
_SHORT: Final = timedelta(milliseconds=20)
