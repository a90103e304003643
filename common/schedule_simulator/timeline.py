"""Plays a stage: the beginning and the end of each run, waits, overlaps and discards. Pure.

Instants are whole microseconds since 1970 in here, which is quick and exact. A run *is live* from
the moment its fire is carried out until it ends; it is *serial* while it waits for the runs of its
definition before it, then *queued* while it waits for slots, then *going*.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from statistics import median_low
from typing import Final

from common.firing import ScheduleFaultError, timetable_of
from common.model.schedules import FireOutcome
from common.model.states import ExecutionType
from common.schedule_simulator.clock_changes import ClockChange, clock_changes
from common.schedule_simulator.findings import problems_of
from common.schedule_simulator.fires import (
    EPOCH,
    MICROSECOND,
    Play,
    Put,
    Stage,
    instant_of,
    outages_of,
    plays,
)
from common.schedule_simulator.report import ClusterReport, PoolReport, ScheduleReport, Simulation

_HOUR: Final = timedelta(hours=1) // MICROSECOND
_UNLIMITED: Final = 1 << 60
_WORKERS: Final = 0
"""The place of the worker slots among the resources; pools follow."""


class _State(Enum):
    SERIAL = "serial"
    QUEUED = "queued"
    GOING = "going"
    ENDED = "ended"
    STOPPED = "stopped"


class _Backlog:
    """The number of runs that wait, and its growth.

    The minimum of each quarter of the stage distinguishes a backlog that passes from one that
    grows: after the first quarter it must never come down to the former minimum again.
    """

    __slots__ = ("_begin", "_least", "_quarter", "most", "now")

    def __init__(self, begin: int, end: int) -> None:
        self.now = 0
        self.most = 0
        self._begin = begin
        self._quarter = max(1, (end - begin + 3) // 4)
        self._least = [0]

    def change(self, at: int, by: int) -> None:
        self._pass(at)
        self.now += by
        self.most = max(self.most, self.now)
        self._least[-1] = min(self._least[-1], self.now)

    def grows(self, end: int) -> bool:
        """True if each quarter but the first has a higher minimum than the one before it."""
        self._pass(end - 1)
        least = [*self._least, *[self.now] * (4 - len(self._least))]
        return least[0] <= least[1] < least[2] < least[3]

    def _pass(self, at: int) -> None:
        while len(self._least) <= min(3, (at - self._begin) // self._quarter):
            self._least.append(self.now)


class _Group:
    """The runs of one definition that are live."""

    __slots__ = ("duration", "going", "live", "need", "serial", "slots")

    def __init__(self, duration: int, need: Mapping[int, int]) -> None:
        self.duration = duration
        self.need = need
        self.slots = self.need.get(_WORKERS, 0)
        self.going = 0
        self.live: dict[int, _Run] = {}
        self.serial: deque[_Run] = deque()


class _Tally:
    """The counters of one schedule."""

    __slots__ = (
        "backlog",
        "discarded",
        "ended",
        "going",
        "most_at_once",
        "overlaps",
        "stopped",
        "waiting",
        "waits",
    )

    def __init__(self, begin: int, end: int) -> None:
        self.backlog = _Backlog(begin, end)
        self.discarded = self.ended = self.going = self.stopped = self.waiting = 0
        self.overlaps = self.most_at_once = 0
        self.waits: list[int] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The group, the counters and the execution type of a schedule on the stage."""

    group: _Group
    tally: _Tally
    execution_type: ExecutionType


class _Run:
    __slots__ = ("at", "group", "key", "number", "place", "state", "tally")

    def __init__(self, number: int, at: int, key: tuple[int, int, int], part: _Part) -> None:
        self.number = number
        self.at = at
        self.key = key
        self.group = part.group
        self.tally = part.tally
        self.state = _State.SERIAL
        self.place = -1
        """The resource in whose line it stands while it is queued."""


def _key(run: _Run) -> tuple[int, int, int]:
    return run.key


