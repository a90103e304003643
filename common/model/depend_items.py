"""The items of a DEPENDENT: what is awaited, and for which time.

Pure. An item is about the runs of another definition, or about a dataset: then it waits until its
intervals are *complete*, so that no row will be added to them any more. Both name their intervals
by a cycle and a date value (contract §10.2); `common.depend_intervals` cuts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from common.model.lock_needs import is_dataset_name
from common.model.streams.periods import PeriodError, read_duration

ALL_TASKS: Final = "ALL"
LONGEST_LATENESS: Final = timedelta(days=366)

DATE_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "hour": ("currentHour", "last1Hour", "last2Hours", "last3Hours", "last24Hours"),
    "day": ("today", "last1Days", "last2Days", "last3Days", "last7Days"),
    "week": (
        "thisWeek",
        "lastWeek",
        "lastMonday",
        "lastTuesday",
        "lastWednesday",
        "lastThursday",
        "lastFriday",
        "lastSaturday",
        "lastSunday",
    ),
    "month": (
        "thisMonth",
        "thisMonthBegin",
        "thisMonthEnd",
        "lastMonth",
        "lastMonthBegin",
        "lastMonthEnd",
    ),
}
"""The date values of each cycle (contract §10.2)."""

_EMPTY: Final = (None, "")
_OF_DEFINITIONS: Final = ("definitionId", "definitionName", "depTasks")


@dataclass(frozen=True, slots=True, kw_only=True)
class DependItem:
    """A definition, or one `task` of it, that must have succeeded in each interval.

    With `any_interval` one interval is enough: an upstream that runs weekly has no run on the
    other six days. It is Orcaflow's own key, `"intervals": "ANY"`; the default is `EVERY`.
    """

    definition_id: int | None
    definition_name: str | None
    project_id: int | None
    task: str | None
    cycle: str
    date_value: str
    any_interval: bool = False
    project: str | int | None = None
    """The project that the item gives with the name of the definition."""

    @property
    def key(self) -> str:
        """`<definition>-<depTasks>-<cycle>-<dateValue>`, as the log and the user see it."""
        definition = self.definition_name if self.definition_id is None else self.definition_id
        task = ALL_TASKS if self.task is None else self.task
        return f"{definition}-{task}-{self.cycle}-{self.date_value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetItem:
    """A dataset whose intervals must be complete.

    Its stream brings no row more than `lateness` behind a later one of its partition. With
    `idle_after`, a partition in which nothing was left to read for so long is not waited for.
    """

    dataset: str
    cycle: str
    date_value: str
    any_interval: bool = False
    lateness: timedelta = timedelta()
    idle_after: timedelta | None = None

    @property
    def key(self) -> str:
        """`<dataset>-<cycle>-<dateValue>`, as the log and the user see it."""
        return f"{self.dataset}-{self.cycle}-{self.date_value}"


Item: TypeAlias = DependItem | DatasetItem
Mistake: TypeAlias = Callable[[str, str], None]
"""Told the key of a mistake, and what is wrong there."""


def read_dates(item: Mapping[str, Any], key: str, mistake: Mistake) -> tuple[str, str, bool] | None:
    """Read `cycle`, `dateValue`, and `intervals`: True if any of them is enough."""
    cycle, date_value = item.get("cycle"), item.get("dateValue")
    if not isinstance(cycle, str) or cycle not in DATE_VALUES:
        mistake(f"{key}.cycle", f"must be one of {', '.join(DATE_VALUES)}, not {shown(cycle)}")
        return None
    if not isinstance(date_value, str) or date_value not in DATE_VALUES[cycle]:
        mistake(
            f"{key}.dateValue",
            f"the cycle {cycle} has {', '.join(DATE_VALUES[cycle])}, not {shown(date_value)}",
        )
        return None
    intervals = item.get("intervals") or "EVERY"
    if intervals not in ("EVERY", "ANY"):
        mistake(f"{key}.intervals", f"must be EVERY or ANY, not {shown(intervals)}")
    return cycle, date_value, intervals == "ANY"


def is_about_dataset(item: Mapping[str, Any]) -> bool:
    """Return True if an item, as it is written, is about a dataset."""
    return item.get("dataset") not in _EMPTY


def read_dataset_item(item: Mapping[str, Any], key: str, mistake: Mistake) -> DatasetItem | None:
    """Read an item that names a dataset."""
    name = item["dataset"]
    if not isinstance(name, str) or not is_dataset_name(name):
        mistake(
            f"{key}.dataset",
            "must be a name of letters, digits, _, - and ., 128 at most, and the first no - or .,"
            f" not {shown(name)}",
        )
        name = ""
    for other in _OF_DEFINITIONS:
        if item.get(other) not in _EMPTY:
            mistake(f"{key}.{other}", "stands beside dataset; an item is about one of the two")
    lateness = _duration(item, "lateness", key, mistake, least=timedelta())
    idle_after = _duration(item, "idleAfter", key, mistake, least=timedelta(seconds=1))
    dates = read_dates(item, key, mistake)
    if dates is None or not name:
        return None
    cycle, date_value, any_interval = dates
    return DatasetItem(
        dataset=name,
        cycle=cycle,
        date_value=date_value,
        any_interval=any_interval,
        lateness=lateness or timedelta(),
        idle_after=idle_after,
    )


def _duration(
    item: Mapping[str, Any], name: str, key: str, mistake: Mistake, *, least: timedelta
) -> timedelta | None:
    text = item.get(name)
    if text in _EMPTY:
        return None
    try:
        if not isinstance(text, str):
            raise PeriodError("write a text such as PT10M")
        length = read_duration(text)
        if not least <= length <= LONGEST_LATENESS:
            raise PeriodError(
                f"it must be from PT{least.total_seconds():g}S to P{LONGEST_LATENESS.days}D"
            )
    except PeriodError as error:
        mistake(f"{key}.{name}", f"{shown(text)} can't be taken: {error}")
        return None
    return length


def shown(value: object) -> str:
    """Return a value for a message, bounded. One with parts, which may be deep, is only named."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value[:80]) if isinstance(value, str) else f"{value!r:.80}"
