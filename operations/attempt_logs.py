"""Logs of tasks by their bytes, for servers that pass them on.

What is read comes from this computer, a worker or the tables, and none of them is waited for long:
many wait behind a server. Who asks has to see the attempt, each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from common.clock import Clock
from common.errors import NotAllowedError, NotFoundError, ServiceUnreachableError
from common.model.states import TaskState
from common.store.people import live
from common.store.people.views import TaskInstanceView
from operations.documents.instances import name_of
from operations.errors import ForbiddenError
from operations.log_pieces import LogSource, Piece, last_piece
from operations.session import Session
from operations.task_log import LogMissingError
from operations.tasks import find_task
from operations.worker_calls import WorkerCallError
from operations.worker_logs import source_anywhere

PATIENCE: Final = timedelta(seconds=1.5)
"""No worker is waited for longer; a log is found, or not, within three times of it."""

_LOOK_SECONDS: Final = 1.0


class SourceGoneError(ServiceUnreachableError):
    """A worker that has begun to hand over a log does not go on. Ask again, from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Some bytes of a log; `ended` if nothing will come behind them."""

    body: bytes
    start: int
    size: int
    ended: bool


@contextmanager
def opened_source(session: Session, task: TaskInstanceView) -> Iterator[LogSource]:
    """Open a log; `LogMissingError` for whatever can't be read, or is none (X1)."""
    try:
        with source_anywhere(session, task, patience=PATIENCE) as found:
            yield found
    except NotAllowedError as error:
        raise LogMissingError(str(error)) from error
    except WorkerCallError as error:
        raise SourceGoneError(str(error)) from error


def log_piece(session: Session, task_instance_id: int, *, start: int, most: int) -> LogPiece:
    """Return at most so many bytes from an offset on."""
    task = find_task(session, task_instance_id)
    with opened_source(session, task) as source:
        return _piece(task, source.piece(start, most))


def log_end(session: Session, task_instance_id: int, *, lines: int) -> LogPiece:
    """Return the last lines, of which at most a fifth of a megabyte is kept."""
    task = find_task(session, task_instance_id)
    with opened_source(session, task) as source:
        return _piece(task, last_piece(source, lines))


def _piece(task: TaskInstanceView, found: Piece) -> LogPiece:
    # The row was read before the log: what ended in between has written its last line.
    ended = task.end_time is not None and found.start + len(found.body) >= found.size
    return LogPiece(body=found.body, start=found.start, size=found.size, ended=ended)


class FollowedLog:
    """A log that is read while its task writes it, by one thread at a time."""

    def __init__(self, session: Session, task_instance_id: int, *, clock: Clock) -> None:
        """`NotFoundError` if the attempt is missing or foreign."""
        self._session = session
        self._clock = clock
        self._task = find_task(session, task_instance_id)
        self._looked_at = clock.monotonic()
        self._closing = ExitStack()
        self._source: LogSource | None = None

    @property
    def state(self) -> str | None:
        """The name of the attempt's state, as of the last look."""
        return name_of(TaskState, self._task.state)

    def read(self, start: int, most: int) -> LogPiece | None:
        """Return what is there; None before the attempt has a log.

        `NotFoundError` and `ForbiddenError` once it may not be seen any more, `LogMissingError` if
        there will be none.
        """
        if self._clock.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._look()
        if self._source is None:
            try:
                self._source = self._closing.enter_context(opened_source(self._session, self._task))
            except LogMissingError:
                if self._task.end_time is not None:
                    raise
                return None
        try:
            return _piece(self._task, self._source.piece(start, most))
        except WorkerCallError as error:
            raise SourceGoneError(str(error)) from error

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> None:
        principal, run = self._session.principal, self._task.process_instance_id
        with self._session.engine.connect() as db:
            watchable = live.watchable(db, principal, [run], with_projects=False)
        if watchable is None:
            raise ForbiddenError("your token or session has ended")
        if run not in watchable.runs:
            raise NotFoundError(f"there is no task instance {self._task.id} that you may see")
        self._task = find_task(self._session, self._task.id)
        self._looked_at = self._clock.monotonic()
