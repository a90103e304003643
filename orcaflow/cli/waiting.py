"""Waits at the terminal until a master takes a command, or a worker begins an attempt.

No notification tells of a refused command or of a task that begins; only a person waits here, so
the tables are read again and again, and no daemon does the like.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from common.clock import SystemClock
from common.errors import SchedulerError
from common.store.people.views import TaskInstanceView
from operations.commands import outcome
from operations.instance_commands import PutCommand, is_taken
from operations.session import Session
from operations.task_log import LogMissingError
from operations.tasks import find_task
from operations.worker_logs import opened_anywhere
from orcaflow.cli.output import say
from orcaflow.cli.screens.watch import WatchTimeoutError

TAKEN_WITHIN: Final = timedelta(seconds=5)
"""A command to an instance that is not taken by then is reported as waiting."""

_BEGUN_WITHIN: Final = timedelta(seconds=5)

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25
_PAUSE_GROWTH = 1.3
_LOG_PAUSE_SECONDS = 0.3


def await_instance(
    session: Session, command_id: int, patience: timedelta | None, *, wait: bool
) -> int | None:
    """The instance that the command became; None if it is still waiting after a few seconds.

    With `wait` only `patience` ends the waiting, by `WatchTimeoutError`. `CommandFailedError` if
    the command was dropped or refused.
    """
    clock = SystemClock()
    begun = clock.monotonic()
    reported = False
    pause = _FIRST_PAUSE_SECONDS
    while True:
        became = outcome(session, command_id)
        if became is not None:
            if became.process_instance_id is None:
                raise SchedulerError(f"command {command_id} has begun no process instance")
            return became.process_instance_id
        passed = timedelta(seconds=clock.monotonic() - begun)
        if patience is not None and passed >= patience:
            raise WatchTimeoutError(
                f"no master has begun command {command_id} within {patience.total_seconds():g} s; "
                "it waits in t_ds_command"
            )
        if passed >= _BEGUN_WITHIN:
            if not wait:
                return None
            if not reported:
                say(
                    f"command {command_id} waits: no master has taken it yet "
                    "(`orcaflow server list` shows the masters)"
                )
                reported = True
        # No notification reports a refused command, so the tables are queried.
        time.sleep(pause)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECONDS)


def await_taken(session: Session, command: PutCommand, *, patience: timedelta | None) -> bool:
    """True if a master took the command in time; without `patience` waits for ever.

    A command that waits for long is reported once. `CommandFailedError` if it was dropped or
    refused.
    """
    clock = SystemClock()
    begun = clock.monotonic()
    reported = False
    pause = _FIRST_PAUSE_SECONDS
    while not is_taken(session, command):
        passed = timedelta(seconds=clock.monotonic() - begun)
        if patience is not None and passed >= patience:
            return False
        if not reported and passed >= TAKEN_WITHIN:
            say(
                f"command {command.id} waits: no master has taken it yet"
                f" (orcaflow instance why --command {command.id})"
            )
            reported = True
        # No notification reports a refused command, so the tables are queried.
        time.sleep(pause)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECONDS)
    return True


def await_taken_or_time_out(
    session: Session, command: PutCommand, patience: timedelta | None
) -> None:
    """Wait until a master takes the command; `WatchTimeoutError` after `patience`."""
    if not await_taken(session, command, patience=patience):
        raise WatchTimeoutError(
            f"no master has taken command {command.id} in time; it waits in t_ds_command"
        )


def await_log(session: Session, task_instance_id: int) -> TaskInstanceView:
    """The attempt, once a worker has begun it and its log can be read, or it has ended."""
    reported = False
    while True:
        task = find_task(session, task_instance_id)
        if task.end_time is not None:
            return task
        if task.log_path:
            try:
                with opened_anywhere(session, task):
                    return task
            except LogMissingError:
                # Claimed a moment ago, or out of reach, which ends it all the same.
                if reported:
                    return task
        if not reported:
            say(f"waiting for a worker to start task instance {task_instance_id}")
            reported = True
        # The begin of a task notifies nobody: only its row can be asked.
        time.sleep(_LOG_PAUSE_SECONDS)


def await_end(session: Session, task_instance_id: int) -> None:
    """Return once the attempt has ended."""
    while find_task(session, task_instance_id).end_time is None:
        # Its end is notified, but a person who follows one task is served well enough by a look.
        time.sleep(_LOG_PAUSE_SECONDS)
