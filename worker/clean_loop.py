"""Removes directories of attempts that are over, apart from everything that is in a hurry.

Removing a directory may take a disk longer than starting a process takes, so it is kept away from
the supervisor's thread. What a crash leaves undone stays on the disk; nothing else depends on it.
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


class CleanLoop:
    """Takes directories with `remove`, from any thread."""

    name = "clean"

    def __init__(self, *, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self._waiting: deque[Path] = deque()

    def remove(self, directory: Path) -> None:
        """Have a directory removed some time soon."""
        self._waiting.append(directory)
        self._wake()

    def run_once(self) -> timedelta:
        """Remove what waits; how long to rest."""
        while self._waiting:
            directory = self._waiting.popleft()
            try:
                remove_directory(directory)
            except OSError as error:
                log.warning(
                    "directory could not be removed",
                    extra={"directory": str(directory), "cause": str(error)},
                )
        return _IDLE
