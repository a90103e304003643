"""The daemon's end of one Spark host: its start, the link to it, and its end.

A host runs for one account: the worker's own, or a tenant's. Of a tenant's host the daemon, which
is root's then, trusts nothing: it connects to a socket only if the tenant listens there, never
waits for an answer, and opens no other file in the tenant's folder. `worker/loops/host_loop.py`
drives all hosts of a worker on one thread.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from worker.processes.marks import HELPER, give
from worker.processes.tenant_start import start_program
from worker.spark.host import folders
from worker.spark.host.proxy_protocol import request_bytes
from worker.workspace import Account

log = logging.getLogger("worker.loops.host_loop")

IDLE: Final = timedelta(seconds=1)
AGAIN: Final = timedelta(seconds=5)

_COMING = timedelta(milliseconds=20)
_PATIENCE_SECONDS = 5.0
_SAID_CHARS = 300
_SAID_BYTES = 16_384
_WANTED_SECONDS = 90.0
"""Longer than a task proxy waits for a host: a tenant's that has ended is there again in time."""
_CREDENTIALS = struct.Struct("3i")


class FollowedHost:
    """One host, and what this daemon has told it."""

    def __init__(
        self,
        *,
        folder: Path,
        mode: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
        document: str,
        account: Account | None,
        clock: Callable[[], float],
    ) -> None:
        """`document` is what the host is told; `account`: another than the daemon's own."""
        self._folder = folder
        self._mode = mode
        self._argv = argv
        self._environment = environment
        self._document = document
        self._account = account
        self._clock = clock
        self._wanted_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._was_followed = False
        self._is_sweeping = False

    @property
    def is_followed(self) -> bool:
        return self._link is not None

    @property
    def pid(self) -> int | None:
        """The pid of a host that is followed; any thread may read it."""
        link = self._link
        try:
            return None if link is None else _peer_of(link)[0]
        except OSError:
            return None  # The host has just ended.

    @property
    def is_wanted(self) -> bool:
        """True if a task asks for it; for a tenant's, if one has done so lately."""
        if self._wanted_at is None:
            return False
        return self._account is None or self._clock() - self._wanted_at < _WANTED_SECONDS

    @property
    def is_over(self) -> bool:
        """True if there is none and nobody wants one."""
        return self._link is None and self._process is None and not self.is_wanted

    def want(self) -> None:
        """Have it started if it is not there; any thread may call this."""
        self._wanted_at = self._clock()

    def run_once(self) -> timedelta:
        """See that the host is there if it is wanted; how long to rest."""
        if self._link is not None and not _is_open(self._link):
            if self.is_wanted:
                log.warning("spark host is gone", extra=self._fields())
            else:
                log.info("spark host has ended", extra=self._fields())
            self._link.close()
            self._link = None
        ended = None if self._process is None else self._process.poll()
        if ended is not None:
            self._process = None
            if self._is_sweeping:
                self._is_sweeping, ended = False, None
        if self._link is None:
            # One that was found at work is followed too, wanted or not: it waits for that.
            self._link = self._connected()
            if self._link is not None:
                self._was_followed = True
                log.info("spark host is followed", extra=self._fields())
        if self._link is None and self.is_wanted:
            if ended is not None and not self._was_followed:
                told = {"exit_code": ended, "said": self._last_words(), **self._fields()}
                log.warning("spark host did not start", extra=told)
                return AGAIN
            if self._process is None:
                self._process = self._started(self._argv)
            return AGAIN if self._process is None else _COMING
        return IDLE

    def sweep(self) -> None:
        """Have removed what a host that was killed has left behind; one at work is let alone."""
        if any(self._folder.glob(folders.SERVERS)):
            self._process = self._started((*self._argv, "--sweep"))
            self._is_sweeping = self._process is not None

    def stop(self) -> None:
        """End it and all that it keeps warm."""
        if self._link is not None:
            with suppress(OSError):
                self._link.sendall(request_bytes("follow", json.dumps({"stop": True})))
            _continue(self._link)

    def close(self) -> None:
        """Leave it to itself; it ends when its last task has."""
        if self._link is not None:
            _continue(self._link)
            self._link.close()
            self._link = None

    @property
    def _output(self) -> Path:
        if self._account is None:
            return self._folder / folders.OUTPUT
        return folders.output_of(self._folder)

    def _fields(self) -> dict[str, object]:
        return {} if self._account is None else {"account": self._account.name}

    def _connected(self) -> socket.socket | None:
        """A link to a host that has been told what is wanted; None if there is none yet."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Nobody waits for a tenant, who might listen and never answer.
        link.settimeout(_PATIENCE_SECONDS if self._account is None else 0)
        try:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                link.connect(f"/proc/self/fd/{at}/{folders.SOCKET}")
            finally:
                os.close(at)
            if _uid_of(link) != (os.geteuid() if self._account is None else self._account.uid):
                log.warning("somebody else listens for the spark host", extra=self._fields())
                link.close()
                return None
            link.sendall(request_bytes("follow", self._document))
            link.setblocking(False)
        except OSError:
            link.close()
            return None
        return link

    def _last_words(self) -> str:
        try:
            with self._output.open("rb") as output:
                output.seek(max(0, self._output.stat().st_size - _SAID_BYTES))
                lines = output.read(_SAID_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[-1][:_SAID_CHARS] if lines else ""

    def _started(self, argv: Sequence[str]) -> subprocess.Popen[bytes] | None:
        account = self._account
        try:
            folders.make_folder(self._folder, self._mode, account)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            output = os.open(self._output, flags, 0o600)
            try:
                process = start_program(
                    argv,
                    account=account,
                    files=(subprocess.DEVNULL, output, output),
                    directory=str(Path(__file__).resolve().parents[2]),
                    environment=dict(self._environment),
                )
            finally:
                os.close(output)
        except OSError as error:
            told = {"error": str(error), **self._fields()}
            log.warning("spark host could not be started", extra=told)
            return None
        give(process.pid, HELPER)
        self._was_followed = False
        log.info("spark host started", extra={"pid": process.pid, **self._fields()})
        return process


def _uid_of(link: socket.socket) -> int:
    return _peer_of(link)[1]


def _peer_of(link: socket.socket) -> tuple[int, int]:
    """Return the pid and the account of the process that listened for this link."""
    found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def _continue(link: socket.socket) -> None:
    """Continue a host that a task has stopped by a signal. Otherwise it would read no more."""
    pid, _ = _peer_of(link)
    # The signal does not harm a process that has the pid of a host that has ended.
    if pid > 0:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def _is_open(link: socket.socket) -> bool:
    """The host says nothing: whatever can be read is the end."""
    try:
        return link.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