class _Timeline:
    """The state of a simulation at one instant, moved on by runs that are put."""

    def __init__(
        self, begin: int, end: int, outages: Sequence[tuple[int, int]], sizes: Sequence[int]
    ) -> None:
        self._end = end
        self._outages = outages
        self._outage_begins = [begin for begin, _ in outages]
        self._size = sizes
        self._free = list(sizes)
        self._lines: list[list[tuple[tuple[int, int, int], _Run]]] = [[] for _ in sizes]
        self._freed: list[int] = []
        self._ends: list[tuple[int, int, _Run]] = []
        self._now = begin
        self._wanted = 0
        self._hours: dict[int, int] = {}
        self.backlog = _Backlog(begin, end)
        self.peaks = [0] * len(sizes)
        self.peak_at: int | None = None
        self.peak_wanted = 0

    def play(self, puts: Sequence[Put], parts: Sequence[_Part]) -> None:
        """Begin all runs that are put, in order, and end those that end before the end."""
        for number, (at, priority, fire_time, index) in enumerate(puts):
            part = parts[index]
            self._end_until(at)
            self._pass(at)
            run = _Run(number, at, (priority, fire_time, index), part)
            self._arrive(run, part.execution_type)
        self._end_until(self._end - 1)
        self._pass(self._end)

    def finish(self, groups: Sequence[_Group]) -> None:
        """Count what is still live at the end."""
        for group in groups:
            for run in group.live.values():
                if run.state is _State.GOING:
                    run.tally.going += 1
                else:
                    run.tally.waiting += 1
                    run.tally.waits.append(self._end - run.at)

    def busiest_hour(self) -> tuple[int, float] | None:
        """The hour with the most slots in use, the first of equal ones, and how many on average."""
        if not self._hours:
            return None
        hour, used = max(self._hours.items(), key=lambda each: (each[1], -each[0]))
        return hour * _HOUR, used / _HOUR

    def _end_until(self, at: int) -> None:
        while self._ends and self._ends[0][0] <= at:
            now = self._ends[0][0]
            self._pass(now)
            groups: list[_Group] = []
            # All that ends at one instant has ended before anything begins.
            while self._ends and self._ends[0][0] == now:
                run = heapq.heappop(self._ends)[2]
                if run.state is _State.GOING:
                    run.state = _State.ENDED
                    run.tally.ended += 1
                    self._free_slots(run)
                    groups.append(run.group)
            following = [each for group in groups if (each := self._next_serial(group)) is not None]
            for run in sorted(following, key=_key):
                self._wait(run, -1)
                self._queue(run)
            self._settle()

    def _arrive(self, run: _Run, execution_type: ExecutionType) -> None:
        group = run.group
        if group.live:
            match execution_type:
                case ExecutionType.SERIAL_DISCARD:
                    run.tally.discarded += 1
                    return
                case ExecutionType.SERIAL_PRIORITY:
                    for other in list(group.live.values()):
                        self._stop(other)
                case ExecutionType.SERIAL_WAIT | ExecutionType.PARALLEL:
                    pass
        group.live[run.number] = run
        if execution_type is ExecutionType.PARALLEL or len(group.live) == 1:
            self._queue(run)
        else:
            group.serial.append(run)
            self._wait(run)
        self._settle()

    def _stop(self, run: _Run) -> None:
        state, run.state = run.state, _State.STOPPED
        run.tally.stopped += 1
        if state is _State.GOING:
            self._free_slots(run)
            return
        run.tally.waits.append(self._now - run.at)
        self._wait(run, -1)
        if state is _State.SERIAL:
            run.group.serial.remove(run)
        else:
            self._wanted -= run.group.slots
            # The one behind it may have room.
            self._freed.append(run.place)
        del run.group.live[run.number]

    def _free_slots(self, run: _Run) -> None:
        """Free the slots of a run."""
        for place, number in run.group.need.items():
            self._free[place] += number
            self._freed.append(place)
        self._wanted -= run.group.slots
        run.group.going -= 1
        del run.group.live[run.number]

    def _next_serial(self, group: _Group) -> _Run | None:
        """The first serial run, taken from the line, if no other of its definition is live."""
        if group.serial and len(group.serial) == len(group.live):
            return group.serial.popleft()
        return None

    def _queue(self, run: _Run) -> None:
        run.state = _State.QUEUED
        self._wanted += run.group.slots
        self.peak_wanted = max(self.peak_wanted, self._wanted)
        if not self._try(run):
            self._wait(run)

    def _try(self, run: _Run) -> bool:
        """Begin if all slots are free and nobody before it waits for one of them."""
        for place, number in run.group.need.items():
            first = self._first(place)
            if self._free[place] < number or (first is not None and first.key < run.key):
                run.place = place
                heapq.heappush(self._lines[place], (run.key, run))
                return False
        self._start(run)
        return True

    def _start(self, run: _Run) -> None:
        group, tally = run.group, run.tally
        for place, number in group.need.items():
            self._free[place] -= number
            used = self._size[place] - self._free[place]
            if used > self.peaks[place]:
                self.peaks[place] = used
                if place == _WORKERS:
                    self.peak_at = self._now
        run.state = _State.GOING
        group.going += 1
        if group.going > 1:
            tally.overlaps += 1
        tally.most_at_once = max(tally.most_at_once, group.going)
        tally.waits.append(self._now - run.at)
        heapq.heappush(self._ends, (self._seen(self._now + group.duration), run.number, run))

    def _seen(self, end: int) -> int:
        """The instant at which a master sees an end: at once, or after its outage."""
        at = bisect_right(self._outage_begins, end) - 1
        return max(end, self._outages[at][1]) if at >= 0 else end

    def _settle(self) -> None:
        """Begin the queued runs that have room now, in order."""
        while self._freed:
            place = self._freed.pop(0)
            while (run := self._first(place)) is not None:
                if self._free[place] < run.group.need[place]:
                    break
                heapq.heappop(self._lines[place])
                # If it lacks something else, it waits there from now on, in nobody's way here.
                if self._try(run):
                    self._wait(run, -1)

    def _first(self, place: int) -> _Run | None:
        line = self._lines[place]
        while line and line[0][1].state is not _State.QUEUED:
            heapq.heappop(line)
        return line[0][1] if line else None

    def _wait(self, run: _Run, by: int = 1) -> None:
        run.tally.backlog.change(self._now, by)
        self.backlog.change(self._now, by)

    def _pass(self, to: int) -> None:
        """Let time pass, in which as many slots are in use as now."""
        used = self._size[_WORKERS] - self._free[_WORKERS]
        while self._now < to:
            hour = self._now // _HOUR
            until = min(to, (hour + 1) * _HOUR)
            if used:
                self._hours[hour] = self._hours.get(hour, 0) + used * (until - self._now)
            self._now = until


