"""Complements: each date runs once, never too many at a time, and none after the wanted end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from common.model.commands import CommandType
from common.model.complement_states import ComplementState, DateState
from common.model.states import ProcessState
from tests.memory.store import (
    EPOCH,
    FAR,
    Change,
    CommandRecord,
    ComplementDateRecord,
    ComplementRecord,
    MemoryDatabase,
    ProcessRecord,
)
from tests.simulation.complements import free_chains, is_moving
from tests.simulation.history import Tables, described, later
from tests.simulation.schedules import fires

_RECOVERED = timedelta(seconds=25)
_STOPPED_IN = timedelta(seconds=25)
"""A stop takes up to 13 seconds, and each pass by people and masters a few more."""

_MAY_BEGIN = (ComplementState.SUBMITTED, ComplementState.RUNNING, ComplementState.FAILURE)
_LIVE = (DateState.SUBMITTED, DateState.RUNNING)
_DONE = (DateState.SUCCESS, DateState.SKIPPED)
_STEPS = {
    ("advance", DateState.PENDING, DateState.SUBMITTED),
    ("advance", DateState.PENDING, DateState.CANCELLED),
    ("advance", DateState.SUBMITTED, DateState.PENDING),
    ("advance", DateState.SUBMITTED, DateState.FAILURE),
    ("advance", DateState.RUNNING, DateState.SUCCESS),
    ("advance", DateState.RUNNING, DateState.FAILURE),
    ("advance", DateState.RUNNING, DateState.CANCELLED),
    ("advance", DateState.FAILURE, DateState.RUNNING),
    ("advance", DateState.FAILURE, DateState.SUCCESS),
    ("take", DateState.SUBMITTED, DateState.RUNNING),
    ("update", DateState.FAILURE, DateState.PENDING),
}
"""The moves of a date that each transaction may make; the last is a person's retry."""


