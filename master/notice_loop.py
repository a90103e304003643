"""Hears PostgreSQL's notifications and wakes whom they concern; nothing depends on hearing them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from common.store.listen import Notification
from master.run_worker import RunWorker

CHANNELS = ("orcaflow_command", "orcaflow_task", "orcaflow_wanted")


class NotificationSource(Protocol):
    """`common.store.listen.Notifications`, or a queue in the simulator."""

    def wait(self, timeout: timedelta) -> list[Notification]: ...


class NoticeLoop:
    """Blocks in `wait`; the service stops it through the source's own `wake`."""

    name = "notice"

    def __init__(
        self,
        source: NotificationSource,
        *,
        runs: RunWorker,
        command_waiting: Callable[[], None],
        patience: timedelta = timedelta(seconds=5),
    ) -> None:
        self._source = source
        self._runs = runs
        self._command_waiting = command_waiting
        self._patience = patience

    def run_once(self) -> timedelta:
        """Wait for notifications and pass them on."""
        for notification in self._source.wait(self._patience):
            match notification.channel:
                case "orcaflow_command":
                    self._command_waiting()
                case "orcaflow_task":
                    process, _, tasks = notification.payload.partition(":")
                    self._runs.reported(int(process), map(int, tasks.split(",")))
                case "orcaflow_wanted":
                    self._runs.look()
                case _:
                    # The connection was lost in between: anything may have been missed.
                    self._command_waiting()
                    self._runs.look()
        return timedelta()
