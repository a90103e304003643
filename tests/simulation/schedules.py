"""The schedules of a seed, and a second opinion on their fires and the outcome of each.

Shares no line with `common.cron` and `common.firing`: the lines drawn here fire at even distances,
in zones without summer time, so that plain arithmetic gives their fires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from tests.memory.store import MemoryDatabase, ScheduleRecord
from tests.simulation.definitions import Drawn
from tests.simulation.faults import Options
from tests.simulation.virtual_clock import START

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)

DENSE = ("0/10 * * * * ?", "0/20 * * * * ? *", "5/30 * * * * ?")
SPARSE = ("0 * * * * ? *", "0 0/5 * * * ?", "30 5 * * * ?")
SPOILT = "0 0 0 31 2 ?"
"""A line that never fires."""
OTHER_ZONE = "Asia/Kolkata"

_EVERY = {
    "0/10 * * * * ?": (10, 0),
    "0/20 * * * * ? *": (20, 0),
    "5/30 * * * * ?": (30, 5),
    "0 * * * * ? *": (60, 0),
    "0 0/5 * * * ?": (300, 0),
    "30 5 * * * ?": (3600, 330),
    "0 0 * * * ?": (3600, 0),
    "0 30 4 * * ?": (86_400, 4 * 3600 + 1800),
}
"""Seconds from one fire to the next, and from midnight to the first of a day."""
AHEAD: dict[str | None, timedelta] = {
    None: timedelta(),
    "UTC": timedelta(),
    OTHER_ZONE: timedelta(hours=5, minutes=30),
}


def draw_schedules(
    random: Random,
    options: Options,
    database: MemoryDatabase,
    definitions: tuple[Drawn, ...],
    *,
    last: timedelta,
) -> None:
    """Write a seed's schedules; their windows end, so that all schedules come to rest."""
    if not options.schedules:
        return
    lines: tuple[str, ...] = DENSE
    if options.outage or options.clock_jumps:
        # In some hours a dense line has thousands of fires.
        lines = SPARSE if options.outage else (DENSE[1], *SPARSE)
    for _ in range(random.randint(1, options.schedules)):
        end = options.outage + last * random.uniform(0.4, 1.1)
        database.insert(
            database.schedules,
            process_definition_id=random.choice(definitions).id,
            crontab=random.choice((*lines, *lines, SPOILT)),
            timezone_id=random.choice(tuple(AHEAD)),
            start_time=START + random.choice((-_DAY, timedelta(seconds=7))),
            end_time=START + end,
            misfire_policy=random.choice(("skip", "fire_once", "fire_all")),
            misfire_limit=random.choice((1, 2, 3)),
            deadline=random.choice((0, 0, 40, 1800)),
            execution_type=random.choice((None, None, 0, 1, 2)),
            release_state=random.choice((1, 1, 1, 0)),
            warning_type=random.choice((0, 3)),
            counted_from=START,
        )


# Fires


def is_understood(crontab: str) -> bool:
    """True if a line has any fires."""
    return crontab in _EVERY


def fires(row: ScheduleRecord, first: datetime, last: datetime) -> Iterator[datetime]:
    """The fires of a schedule from `first` to `last`, both included."""
    period, offset = _EVERY[row.crontab]
    ahead = AHEAD[row.timezone_id]
    first, last = max(first, row.start_time), min(last, row.end_time)
    midnight = datetime(2025, 12, 1, tzinfo=UTC) - ahead + timedelta(seconds=offset)
    number = -((midnight - first) // timedelta(seconds=period))
    moment = midnight + number * timedelta(seconds=period)
    while moment <= last:
        if moment >= first:
            yield moment
        moment += timedelta(seconds=period)


def first_fire(row: ScheduleRecord, after: datetime) -> datetime | None:
    """The first fire of a schedule after this moment."""
    period, _ = _EVERY[row.crontab]
    later = max(after, row.start_time - _SECOND) + timedelta(seconds=period + 1)
    found = (fire for fire in fires(row, after, later) if fire > after)
    return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The outcomes of fires that are planned in one pass."""

    row: ScheduleRecord
    runnable: bool
    now: datetime
    threshold: timedelta

    def of(self, fire: datetime) -> str:
        """The outcome of one due fire."""
        late = self.now - fire
        if self.row.deadline and late > timedelta(seconds=self.row.deadline):
            return "missed"
        if not self.runnable:
            return "skipped"
        if late <= self.threshold:
            return "fired"
        newer = self._newer_misfires(fire)
        match self.row.misfire_policy:
            case "skip":
                return "skipped"
            case "fire_once":
                return "coalesced" if newer else "fired"
            case _:
                return "missed" if newer >= self.row.misfire_limit else "fired"

    def _newer_misfires(self, fire: datetime) -> int:
        """The number of misfires after this one."""
        all_late = fires(self.row, fire, self.now)
        return sum(fire < other and self.now - other > self.threshold for other in all_late)
