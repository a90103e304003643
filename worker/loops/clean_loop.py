"""Removes directories of ended attempts, off the supervisor's thread.

A disk may take longer to remove a directory than to start a process. Those of attempts that ended
within about a second are removed together, so that a run's directories are not removed between two
of its tasks. After a crash some stay on the disk; nothing depends on them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from worker.workspace import remove_directory

log = logging.getLogger(__name__)

_IDLE = timedelta(minutes=1)
_GATHER = timedelta(seconds=1)


class CleanLoop:
    """Takes directories with `remove`, from any thread."""

    name = "clean"

    def __init__(self, *, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self._waiting: deque[Path] = deque()
        self._is_gathering = False

    def remove(self, directory: Path) -> None:
        """Have a directory removed some time soon."""
        self._waiting.append(directory)
        # Later ones must not cut the rest short in which they are gathered.
        if not self._is_gathering:
            self._wake()

    def run_once(self) -> timedelta:
        """Remove what was waiting for about a second; how long to rest."""
        if self._waiting and not self._is_gathering:
            self._is_gathering = True
            return _GATHER
        self.remove_all()
        self._is_gathering = False
        # What came in just now found the loop gathering, and has woken nobody.
        return _GATHER if self._waiting else _IDLE

    def remove_all(self) -> None:
        """Remove what waits, now."""
        while self._waiting:
            directory = self._waiting.popleft()
            try:
                remove_directory(directory)
            except OSError as error:
                log.warning(
                    "directory could not be removed",
                    extra={"directory": str(directory), "cause": str(error)},
                )
