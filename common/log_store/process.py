"""The process that knows the store of logs, as its parent sees it: requests with a time limit.

It is started when it is first needed, and again if it was gone; one that does not answer in time is
killed, so that a store that hangs holds nobody up for longer.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final

from common.clock import SystemClock
from common.errors import ConfigurationError, ServiceUnreachableError

SCHEMES: Final = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")

_DROP_PATIENCE: Final = timedelta(minutes=1)
_MOST_LINE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 65_536


class LogStoreError(ServiceUnreachableError):
    """The store of logs does not do what it is asked for; no credential is in the text."""


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """Some bytes of a log, the size of what is kept of it, and whether it goes on."""

    body: bytes
    size: int
    has_ended: bool


class LogStoreProcess:
    """A store of logs. Any thread may ask; one after the other is answered."""

    def __init__(self, url: str, *, cluster: str) -> None:
        """`cluster` is the database's token. `ConfigurationError` for no URL of a store."""
        if url.partition("://")[0] not in SCHEMES:
            raise ConfigurationError(
                "log_store is no URL of a store; take one like file:///srv/logs or"
                f" s3://bucket/logs?region=eu-west-1 (known are {', '.join(SCHEMES)})"
            )
        self._url = url
        self._cluster = cluster
        self._clock = SystemClock()
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def keep(
        self, logs: Path, items: Sequence[Mapping[str, object]], *, patience: timedelta
    ) -> list[dict[str, Any]]:
        """Keep logs below a folder; an answer for each. `LogStoreError` if that fails altogether.

        An item has the ids `instance` and `task`, `ended`, `upto` for one that has not, `holds` if
        values that it puts out may be masked at its end, and `fresh` if nothing of it can be there.
        """
        answer, _ = self.ask({"do": "keep", "logs": str(logs), "items": items}, patience=patience)
        return list(answer["items"])

    def drop(self, process_instance_id: int) -> None:
        """Remove the logs of a run; `LogStoreError` if that can't be done."""
        self.ask({"do": "drop", "instance": process_instance_id}, patience=_DROP_PATIENCE)

    def read(
        self, instance: int, task: int, *, start: int, most: int, patience: timedelta
    ) -> StoredPiece | None:
        """Return a part of a log; None if nothing of it is there."""
        answer, body = self.ask(
            {"do": "read", "instance": instance, "task": task, "from": start, "max": most},
            patience=patience,
        )
        if answer.get("missing"):
            return None
        return StoredPiece(body, int(answer["size"]), has_ended=bool(answer["ended"]))

    def ask(
        self, request: Mapping[str, object], *, patience: timedelta
    ) -> tuple[dict[str, Any], bytes]:
        """Ask for something; `LogStoreError` if it is refused or takes too long."""
        with self._lock:
            try:
                if self._process is not None and self._process.poll() is None:
                    # It may end at this very moment, having had nothing to do.
                    with suppress(BrokenPipeError):
                        return self._exchange(request, patience)
                self._start(2 * patience)
                return self._exchange(request, patience)
            except (OSError, ValueError) as error:
                self._end()
                raise LogStoreError(f"the store of logs is not read ({error})") from error

    def close(self) -> None:
        """End the process; what it was writing is written again by the next one."""
        with self._lock:
            self._end()

    def _start(self, patience: timedelta) -> None:
        self._end()
        # The parent's environment, since clients of stores take credentials from there.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "common.log_store.program"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        opened = {"url": self._url, "cluster": self._cluster}
        try:
            self._exchange(opened, patience)
        except LogStoreError:
            self._end()
            raise

    def _end(self) -> None:
        process, self._process, self._buffer = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _exchange(
        self, request: Mapping[str, object], patience: timedelta
    ) -> tuple[dict[str, Any], bytes]:
        deadline = self._clock.monotonic() + patience.total_seconds()
        self._send(json.dumps(request).encode() + b"\n", deadline)
        while b"\n" not in self._buffer:
            if len(self._buffer) > _MOST_LINE_BYTES:
                raise ValueError("its process sends nonsense")
            self._receive(deadline)
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        length = int(answer.pop("body"))
        while len(self._buffer) < length:
            self._receive(deadline)
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        if "error" in answer:
            raise LogStoreError(f"the store of logs refuses: {answer['error']}")
        return answer, body

    def _send(self, content: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        while content:
            self._await(pipe, select.POLLOUT, deadline)
            content = content[os.write(pipe, content[:_PIECE_BYTES]) :]

    def _receive(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        self._await(pipe, select.POLLIN, deadline)
        piece = os.read(pipe, _PIECE_BYTES)
        if not piece:
            raise BrokenPipeError("its process has ended")
        self._buffer += piece

    def _await(self, pipe: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        left = deadline - self._clock.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("it does not answer in time")
