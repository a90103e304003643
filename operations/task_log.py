"""Reads the logs of tasks, and nothing else: only files below `$ORCAFLOW_HOME/tasks/logs`.

The path comes from a row that anybody may have typed, so it is taken as hostile: no link is
followed in it, and what is opened must be an ordinary file.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from common.errors import NotAllowedError, NotFoundError
from common.log_files import NoOrdinaryFileError, open_below

_PIECE_BYTES = 65_536
_TAIL_BYTES = 200_000


class LogMissingError(NotFoundError):
    """There is no log (yet), or none on this computer."""


class LogElsewhereError(NotAllowedError):
    """The path of a log is not below this home's folder: it is another home's, or nobody's."""


class TaskLog:
    """An open log, read piece by piece from wherever its writer has got to."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> str:
        """Return the text added since the last call, up to some size; "" if there is none."""
        return self._decoder.decode(os.read(self._file, _PIECE_BYTES))

    def rest(self) -> Iterator[str]:
        """Yield everything up to the end of the file, in pieces."""
        while piece := os.read(self._file, _PIECE_BYTES):
            yield self._decoder.decode(piece)
        yield self._decoder.decode(b"", final=True)

    def skip_to_last(self, lines: int) -> None:
        """Continue at the last lines, of which at most a fifth of a megabyte is kept."""
        size = os.fstat(self._file).st_size
        start = max(0, size - _TAIL_BYTES)
        tail = os.pread(self._file, size - start, start)
        kept = b"".join(tail.splitlines(keepends=True)[-lines:]) if lines > 0 else b""
        os.lseek(self._file, size - len(kept), os.SEEK_SET)


@contextmanager
def opened_log(home: Path, log_path: str | None) -> Iterator[TaskLog]:
    """Open the log; `LogMissingError` without one, `NotAllowedError` outside the logs' folder."""
    file = _open(home / "tasks" / "logs", log_path)
    try:
        yield TaskLog(file)
    finally:
        os.close(file)


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