def simulate(stage: Stage) -> Simulation:
    """Play the stage. Raises `TooManyFiresError` before anything has been played."""
    played = plays(stage)
    begin, end = instant_of(stage.begin), instant_of(stage.end)
    pools = sorted(
        {
            name
            for play in played
            for name in stage.run_costs[play.schedule.process_definition_id].peak.pools
        }
    )
    sizes = [
        _UNLIMITED if stage.slots is None else stage.slots,
        *[stage.pools.get(name, _UNLIMITED) for name in pools],
    ]
    groups = _groups(stage, played, pools, sizes)
    parts = [
        _Part(
            group=groups[play.schedule.process_definition_id],
            tally=_Tally(begin, end),
            execution_type=stage.execution_type_of(play.schedule),
        )
        for play in played
    ]
    timeline = _Timeline(
        begin,
        end,
        [(instant_of(each.begin), instant_of(each.end)) for each in outages_of(stage)],
        sizes,
    )
    timeline.play(sorted(chain.from_iterable(play.puts for play in played)), parts)
    timeline.finish(list(groups.values()))
    schedules = tuple(
        _schedule_report(stage, play, part.tally) for play, part in zip(played, parts, strict=True)
    )
    cluster = _cluster_report(stage, timeline, pools)
    return Simulation(
        begin=stage.begin,
        end=stage.end,
        schedules=schedules,
        cluster=cluster,
        problems=problems_of(stage, schedules, cluster),
    )


def _groups(
    stage: Stage, played: Sequence[Play], pools: Sequence[str], sizes: Sequence[int]
) -> dict[int, _Group]:
    places = {name: place for place, name in enumerate(pools, start=1)}
    groups: dict[int, _Group] = {}
    for play in played:
        definition_id = play.schedule.process_definition_id
        if definition_id not in groups:
            run_cost = stage.run_costs[definition_id]
            wanted = [(_WORKERS, run_cost.peak.slots)]
            wanted += [
                (places[name], run_cost.peak.pools[name]) for name in sorted(run_cost.peak.pools)
            ]
            need = {place: min(number, sizes[place]) for place, number in wanted if number > 0}
            groups[definition_id] = _Group(run_cost.duration // MICROSECOND, need)
    return groups


def _schedule_report(stage: Stage, play: Play, tally: _Tally) -> ScheduleReport:
    waits = sorted(tally.waits)
    return ScheduleReport(
        schedule=play.schedule,
        execution_type=stage.execution_type_of(play.schedule),
        run_cost=stage.run_costs[play.schedule.process_definition_id],
        fires=play.number,
        outcomes={outcome: play.outcomes[outcome] for outcome in FireOutcome},
        undecided=play.undecided,
        late=play.late,
        ended=tally.ended,
        going_on=tally.going,
        stopped=tally.stopped,
        discarded=tally.discarded,
        waiting=tally.waiting,
        overlaps=tally.overlaps,
        most_at_once=tally.most_at_once,
        waited=sum(wait > 0 for wait in waits),
        longest_wait=_span(waits[-1]) if waits else timedelta(),
        median_wait=_span(median_low(waits)) if waits else timedelta(),
        backlog_grows=tally.backlog.grows(instant_of(stage.end)),
        clock_changes=_clock_changes(stage, play),
        fault=play.fault,
    )


def _clock_changes(stage: Stage, play: Play) -> tuple[ClockChange, ...]:
    try:
        timetable = timetable_of(play.schedule, zone=stage.zone)
    except ScheduleFaultError:
        return ()
    return clock_changes(timetable, stage.begin, stage.end)


def _cluster_report(stage: Stage, timeline: _Timeline, pools: Sequence[str]) -> ClusterReport:
    busiest = timeline.busiest_hour()
    return ClusterReport(
        slots=stage.slots,
        peak=timeline.peaks[_WORKERS],
        peak_at=None if timeline.peak_at is None else _moment(timeline.peak_at),
        peak_wanted=timeline.peak_wanted,
        busiest_hour=None if busiest is None else _moment(busiest[0]),
        busiest_slots=0.0 if busiest is None else busiest[1],
        backlog=timeline.backlog.now,
        most_backlog=timeline.backlog.most,
        backlog_grows=timeline.backlog.grows(instant_of(stage.end)),
        pools=tuple(
            PoolReport(name=name, size=stage.pools.get(name), peak=timeline.peaks[place])
            for place, name in enumerate(pools, start=1)
        ),
    )


def _moment(instant: int) -> datetime:
    return EPOCH + timedelta(microseconds=instant)


def _span(microseconds: int) -> timedelta:
    return timedelta(microseconds=microseconds)
