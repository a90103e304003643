"""The rule that gives a complement's date its business date, and the runs that it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DateRule(StrEnum):
    """The meaning of a date that a complement names."""

    SCHEDULE_TIME = "schedule_time"
    """The schedule time of its run, as the time of a fire is: the day before is processed."""
    BUSINESS_DATE = "business_date"
    """The business date of its run, as in DolphinScheduler 1.2 to 2.x."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The moments, from `start` until before `end`, of the runs for one date of a complement."""

    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


def rule_of(schedule_time: datetime | None, business_time: datetime | None) -> DateRule | None:
    """Return the rule that a run follows, by its row; None without a schedule time."""
    if schedule_time is None:
        return None
    return DateRule.SCHEDULE_TIME if business_time is None else DateRule.BUSINESS_DATE
