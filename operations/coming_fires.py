"""The fires to come of a timetable, exactly as they will fire, marked with the clock's jumps.

Fires come from the very `Timetable` that masters fire by; this only marks them. A *clock change* is
an instant at which the wall clock of a zone jumps. Nothing here reads a clock or a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from zoneinfo import ZoneInfo

from common.cron import MissingTime, RepeatedTime, Timetable
from operations.texts import duration

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
# Without as many fires as were asked for, clock changes are looked for this far.
_HORIZON = timedelta(days=366 * 20)
# No cron line fires before; days before and after these can still be shown in any zone.
_EARLIEST = datetime(1969, 12, 1, tzinfo=UTC)
_LATEST = datetime(9999, 12, 20, tzinfo=UTC)
_SHOWN = 5
# A wall differs from UTC by less than a day, and jumps by a day at most.
_NEAR = timedelta(days=2)


class Mark(StrEnum):
    """The effect of a clock change on one fire."""

    SHIFTED = "shifted"
    """Its wall time is skipped by the clock; it fires as much later as the clock jumps."""
    FIRST = "first"
    """The clock shows its wall time twice; this is the first."""
    SECOND = "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingFire:
    """A fire to come. `local` is its time on the wall clock, `meant` the cron line's wall time."""

    fire_time: datetime
    local: datetime
    meant: datetime
    mark: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A jump of the clock that meets `number` wall times of the cron line, the first few of them
    in `wall_times`.

    A jump forward skips them, one backward shows them twice. `before` and `after` are the offsets
    from UTC.
    """

    at: datetime
    before: timedelta
    after: timedelta
    wall_times: tuple[datetime, ...]
    number: int

    @property
    def is_forward(self) -> bool:
        return self.after > self.before


def coming(timetable: Timetable, after: datetime) -> Iterator[ComingFire]:
    """The fires strictly after an instant, computed as they are taken."""
    for fire_time in timetable.between(after + timedelta(microseconds=1), _LATEST):
        yield _marked(timetable, fire_time)


def clock_changes(
    timetable: Timetable, after: datetime, last: datetime | None
) -> list[ClockChange]:
    """The jumps after an instant that meet wall times of the cron line, up to `last`.

    `last` None: there are no more fires, and the search goes up to the end of the window.
    """
    first = max(after, timetable.first or after, _EARLIEST)
    if last is None:
        last = min(timetable.last or _LATEST, first + min(_HORIZON, _LATEST - min(first, _LATEST)))
    found = []
    for at, before, behind in _jumps_near_fires(timetable, first, min(last, _LATEST)):
        lower, upper = sorted((at + before, at + behind))
        walls = _walls(timetable).between(lower, upper - _SECOND)
        shown = [wall.replace(tzinfo=None) for wall in islice(walls, _SHOWN)]
        if shown:
            found.append(
                ClockChange(
                    at=at,
                    before=before,
                    after=behind,
                    wall_times=tuple(shown),
                    number=len(shown) + sum(1 for _ in walls),
                )
            )
    return found


def effect_of_change(change: ClockChange, timetable: Timetable) -> str:
    """The effect of a clock change on the fires, as a sentence for people."""
    before, after = (
        (change.at + offset).replace(tzinfo=None) for offset in (change.before, change.after)
    )
    # A zone may skip a whole day.
    until = f"{after:%H:%M:%S}" if before.date() == after.date() else f"{after}"
    walls = ", ".join(f"{wall:%H:%M:%S}" for wall in change.wall_times)
    more = change.number - len(change.wall_times)
    walls += f" and {more} more" if more else ""
    many = change.number > 1
    if change.is_forward:
        jump = f"{before}: the clock jumps to {until}"
        if timetable.missing is MissingTime.SKIP:
            return f"{jump}; {walls} {'do' if many else 'does'} not fire on that day"
        later = duration(change.after - change.before)
        return f"{jump}; {walls} {'fire' if many else 'fires'} {later} later"
    jump = f"{before}: the clock goes back to {until}"
    times = {
        RepeatedTime.FIRST: "the first time only",
        RepeatedTime.SECOND: "the second time only",
        RepeatedTime.BOTH: "both times",
    }[timetable.repeated]
    verbs = "are shown twice, and fire" if many else "is shown twice, and fires"
    return f"{jump}; {walls} {verbs} {times}"


def effect_on_fire(fire: ComingFire) -> str | None:
    """The effect of the clock on a fire, in a few words; None without one."""
    match fire.mark:
        case None:
            return None
        case Mark.SHIFTED:
            return f"shifted: the clock skips {fire.meant:%Y-%m-%d %H:%M:%S}"
        case Mark.FIRST:
            return f"the first {fire.meant:%H:%M:%S} of two"
        case Mark.SECOND:
            return f"the second {fire.meant:%H:%M:%S} of two"


def _marked(timetable: Timetable, fire_time: datetime) -> ComingFire:
    local = fire_time.astimezone(timetable.zone)
    wall = local.replace(tzinfo=None)
    if local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset():
        mark = Mark.SECOND if local.fold else Mark.FIRST
        return ComingFire(fire_time=fire_time, local=local, meant=wall, mark=mark)
    as_utc = wall.replace(tzinfo=UTC)
    if next(_walls(timetable).between(as_utc, as_utc), None) is not None:
        return ComingFire(fire_time=fire_time, local=local, meant=wall)
    # The wall time is that of the offset before the jump, which was a day ago at most.
    meant = (
        wall
        - _offset(timetable.zone, fire_time)
        + _offset(timetable.zone, fire_time - _DAY - _SECOND)
    )
    return ComingFire(fire_time=fire_time, local=local, meant=meant, mark=Mark.SHIFTED)


def _walls(timetable: Timetable) -> Timetable:
    """The wall times of the cron line, given as if the wall showed UTC, where no clock jumps."""
    return replace(timetable, zone=ZoneInfo("UTC"), first=None, last=None)


def _jumps_near_fires(
    timetable: Timetable, first: datetime, last: datetime
) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """The jumps from `first` to `last` around days that the cron line means: few in many years."""
    walls = _walls(timetable)
    passed = first
    wall = walls.next(first - _NEAR)
    while wall is not None and wall <= last + _NEAR:
        midnight = wall.replace(hour=0, minute=0, second=0)
        begin, end = max(passed, midnight - _NEAR), min(last, midnight + _DAY + _NEAR)
        if begin < end:
            yield from _jumps(timetable.zone, begin, end)
            passed = end
        wall = walls.next(midnight + _DAY - _SECOND)


def _jumps(
    zone: ZoneInfo, first: datetime, last: datetime
) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """Each instant from `first` to `last` at which the offset changes, with both offsets."""
    known, offset = first.astimezone(UTC).replace(microsecond=0), _offset(zone, first)
    while known < last:
        # Jumps of a zone lie days apart, so that none is passed over.
        probe = min(known + _DAY, last)
        there = _offset(zone, probe)
        if there != offset:
            low, high = known, probe
            while high - low > _SECOND:
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            yield high, offset, there
            offset = there
        known = probe


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()
