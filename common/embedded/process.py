"""Starting, watching and ending one server process that outlives its starter.

Shared by the two embedded servers, which say what to run and when it is ready. *Starting* means:
in a session of its own, with its output in a log file, and either ready within a deadline or an
error with the last lines of that log. Two starters at once are serialised by a lock file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from common.clock import SystemClock
from common.errors import ConfigurationError, SchedulerError
from common.folders import closed_folder
from common.port_freeing import free_of_tasks
from common.port_holders import holder
from common.ports import free_port, is_port_free
from common.process_identity import is_alive, process_start_time

_clock = SystemClock()

_POLL_SECONDS = 0.01
_LOG_TAIL_LINES = 12
_LOG_LIMIT_BYTES = 10_000_000

_started: list[subprocess.Popen[bytes]] = []
"""Servers that this very process started: kept, so that the next start reaps those that ended."""


class ServerStartError(SchedulerError):
    """A server did not become ready; the text says why, with the end of its log."""


@contextmanager
def exclusive(home: Path, name: str) -> Iterator[None]:
    """Hold the right to start or stop this server; waits for whoever has it."""
    path = home / "run" / f"{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever may open the file may lock it, so others may not; a former version let them.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w")
        with suppress(PermissionError):  # Another account's, who decides on it.
            os.fchmod(file.fileno(), 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"can't write below {home}: {error}; choose another folder with ORCAFLOW_HOME"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def choose_port(wanted: int, last: int | None, *, home: Path, server: str, key: str) -> int:
    """The port that is configured, else the last one if it is still free, else any free one.

    A task run of this home that holds the configured port, or the last one, is ended.
    """

    def is_free(port: int) -> bool:
        if is_port_free(port):
            return True
        return free_of_tasks(port, home=home, server=f"the embedded {server}") is not None

    if wanted:
        if not is_free(wanted):
            raise ConfigurationError(
                f"port {wanted} is in use{holder(wanted)}, so the embedded {server} can't listen "
                "on it: end the program that has it, "
                f"or set {key} to another port (0 takes a free one)"
            )
        return wanted
    return last if last and is_free(last) else free_port()


def keep_running(home: Path, name: str) -> None:
    """Note that a server was started: if it dies, `is_kept_running` is True until it is stopped."""
    _kept_running(home, name).touch(mode=0o600)


def let_end(home: Path, name: str) -> None:
    """Note that a server is being stopped."""
    _kept_running(home, name).unlink(missing_ok=True)


def is_kept_running(home: Path, name: str) -> bool:
    """Return True if this account has started the server, and no account has stopped it since."""
    try:
        return _kept_running(home, name).stat().st_uid == os.geteuid()
    except OSError:
        return False


def _kept_running(home: Path, name: str) -> Path:
    return home / "run" / f"{name}.kept"


def launch(
    command: Sequence[str],
    *,
    server: str,
    log: Path,
    is_ready: Callable[[int], bool],
    within: timedelta,
    environment: dict[str, str] | None = None,
) -> tuple[int, float]:
    """Start the command and wait until it is ready; the pid and start time of its process.

    `is_ready` is given the pid. Whatever goes wrong, no process is left behind.
    """
    closed_folder(log.parent)
    _rotate(log)
    with log.open("ab") as output:
        begins_at = output.tell()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    _started[:] = [*(other for other in _started if other.poll() is None), process]
    try:
        deadline = _clock.monotonic() + within.total_seconds()
        while process.poll() is None:
            if is_ready(process.pid):
                start_time = process_start_time(process.pid)
                if start_time is not None:
                    return process.pid, start_time
            if _clock.monotonic() > deadline:
                raise ServerStartError(
                    f"the embedded {server} was not ready within {within.total_seconds():g} s"
                    + log_tail(log, begins_at)
                )
            # The server does not notify anybody when it is ready, so it is polled.
            time.sleep(_POLL_SECONDS)
        raise ServerStartError(
            f"the embedded {server} ended at once ({_ending(process.returncode)})"
            + log_tail(log, begins_at)
        )
    except BaseException:
        if process.poll() is None:
            process.kill()
            process.wait()
        raise


def end(pid: int, start_time: float, *, by: Sequence[signal.Signals], each: timedelta) -> None:
    """Signal the process, the next signal following if it is still there after a while."""
    for number in by:
        if not is_alive(pid, start_time):
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = _clock.monotonic() + each.total_seconds()
        while is_alive(pid, start_time) and _clock.monotonic() < deadline:
            # A process that is not a child cannot be waited for, so it is polled.
            time.sleep(_POLL_SECONDS)
    if is_alive(pid, start_time):
        raise SchedulerError(f"process {pid} could not be ended")


def log_tail(log: Path, begins_at: int = 0) -> str:
    """The last lines of a log after an offset, as the end of an error text."""
    try:
        with log.open("rb") as file:
            file.seek(begins_at)
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()][-_LOG_TAIL_LINES:]
    if not lines:
        return f"; it wrote nothing to {log}"
    return f"; the end of {log}:\n" + "\n".join(f"  {line}" for line in lines)


def _rotate(log: Path) -> None:
    """Put a long log aside before a start; the servers write little, so this is often enough."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