class ComplementsKeepTheirWord:
    """Each change of a complement, of one of its dates, and each run that begins for one."""

    def __init__(self, healed: datetime) -> None:
        self._healed = healed
        self._begun: Counter[int] = Counter()
        self._tries: Counter[int] = Counter()
        self._runs: dict[int, ProcessRecord] = {}
        self._date_of: dict[int, int] = {}
        self._asked: dict[int, CommandRecord] = {}
        self._made: dict[int, int] = {}
        self._dates: dict[int, list[datetime]] = {}
        self._recovered: set[int] = set()

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        match change.old, change.new:
            case None, CommandRecord() as command if (
                command.command_type == CommandType.COMPLEMENT_DATA
                and not command.complement_date_id
                and not command.parent_task_instance_id
            ):
                self._asked[command.id] = command
            case None, ProcessRecord(is_sub_process=0) as process if process.is_of_complement:
                self._runs[process.id] = process
            case None, ComplementRecord() as row:
                self._made[row.id] = row.command_id
                if row.command_id:
                    self._dates[row.id] = _dates_of(before.commands[row.command_id], row, before)
            case None, ComplementDateRecord() as date:
                yield from self._new_date(date, before)
            case ComplementRecord() as was, ComplementRecord() as row if was.state != row.state:
                yield from self._moved(change, was, row, before)
            case ComplementDateRecord() as old, ComplementDateRecord() as date if (
                old.state != date.state
            ):
                yield from self._date_moved(change, old, date, before)
            case _:
                pass

    def _new_date(self, date: ComplementDateRecord, before: Tables) -> Iterator[str]:
        self._tries[date.id] = 1
        row = before.complements[date.complement_id]
        skipped = date.state == DateState.SKIPPED
        if all(skipped != _skips(row, each, before) for each in self._spans(date, row, before)):
            yield f"date {date.id} of complement {row.id} begins as {date.state} ({row.reprocess})"

    def _spans(
        self, date: ComplementDateRecord, row: ComplementRecord, before: Tables
    ) -> list[tuple[datetime, datetime]]:
        """The times whose runs are runs of the date: its moment, or the day of that."""
        zone = ZoneInfo(row.timezone_id)
        moment = _moment_of(date, row)
        day = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        instant, whole = (moment, moment + timedelta(microseconds=1)), (day, day + timedelta(1))
        online = [
            each
            for each in before.schedules.values()
            if each.release_state == 1 and each.process_definition_id == row.process_definition_id
        ]
        if online:
            # All lines that are drawn fire more often, or never.
            return [instant]
        dates = self._dates.get(row.id)
        if dates is None:
            # It follows another one, which may have several dates a day.
            return [instant, whole]
        days = [each.astimezone(zone).date() for each in dates]
        return [whole if len(set(days)) == len(days) else instant]

    def _date_moved(
        self, change: Change, old: ComplementDateRecord, date: ComplementDateRecord, before: Tables
    ) -> Iterator[str]:
        place = f"date {date.id} of complement {date.complement_id}"
        row = before.complements[date.complement_id]
        if (change.transaction, old.state, date.state) not in _STEPS:
            yield f"{place} went from {old.state} to {date.state} by {change.transaction}"
        match date.state:
            case DateState.SUBMITTED:
                yield from self._is_commanded(place, row, date, before)
            case DateState.RUNNING if old.state == DateState.SUBMITTED:
                yield from self._begins(place, row, old, date, before)
            case DateState.RUNNING:
                self._recovered.add(date.id)
            case DateState.PENDING if change.transaction == "update":
                self._recovered.discard(date.id)
                self._tries[date.id] += 1
            case DateState.PENDING:
                if old.command_id in before.commands:
                    yield f"{place} is pending again, and its command {old.command_id} is there"
            case DateState.SUCCESS | DateState.FAILURE if date.process_instance_id:
                process = before.processes[date.process_instance_id]
                expected = process.state == ProcessState.SUCCESS
                if process.is_live or (date.state == DateState.SUCCESS) != expected:
                    yield f"{place} ended as {date.state}, and its run is {process.state}"
            case _:
                pass

    def _is_commanded(
        self, place: str, row: ComplementRecord, date: ComplementDateRecord, before: Tables
    ) -> Iterator[str]:
        if row.state not in _MAY_BEGIN:
            yield f"{place} begins while that is {ComplementState(row.state).name}"
        if row.state == ComplementState.SUBMITTED:
            above = before.complements.get(row.after_id)
            if above is not None and above.state != ComplementState.SUCCESS:
                yield f"{place} begins before complement {row.after_id} has succeeded"
        dates = list(before.dates[row.id].values())
        if free_chains(row, dates) < 1:
            yield f"{place} begins though there is no chain free for it"
        if any(d.state == DateState.PENDING and d.position < date.position for d in dates):
            yield f"{place} begins out of order"
        command = before.commands.get(date.command_id)
        if command is None or (
            command.schedule_time,
            command.complement_date_id,
            command.process_definition_id,
        ) != (date.schedule_time, date.id, row.process_definition_id):
            yield f"{place} has no command of its own"

    def _begins(
        self,
        place: str,
        row: ComplementRecord,
        old: ComplementDateRecord,
        date: ComplementDateRecord,
        before: Tables,
    ) -> Iterator[str]:
        if row.state != ComplementState.RUNNING:
            yield f"{place} begins to run while that is {ComplementState(row.state).name}"
        if old.command_id not in before.commands:
            yield f"{place} begins to run by a command that it does not know"
        self._begun[date.id] += 1
        if self._begun[date.id] > self._tries[date.id]:
            yield f"{place} has {self._begun[date.id]} runs, {self._tries[date.id]} were wanted"
        # Runs that people recover come on top of those that the complement begins.
        running = sum(
            d.state in _LIVE and d.id not in self._recovered for d in before.dates[row.id].values()
        )
        if running > row.parallelism:
            yield f"{running} dates of complement {row.id} run, {row.parallelism} are to"
        process = before.processes[date.process_instance_id]
        self._date_of[process.id] = date.id
        moment = _moment_of(date, row)
        if (
            process.schedule_time,
            process.moment,
            process.process_definition_id,
            process.timezone_id,
        ) != (
            date.schedule_time,
            moment,
            row.process_definition_id,
            row.timezone_id,
        ):
            yield f"{place} runs as process instance {process.id}, which is another's"

    def _moved(
        self, change: Change, was: ComplementRecord, row: ComplementRecord, before: Tables
    ) -> Iterator[str]:
        dates = list(before.dates.get(row.id, {}).values())
        states = Counter(DateState(date.state) for date in dates)
        live = sum(states[state] for state in _LIVE)
        place = f"complement {row.id}"
        if row.is_ended:
            if live:
                yield f"{place} ended as {ComplementState(row.state).name} with {live} dates live"
            if row.end_time is None:
                yield f"{place} ended without a time"
            left = [
                c.id
                for c in before.commands.values()
                if c.complement_date_id in before.dates.get(row.id, {})
            ]
            if left:
                yield f"{place} ended, and the commands {left} of its dates are still there"
        match ComplementState(row.state):
            case ComplementState.SUCCESS if any(d.state not in _DONE for d in dates):
                yield f"{place} is a success, and its dates are {dict(states)}"
            case ComplementState.FAILURE if was.state != ComplementState.SUBMITTED:
                if not states[DateState.FAILURE]:
                    yield f"{place} has failed, and none of its dates"
                if states[DateState.PENDING] and free_chains(row, dates) > 0:
                    yield f"{place} has failed, and dates of it may begin"
            case ComplementState.PAUSE if not states[DateState.PENDING]:
                yield f"{place} is paused, and nothing is left of it to begin"
            case ComplementState.STOP:
                if was.state != ComplementState.READY_STOP:
                    yield f"{described(change)} cancelled it, and nobody wanted that"
                latest = later(was.update_time + _STOPPED_IN, self._healed + _RECOVERED)
                if row.end_time is not None and row.end_time > latest:
                    yield f"{place} was to stop at {was.update_time}, and did at {row.end_time}"
            case _:
                pass

    def at_the_end(self, after: Tables, database: MemoryDatabase) -> Iterator[str]:
        """Yield the violations left when everything is at rest."""
        for row in after.complements.values():
            dates = after.dates.get(row.id, {}).values()
            if not row.is_ended or is_moving(database, row):
                yield f"complement {row.id} is still {ComplementState(row.state).name}"
            if row.state == ComplementState.STOP:
                left = [date.id for date in dates if date.state == DateState.PENDING]
                if left:
                    yield f"complement {row.id} was cancelled, and {left} are still pending"
        for process in self._runs.values():
            if process.id not in self._date_of:
                yield f"process instance {process.id} is of a complement, and of no date"
        for command in self._asked.values():
            made = [row_id for row_id, asked in self._made.items() if asked == command.id]
            if (len(made) == 1) == (command.id in after.refused):
                yield f"command {command.id} became the complements {made}"
                continue
        for row_id, expected in self._dates.items():
            found = sorted(after.dates[row_id].values(), key=lambda date: date.position)
            moments = [date.schedule_time for date in found]
            if moments != expected:
                yield f"complement {row_id} has the dates {moments}, not {expected}"


