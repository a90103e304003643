"""Keeps a warden beside the daemon (`worker.warden`), and lets it hear that the daemon is at work.

No threads and no time of its own: a service calls `run_once`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from common.config import Config
from worker.warden import ALIVE, GOOD_BYE

log = logging.getLogger(__name__)

_INTERVAL = timedelta(seconds=3)


def warden_command(config: Config) -> tuple[str, ...]:
    """Return the command of the warden of this process, which is given that of its passes."""
    program = (sys.executable, "-m")
    settings = config.worker
    return (
        *(*program, "worker.warden"),
        *(*program, "worker.warden_pass", "--home", str(config.home), "--host", settings.host),
        *("--port", str(settings.port), "--daemon", str(os.getpid())),
    )


class WardenLoop:
    """Starts the warden, and another one if it is gone."""

    name = "warden"

    def __init__(
        self, command: Sequence[str], *, directory: Path, environment: Mapping[str, str]
    ) -> None:
        self._command = tuple(command)
        self._directory = directory
        self._environment = environment
        self._warden: subprocess.Popen[bytes] | None = None

    def run_once(self) -> timedelta:
        """Let the warden hear of us; how long to rest."""
        if self._warden is None or self._warden.poll() is not None:
            self._start()
        self._say(ALIVE)
        return _INTERVAL

    def close(self, *, nothing_left: bool) -> None:
        """Leave the warden: with nothing to watch over, or to do its work from now on."""
        if self._warden is None:
            return
        if nothing_left:
            self._say(GOOD_BYE)
        if self._warden.stdin is not None:
            with suppress(OSError):
                self._warden.stdin.close()
        if nothing_left:
            self._warden.wait()
        self._warden = None

    def _start(self) -> None:
        try:
            self._warden = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("warden could not be started", extra={"error": str(error)})
            self._warden = None
            return
        if self._warden.stdin is not None:
            # A warden that is stuck must not hold the daemon up.
            os.set_blocking(self._warden.stdin.fileno(), False)

    def _say(self, what: bytes) -> None:
        if self._warden is not None and self._warden.stdin is not None:
            with suppress(OSError):
                self._warden.stdin.write(what)
