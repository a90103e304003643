"""Writes what an attempt says of its Spark application into a file that its worker looks at.

Runs in the task's own process: standard library only. It decides nothing. The file is replaced as
a whole, so that nobody reads half of one; at most four times a second, however often a progress
message comes; and what was said last is always written, by a thread of its own if need be. Any
thread may update. A file that can't be written costs what it was to show, never the task.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.model.spark import SparkFacts

_PAUSE_SECONDS = 0.25


class FactsFile:
    """The facts of one attempt, in memory and in a file. Without a path, in memory alone."""

    def __init__(self, path: Path | str | None, *, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._path = None if path is None else Path(path)
        self._pause_seconds = pause_seconds
        self._lock = threading.Lock()
        self._facts = SparkFacts()
        self._written: SparkFacts | None = None
        self._next_write = 0.0
        self._timer: threading.Timer | None = None
        if self._path is not None:
            atexit.register(self.flush)

    @property
    def current(self) -> SparkFacts:
        """All that has been said so far."""
        return self._facts

    def update(self, **changes: Any) -> None:
        """Say this besides; written now if the last writing was long enough ago, else soon."""
        with self._lock:
            self._facts = replace(self._facts, **changes)
            if self._path is None or self._facts == self._written or self._timer is not None:
                return
            wait = self._next_write - time.monotonic()
            if wait <= 0:
                self._write()
                return
            self._timer = threading.Timer(wait, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Write now what has not been written."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._facts != self._written:
                self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        self._next_write = time.monotonic() + self._pause_seconds
        self._written = self._facts
        # Beside it, so that the name changes hands at once.
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with contextlib.suppress(OSError):
            fresh.write_text(self._facts.to_json(), encoding="utf-8")
            fresh.replace(self._path)
