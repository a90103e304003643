"""A daemon's log: JSON lines in `$ORCAFLOW_HOME/logs/<name>-<port>.log`, rotated by size.

Modules log with the standard library, a constant message and ids as fields:
`log.info("task dispatched", extra={"task_instance_id": 7})`. What looks like a secret is masked in
fields, messages and stack traces; control characters are escaped, so a line is always one event. A
log that can't be written (a full disk) costs its lines and is reported later; the daemon goes on.
"""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Final

from common.folders import closed_folder
from common.masking import SHORT_MASK, is_secret, mask_message

_ROTATE_BYTES = 20_000_000
_ROTATE_FILES = 5
# Whatever else a record has is a field that was given with `extra`.
_NO_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_PLAIN: Final = (int, float, bool, type(None))

log = logging.getLogger(__name__)


def configure(
    *, home: Path, name: str, port: int, level: str = "INFO", also_stderr: bool = False
) -> Path:
    """Send everything that is logged in this process to the daemon's log; return its path.

    Uncaught errors are logged too, of any thread. `also_stderr` is for the foreground.
    """
    path = home / "logs" / f"{name}-{port}.log"
    closed_folder(path.parent)
    formatter = JsonLines(f"{name}-{port}")
    handlers: list[logging.Handler] = [RotatingLog(path)]
    if also_stderr:
        handlers.append(logging.StreamHandler())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    return path


class RotatingLog(RotatingFileHandler):
    """A file that outlives the troubles of its disk; how many lines were lost is logged later."""

    def __init__(
        self, path: Path, *, max_bytes: int = _ROTATE_BYTES, files: int = _ROTATE_FILES
    ) -> None:
        self._lost = 0
        self._line: tuple[logging.LogRecord, str] | None = None
        self._size: int | None = None
        """The size of the file; None for what is no file, and is not rotated."""
        super().__init__(path, maxBytes=max_bytes, backupCount=files, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        lost_before = self._lost
        self._write(record)
        if lost_before and self._lost == lost_before:
            self._lost = 0
            message = "log lines were lost"
            note = logging.LogRecord(log.name, logging.WARNING, "", 0, message, None, None)
            note.lines = lost_before
            self._write(note)

    def _write(self, record: logging.LogRecord) -> None:
        lost_before = self._lost
        super().emit(record)
        if self._lost == lost_before and self._size is not None:
            self._size += len(self.format(record)) + 1

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # As below.
        # The base class asks the system twice for each line what its file is, and seeks its end.
        if self._size is None or self.maxBytes <= 0:
            return False
        return self._size + len(self.format(record)) + 1 >= self.maxBytes

    def format(self, record: logging.LogRecord) -> str:
        # The base class makes a line twice: once to learn its length, and once to write it.
        if self._line is None or self._line[0] is not record:
            self._line = (record, super().format(record))
        return self._line[1]

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # The library's name.
        self._lost += 1

    def _open(self) -> io.TextIOWrapper:
        # Unbuffered: what a full disk refused must not wait in memory and come out twice later.
        raw = io.FileIO(self.baseFilename, "ab")
        about = os.fstat(raw.fileno())
        self._size = about.st_size if stat.S_ISREG(about.st_mode) else None
        return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)


class JsonLines(logging.Formatter):
    """Makes a line of a record. Two are written for every attempt, so this has to be short work."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = daemon
        # ASCII only: whatever a name holds, no terminal that shows the log can be steered by it.
        self._encode = json.JSONEncoder(ensure_ascii=True, default=str).encode

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            name: _masked_value(name, value)
            for name, value in vars(record).items()
            if name not in _NO_FIELDS
        }
        event["level"] = record.levelname.lower()
        event["logger"] = record.name
        event["thread_name"] = record.threadName
        if record.exc_info:
            event["exception"] = _masked_value("", self.formatException(record.exc_info))
        if record.stack_info:
            event["stack"] = _masked_value("", record.stack_info)
        event["daemon"] = self._daemon
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        event["timestamp"] = f"{moment.isoformat(timespec='microseconds')}Z"
        event["message"] = _masked_value("", record.getMessage())
        return self._encode(event)


def _masked_value(name: str, value: object) -> object:
    if type(value) in _PLAIN and not is_secret(name):
        return value
    if isinstance(value, Mapping):
        return {str(inner): _masked_value(str(inner), item) for inner, item in value.items()}
    if value is not None and not isinstance(value, bool) and is_secret(name):
        return SHORT_MASK
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked_value("", item) for item in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return mask_message(str(value), mask=SHORT_MASK)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        log.critical("error was not caught", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        log.critical(
            "error was not caught",
            exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
            extra={"in_thread": args.thread.name if args.thread else None},
        )
