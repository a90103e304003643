"""Reads the logs of tasks, and nothing else: only files below `$ORCAFLOW_HOME/tasks/logs`.

The path comes from a row that anybody may have typed, so it is taken as hostile: no link is
followed in it, and what is opened must be an ordinary file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from common.errors import NotAllowedError, NotFoundError
from common.log_files import NoOrdinaryFileError, open_below
from operations.log_pieces import Log, Piece


class LogMissingError(NotFoundError):
    """There is no log (yet), or none on this computer."""


class LogElsewhereError(NotAllowedError):
    """The path of a log is not below this home's folder: it is another home's, or nobody's."""


class LogFile:
    """The source of an open file."""

    def __init__(self, file: int) -> None:
        self._file = file

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Return some bytes; it never waits."""
        del wait_seconds
        size = os.fstat(self._file).st_size
        # Behind a cut there is nothing but what came after it.
        start = min(start, size)
        return Piece(os.pread(self._file, most, start), size, start)


@contextmanager
def opened_file(home: Path, log_path: str | None) -> Iterator[LogFile]:
    """Open the log; `LogMissingError` without one, `NotAllowedError` outside the logs' folder."""
    file = _open(home / "tasks" / "logs", log_path)
    try:
        yield LogFile(file)
    finally:
        os.close(file)


@contextmanager
def opened_log(home: Path, log_path: str | None) -> Iterator[Log]:
    """Open the log as text; raises as `opened_file` does."""
    with opened_file(home, log_path) as found:
        yield Log(found)


def last_lines(home: Path, log_path: str | None, *, lines: int) -> list[str]:
    """Return the last lines of a log; raises as `opened_log` does."""
    with opened_log(home, log_path) as log:
        log.skip_to_last(lines)
        return "".join(log.rest()).splitlines()


def _open(root: Path, log_path: str | None) -> int:
    if not log_path:
        raise LogMissingError("the attempt has no log: no worker has started it")
    parts = _parts_below(root, log_path)
    if parts is None:
        raise LogElsewhereError(f"the log {log_path!r:.300} is not below {root}, so it is not read")
    try:
        return open_below(root, parts)
    except FileNotFoundError:
        raise LogMissingError(
            f"there is no log {log_path!r:.300} on this computer; "
            "it is on the host that ran the task"
        ) from None
    except NoOrdinaryFileError as error:
        raise NotAllowedError(f"the log {log_path!r:.300} is not an ordinary file") from error
    except OSError as error:
        raise NotAllowedError(
            f"the log {log_path!r:.300} can't be read: {error.strerror}"
        ) from error


def _parts_below(root: Path, log_path: str) -> tuple[str, ...] | None:
    if "\0" in log_path:
        return None
    path = PurePosixPath(log_path)
    try:
        parts = path.relative_to(PurePosixPath(root)).parts
    except ValueError:
        return None
    return parts if parts and ".." not in parts else None
