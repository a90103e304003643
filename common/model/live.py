"""Runs, attempts and complements as those who watch them see them: a few columns of their rows.

Pure values: `common.store.people.live` reads them, `api.live` tells what has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from common.model.states import LIVE_TASK_CODES, TERMINAL_PROCESS_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run. `project_id` is None if its definition is gone."""

    id: int
    name: str
    project_id: int | None
    state: int
    wanted_state: int | None
    run_times: int
    start_time: datetime | None
    end_time: datetime | None

    @property
    def has_ended(self) -> bool:
        """True if only a new command can change it."""
        return self.state in TERMINAL_PROCESS_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttempt:
    """An attempt at a task of a run. `settled` is True if nothing is expected of it any more."""

    id: int
    process_instance_id: int
    name: str
    attempt: int
    state: int
    start_time: datetime | None
    end_time: datetime | None
    progress: str | None
    settled: bool

    @property
    def may_change(self) -> bool:
        """True if its row has to be read again."""
        return not self.settled or self.state in LIVE_TASK_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveComplement:
    """A complement. `project_id` is None if its definition is gone."""

    id: int
    project_id: int | None
    state: int
    end_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsQuestion:
    """The rows to read of watched runs.

    Of the `complete` runs all valid attempts are read; of those `moving` only what differs from the
    `attempts` that are known and may have changed, and those with ids greater than `behind`.
    """

    moving: tuple[int, ...] = ()
    complete: tuple[int, ...] = ()
    attempts: tuple[LiveAttempt, ...] = ()
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAnswer:
    """The rows of watched runs at one moment, and the id of the newest attempt of all runs."""

    runs: tuple[LiveRun, ...]
    attempts: tuple[LiveAttempt, ...]
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewQuestion:
    """The runs and complements that were live before, and the id behind which runs are new."""

    runs: tuple[int, ...] = ()
    complements: tuple[int, ...] = ()
    behind: int = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewAnswer:
    """The live runs and complements of all projects, with those asked for that have ended."""

    runs: tuple[LiveRun, ...]
    complements: tuple[LiveComplement, ...]
    newest_run: int
    newest_alert: int
