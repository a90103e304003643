"""Schedules: each fire is in the ledger once, as its policy says, and has one run if it happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from common.model.commands import CommandType
from tests.memory.store import (
    Change,
    CommandRecord,
    FireRecord,
    ProcessRecord,
    ScheduleRecord,
)
from tests.simulation.history import Tables, described, later
from tests.simulation.schedules import Fates, fires, first_fire, is_understood

_MOMENT = timedelta(microseconds=1)
_RECOVERED = timedelta(seconds=25)
_SLACK = timedelta(seconds=7)


class FiresOnce:
    """Every fire of a schedule that is ONLINE gets one outcome, the one that a second look gives.

    Between two looks at a schedule nothing may be left out: from the first fire that had no outcome
    up to the one that is named as the next, the ledger has them all.
    """

    def __init__(self, *, threshold: timedelta, healed: datetime) -> None:
        self._threshold = threshold
        self._healed = healed
        self._noted: dict[int, list[FireRecord]] = {}
        self._put: dict[int, CommandRecord] = {}
        self._run_of: dict[int, int] = {}
        self._scheduled: dict[int, ProcessRecord] = {}
        self._by_hand: Counter[tuple[int | None, datetime | None]] = Counter()

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        match change.old, change.new:
            case None, FireRecord() as fire:
                yield from self._noted_fire(fire, before)
            case FireRecord() as was, FireRecord() as fire:
                yield from self._changed_fire(change, was, fire, before)
            case None, CommandRecord() as command if change.transaction == "fire":
                self._put[command.id] = command
            case None, CommandRecord(parent_task_instance_id=0) as command if (
                command.command_type == CommandType.SCHEDULER
            ):
                self._by_hand[command.process_definition_id, command.schedule_time] += 1
            case None, ProcessRecord(is_sub_process=0) as process if (
                process.command_type == CommandType.SCHEDULER
            ):
                self._scheduled[process.id] = process
            case ScheduleRecord() as was, ScheduleRecord() as now if change.transaction == "fire":
                yield from self._moved_on(was, now, before)
            case _:
                pass

    def _noted_fire(self, fire: FireRecord, before: Tables) -> Iterator[str]:
        row = before.schedules[fire.schedule_id]
        place = f"fire {fire.fire_time:%H:%M:%S} of schedule {row.id}"
        if (row.id, fire.fire_time) in before.fires:
            yield f"{place} is in the ledger twice"
        if not row.fires:
            yield f"{place} came while the schedule was OFFLINE"
        if fire.fire_time > fire.create_time:
            yield f"{place} came before its time, at {fire.create_time}"
        if fire.fire_time not in fires(row, fire.fire_time, fire.fire_time):
            yield f"{place} is none of its fires"
        definition = before.definitions[row.process_definition_id]
        fates = Fates(
            row=row,
            runnable=definition.release_state == 1 and definition.flag == 1,
            now=fire.create_time,
            threshold=self._threshold,
        )
        expected = fates.of(fire.fire_time)
        if fire.outcome != expected:
            yield f"{place} was {fire.outcome}, it should have been {expected}"
        if fire.outcome == "fired" and fire.fire_time > self._healed + _RECOVERED:
            late = fire.create_time - fire.fire_time
            if late > _SLACK:
                yield f"{place} came {late} late though all was well"
        self._noted.setdefault(row.id, []).append(fire)

    def _changed_fire(
        self, change: Change, was: FireRecord, fire: FireRecord, before: Tables
    ) -> Iterator[str]:
        place = f"fire {fire.fire_time:%H:%M:%S} of schedule {fire.schedule_id}"
        if (was.fire_time, was.outcome, was.reason) != (fire.fire_time, fire.outcome, fire.reason):
            yield f"{described(change)} rewrote history"
        if not was.command_id and fire.command_id:
            command = self._put.get(fire.command_id)
            zone = before.schedules[fire.schedule_id].timezone_id
            if command is None or (
                command.schedule_time,
                command.process_definition_id,
                _zone_of(command),
            ) != (fire.fire_time, fire.process_definition_id, zone):
                yield f"{place} names a command that is not its own"
        if fire.process_instance_id and not was.process_instance_id:
            process = before.processes[fire.process_instance_id]
            if self._run_of.setdefault(process.id, fire.id) != fire.id:
                yield f"process instance {process.id} stands for two fires"
            zone = _zone_of(self._put[fire.command_id])
            if (process.schedule_time, process.timezone_id) != (fire.fire_time, zone):
                yield f"{place} became process instance {process.id} of {process.schedule_time}"

    def _moved_on(self, was: ScheduleRecord, now: ScheduleRecord, before: Tables) -> Iterator[str]:
        noted = self._noted.pop(was.id, [])
        if now.fault is not None:
            if is_understood(was.crontab):
                yield f"schedule {was.id} has the fault {now.fault!r}"
            return
        first = was.next_fire_time
        if was.counted_from is not None:
            first = first_fire(was, was.counted_from)
        open_fires = []
        if first is not None:
            until = (now.next_fire_time or was.end_time + _MOMENT) - _MOMENT
            open_fires = list(fires(was, first, until))
        lost = [fire for fire in open_fires if (was.id, fire) not in before.fires]
        if lost:
            yield f"schedule {was.id} went on to {now.next_fire_time} without {lost[0]}"
        if any(fire.fire_time not in open_fires for fire in noted):
            yield f"schedule {was.id} fired what was not due"
        if now.next_fire_time is not None and not list(
            fires(was, now.next_fire_time, now.next_fire_time)
        ):
            yield f"schedule {was.id} does not fire at {now.next_fire_time}"

    def at_the_end(self, after: Tables, now: datetime) -> Iterator[str]:
        """Yield the violations left when everything is at rest."""
        named = [fire.command_id for fire in after.fires.values() if fire.command_id]
        for command_id in self._put:
            if named.count(command_id) != 1:
                yield f"command {command_id} was put for {named.count(command_id)} fires"
        for fire in after.fires.values():
            place = f"fire {fire.fire_time:%H:%M:%S} of schedule {fire.schedule_id}"
            if (fire.outcome == "fired") != (fire.command_id != 0):
                yield f"{place} was {fire.outcome} with command {fire.command_id}"
            was_refused = fire.command_id in after.refused
            if fire.command_id and (fire.process_instance_id != 0) == was_refused:
                yield f"{place} has run {fire.process_instance_id}, refused: {was_refused}"
        for process in self._scheduled.values():
            if process.id in self._run_of:
                continue
            asked = process.process_definition_id, process.schedule_time
            if not self._by_hand[asked]:
                yield f"process instance {process.id} stands for no fire"
            self._by_hand[asked] -= 1
        for row in after.schedules.values():
            due = later(row.next_fire_time or row.start_time, row.counted_from or row.start_time)
            if row.fires and (row.counted_from or row.next_fire_time) and due <= now - _SLACK:
                yield f"schedule {row.id} is due since {due}"


def _zone_of(command: CommandRecord) -> str | None:
    """The zone in which the run must read its dates."""
    zone: str | None = json.loads(command.command_param or "{}").get("schedule_timezone")
    return zone
