"""Receives PostgreSQL's notifications and wakes loops; a lost one only delays them.

Any role of the database can notify, including the reading role. A payload is therefore only a hint
that a row may have changed; the loops rely on the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeAlias

from common.store.listen import Channel, Notification, read_id, read_task_report
from master.loops.run_worker import RunWorker

CHANNELS = tuple(Channel)
"""The channels that a master listens to."""


UpstreamChanged: TypeAlias = Callable[[int | None, str | None], None]
"""Told the run that has ended and None, or the run and its task; without a run, any may have."""


class NotificationSource(Protocol):
    """`common.store.listen.Notifications`, or a queue in the simulator."""

    def wait(self, timeout: timedelta) -> list[Notification]: ...

    def wake(self) -> None: ...


class NoticeLoop:
    """Blocks in the source's `wait` where other loops rest, so it needs a `stop` of its own."""

    name = "notice"

    def __init__(
        self,
        source: NotificationSource,
        *,
        runs: RunWorker,
        command_waiting: Callable[[], None],
        attempt_ended: Callable[[int], None] = lambda _: None,
        upstream_changed: UpstreamChanged = lambda _run, _task: None,
        hold_changed: Callable[[], None] = lambda: None,
        schedule_changed: Callable[[], None] = lambda: None,
        complement_changed: Callable[[], None] = lambda: None,
        modes_changed: Callable[[], None] = lambda: None,
        dataset_changed: Callable[[str], None] = lambda _: None,
        patience: timedelta = timedelta(seconds=5),
    ) -> None:
        self._source = source
        self._runs = runs
        self._command_waiting = command_waiting
        self._attempt_ended = attempt_ended
        self._upstream_changed = upstream_changed
        self._hold_changed = hold_changed
        self._schedule_changed = schedule_changed
        self._complement_changed = complement_changed
        self._modes_changed = modes_changed
        self._dataset_changed = dataset_changed
        self._patience = patience
        self._stopping = False

    def stop(self) -> None:
        """End the present wait and allow no other; called by the thread that stops the daemon."""
        self._stopping = True
        self._source.wake()

    def run_once(self) -> timedelta:
        """Wait for notifications and pass them on."""
        if self._stopping:
            return self._patience
        for notification in self._source.wait(self._patience):
            match notification.channel:
                case Channel.COMMAND:
                    self._command_waiting()
                case Channel.TASK:
                    self._reported(notification.payload)
                case Channel.WANTED:
                    self._runs.check_tables()
                case Channel.PROCESS:
                    self._upstream_changed(read_id(notification.payload), None)
                    self._complement_changed()
                case Channel.HOLD:
                    self._hold_changed()
                case Channel.SCHEDULE:
                    self._schedule_changed()
                case Channel.COMPLEMENT:
                    self._complement_changed()
                case Channel.WORKER:
                    self._modes_changed()
                case Channel.DATASET:
                    self._dataset_changed(notification.payload)
                case _:
                    # The connection was lost in between: any notification may have been missed.
                    self._command_waiting()
                    self._upstream_changed(None, None)
                    self._hold_changed()
                    self._schedule_changed()
                    self._complement_changed()
                    self._modes_changed()
                    self._runs.check_tables()
        return timedelta()

    def _reported(self, payload: str) -> None:
        try:
            report = read_task_report(payload)
        except ValueError:
            # Not one of ours; if it meant anything, the rows show it.
            self._runs.check_tables()
            self._upstream_changed(None, None)
        else:
            self._runs.reported(report)
            if report.state.is_finished:
                self._attempt_ended(report.task_instance_id)
            self._upstream_changed(report.process_instance_id, report.name)