def _moment_of(date: ComplementDateRecord, row: ComplementRecord) -> datetime:
    """The moment of the date's run; the zones that are drawn have no summer time."""
    return date.schedule_time + timedelta(days=row.date_rule == "business_date")


def _skips(row: ComplementRecord, span: tuple[datetime, datetime], before: Tables) -> bool:
    newest = None
    for process in before.processes.values():
        if (
            process.process_definition_id == row.process_definition_id
            and process.schedule_time is not None
            and span[0] <= process.moment < span[1]
            and not process.is_sub_process
        ):
            newest = process
    is_good = newest is not None and (newest.is_live or newest.state == ProcessState.SUCCESS)
    return {"all": False, "failed": is_good, "missing": newest is not None}[row.reprocess]


def _dates_of(command: CommandRecord, row: ComplementRecord, before: Tables) -> list[datetime]:
    """The requested dates: as listed, or a single one, or fires, or one a day.

    Typed dates are read in the zone of the definition's schedules, if these have one.
    """
    online = [
        each
        for _, each in sorted(before.schedules.items())
        if each.release_state == 1 and each.process_definition_id == row.process_definition_id
    ]
    zone = ZoneInfo(next((each.timezone_id for each in online if each.timezone_id), "UTC"))
    param = json.loads(command.command_param or "{}")
    falls = param.get("executionOrder") == "DESC_ORDER"
    listed = param.get("complementScheduleDateList")
    if listed is not None:
        return sorted({_moment(text, zone) for text in listed.split(",")}, reverse=falls)
    first, last = (_moment(param[f"complement{end}Date"], zone) for end in ("Start", "End"))
    if first == last:
        return [first]
    found = [first + timedelta(days=day) for day in range((last - first).days + 1)]
    schedules = [replace(each, start_time=EPOCH, end_time=FAR) for each in online]
    if schedules:
        found = [*{fire for each in schedules for fire in fires(each, first, last)}]
    return sorted(found, reverse=falls)


def _moment(text: str, zone: ZoneInfo) -> datetime:
    return datetime.fromisoformat(text.strip()).replace(tzinfo=zone).astimezone(UTC)
