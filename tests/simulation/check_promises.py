"""Promises with a time: stops, time-outs and alerts, each kept, each once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from common.model.states import ProcessState, TaskState, TimeoutStrategy, WarningType
from tests.memory.store import AlertRecord, Change, MemoryDatabase, ProcessRecord, TaskRecord
from tests.simulation.history import Tables, described, has_ended, later, process_name

_STOP_DEADLINE = timedelta(seconds=13)
_SLACK = timedelta(seconds=5)
_RECOVERED = timedelta(seconds=25)
"""The time after the faults by which every run has an owner that has read it."""

_STOPPING = (ProcessState.STOP, ProcessState.FAILURE)
_WORTH_IT = {
    WarningType.NONE: (),
    WarningType.SUCCESS: (ProcessState.SUCCESS,),
    WarningType.FAILURE: (ProcessState.FAILURE,),
    WarningType.ALL: tuple(state for state in ProcessState if state.is_terminal),
}
_ID = re.compile(r"'id':'([0-9]+)'")


class StopsInTime:
    """A stop ends its run by the deadline, and no pause withdraws the intent."""

    def __init__(self, healed: datetime) -> None:
        self._healed = healed

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if not isinstance(old, ProcessRecord) or not isinstance(new, ProcessRecord):
            return
        if (
            old.is_live
            and new.is_live
            and old.wanted_state in _STOPPING
            and new.wanted_state not in _STOPPING
        ):
            yield f"{described(change)} took a wanted stop back"
        if not has_ended(change) or old.wanted_state not in _STOPPING or old.wanted_at is None:
            return
        latest = later(old.wanted_at + _STOP_DEADLINE + _SLACK, self._healed + _RECOVERED)
        assert new.end_time is not None
        if new.end_time > latest:
            yield (
                f"process instance {new.id} was to stop at {old.wanted_at}, and ended as"
                f" {process_name(new.state)} at {new.end_time}"
            )


class TimeoutsInTime:
    """An exceeded time-out is alerted about, or enforced, soon after it is due and never before."""

    def __init__(self, healed: datetime) -> None:
        self._healed = healed

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        match change.old, change.new:
            case ProcessRecord() as old, ProcessRecord() as process if has_ended(change):
                if (
                    process.timeout
                    and not old.timeout_flag
                    and old.state in (ProcessState.RUNNING, ProcessState.READY_PAUSE)
                    and process.end_time is not None
                    and process.end_time
                    > self._by(
                        (old.restart_time or old.start_time) + timedelta(minutes=process.timeout)
                    )
                ):
                    yield f"nobody said that process instance {process.id} took too long"
            case TaskRecord(state=TaskState.RUNNING) as was, TaskRecord() as task:
                if (
                    was.timeout_seconds is None
                    or was.timeout_strategy is None
                    or was.start_time is None
                ):
                    return
                due = was.start_time + timedelta(seconds=was.timeout_seconds)
                strategy = TimeoutStrategy(was.timeout_strategy)
                if (
                    task.is_finished
                    and task.end_time is not None
                    and task.end_time > self._by(due)
                    and strategy.warns
                    and not was.alert_flag
                ):
                    yield f"nobody said that attempt {task.id} took too long"
                if (
                    task.is_finished
                    and task.end_time is not None
                    and strategy.fails
                    and was.task_type in ("DEPENDENT", "SUB_PROCESS")
                    and task.end_time > self._by(due) + _STOP_DEADLINE * 2
                ):
                    yield f"attempt {task.id} went on long after its time-out"
            case _:
                return

    def _by(self, due: datetime) -> datetime:
        return later(due + _SLACK, self._healed + _RECOVERED)


class AlertsOnce:
    """As many alerts as there are reasons."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._alerts: tuple[AlertRecord, ...] = tuple(database.alerts)
        self._due: Counter[str] = Counter()

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        match change.old, change.new:
            case ProcessRecord() as old, ProcessRecord() as new:
                if (
                    has_ended(change)
                    and change.transaction == "save"
                    and not new.is_sub_process
                    and ProcessState(new.state) in _WORTH_IT[WarningType(new.warning_type)]
                ):
                    self._due["end"] += 1
                if (old.timeout_flag, new.timeout_flag) == (0, 1) and TimeoutStrategy(
                    new.timeout_strategy
                ).warns:
                    # A recovered run counts from zero, and may raise another alert.
                    self._due[f"Process Timeout Warn {new.id}"] += 1
            case TaskRecord() as was, TaskRecord() as task:
                if (was.alert_flag, task.alert_flag) == (0, 1):
                    self._due[f"Task Timeout Warn {task.id}"] += 1
                    if self._due[f"Task Timeout Warn {task.id}"] > 1:
                        yield f"attempt {task.id} was told of twice"
            case _:
                return

    def missing(self) -> Iterator[str]:
        """Yield the alerts raised too often, or not at all; called at the end."""
        raised: Counter[str] = Counter()
        for alert in self._alerts:
            event, _, _ = alert.title.partition(": ")
            match event:
                case "Process Timeout Warn" | "Task Timeout Warn":
                    found = _ID.search(alert.content)
                    assert found is not None
                    raised[f"{event} {found[1]}"] += 1
                case "Fault tolerance warning" | "worker fault tolerance":
                    continue
                case _:
                    raised["end"] += 1
        for key in sorted({*raised, *self._due}):
            if raised[key] != self._due[key]:
                yield f"alerts ({key}): {raised[key]} were made, {self._due[key]} were due"
