"""Tells whether this worker is fit to start attempts: room on its volumes, and starts that work.

A worker that can't start anything fails each attempt at once, and would so take most of the queue.
It is *unfit* while one of its volumes is nearly full, and after a start that failed for its own
reasons, until a probe has written to the volumes and started a process. An unfit worker claims
nothing and is not ready. Any thread may ask; the claim loop's thread alone probes.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

from common.clock import Clock
from common.volumes import lack_of_room

log = logging.getLogger(__name__)

_VALID_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_PROBE_BYTES: Final = 64 * 1024
_PROBE_SECONDS: Final = 10.0

Probe: TypeAlias = Callable[[Sequence[Path]], None]
"""Tries what a start needs. Raises `OSError` or `subprocess.SubprocessError` if it fails."""


class Fitness:
    """The fitness of one worker."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        reserved_gb: float,
        clock: Clock,
        probe: Probe | None = None,
        look: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        """`folders`: where attempts write. `reserved_gb`: the room that their volumes must have.

        `probe` tries a start, and `look` looks at a folder's volume.
        """
        self._folders = tuple(folders)
        self._reserved_gb = reserved_gb
        self._clock = clock
        self._probe = probe or try_a_start
        self._look = look
        self._lock = Lock()
        self._valid_until = 0.0
        self._problem: str | None = None
        self._blamed: str | None = None
        self._probe_at = 0.0
        self._pause = _FIRST_PAUSE
        self._calm_at = 0.0

    def blame(self, error: BaseException) -> None:
        """Take the worker out of the rotation: it could not start an attempt."""
        now = self._clock.monotonic()
        with self._lock:
            if self._blamed is None:
                # Soon again after the last time: the probe does not find what is wrong.
                again = now < self._calm_at
                self._pause = min(2 * self._pause, _LONGEST_PAUSE) if again else _FIRST_PAUSE
                self._probe_at = now + self._pause
                log.error("attempts can't be started here", extra={"cause": str(error)})
            self._blamed = str(error)

    def problem(self) -> str | None:
        """Return the reason why the worker is unfit; None if it is fit. Probes nothing."""
        with self._lock:
            if self._blamed is not None:
                return f"attempts can't be started: {self._blamed}"
        return self._room_problem()

    def __call__(self) -> bool:
        """Return whether the worker may claim, after a probe if one is due."""
        with self._lock:
            blamed, due = self._blamed, self._clock.monotonic() >= self._probe_at
        if blamed is not None and not (due and self._recovers()):
            return False
        return self._room_problem() is None

    def _recovers(self) -> bool:
        try:
            self._probe(self._folders)
        except (OSError, subprocess.SubprocessError) as error:
            with self._lock:
                self._blamed = str(error)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                self._probe_at = self._clock.monotonic() + self._pause
            return False
        with self._lock:
            self._blamed = None
            self._calm_at = self._clock.monotonic() + 2 * _LONGEST_PAUSE
        log.warning("attempts can be started here again")
        return True

    def _room_problem(self) -> str | None:
        now = self._clock.monotonic()
        with self._lock:
            if now < self._valid_until:
                return self._problem
        problem = next(filter(None, map(self._without_room, self._folders)), None)
        with self._lock:
            if problem is None and self._problem is not None:
                log.warning("volumes have room again")
            elif problem is not None and self._problem is None:
                log.error("volume has no room for more work", extra={"cause": problem})
            self._problem, self._valid_until = problem, now + _VALID_SECONDS
        return problem

    def _without_room(self, folder: Path) -> str | None:
        try:
            about = self._look(folder)
        except OSError as error:
            return f"{folder} can't be looked at: {error.strerror}"
        return lack_of_room(
            folder, about, reserved_gb=self._reserved_gb, setting="worker.reserved_disk_gb"
        )


def try_a_start(folders: Sequence[Path]) -> None:
    """Write a file into each folder and start a process."""
    for folder in folders:
        path = folder / f".probe-{os.getpid()}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            rest = memoryview(bytes(_PROBE_BYTES))
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
            path.unlink()
    subprocess.run(("/bin/sh", "-c", ":"), check=True, timeout=_PROBE_SECONDS)
