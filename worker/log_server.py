"""Answers questions about logs at the worker's own port: `GET /v1/log?instance=&task=&from=&max=`.

The path is made from the ids. With `wait` an answer comes when there is something to read; one loop
looks after all who wait, and none of them has a thread meanwhile. Who may ask is decided by
`common.log_access`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

from common.clock import Clock
from common.log_access import LogAccessError, LogGuard, LogQuestion
from common.log_files import open_by_ids
from common.runtime.health import Asked, Later, Response

log = logging.getLogger(__name__)

_LOOK: Final = timedelta(milliseconds=100)
_IDLE: Final = timedelta(hours=1)
_MOST_WAITING: Final = 500


@dataclass(slots=True)
class _Waiting:
    question: LogQuestion
    file: int
    until: float
    later: Later


class LogServer:
    """A route of the worker's port, and the loop that looks after those who wait."""

    name = "log-waits"

    def __init__(
        self,
        root: Path,
        *,
        guard: LogGuard,
        clock: Clock,
        runs_here: Callable[[int], bool],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`runs_here`: True while this worker runs the attempt."""
        self._root = root
        self._guard = guard
        self._clock = clock
        self._runs_here = runs_here
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []

    def answer(self, asked: Asked) -> Response | None:
        """Answer a request; None if it waits, and is answered later."""
        try:
            question = LogQuestion.read(asked.query)
        except ValueError as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        try:
            self._guard.check(asked.authorization, question, now=self._clock.now().timestamp())
        except LogAccessError as error:
            return _refusal(HTTPStatus.UNAUTHORIZED, str(error))
        try:
            file = open_by_ids(self._root, question.instance, question.task)
        except OSError:
            # A link or a pipe in its place is no log either; nothing of it is told.
            return _refusal(HTTPStatus.NOT_FOUND, "there is no such log here")
        if question.wait_seconds and self._has_nothing_yet(file, question):
            until = self._clock.monotonic() + question.wait_seconds
            with self._lock:
                if len(self._waiting) < _MOST_WAITING:
                    self._waiting.append(_Waiting(question, file, until, asked.later()))
                    self._wake()
                    return None
        return self._read(file, question)

    def run_once(self) -> timedelta:
        """Answer those for whom there is something, or whose time is over; return the rest."""
        now = self._clock.monotonic()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        still = []
        for each in waiting:
            if now < each.until and self._has_nothing_yet(each.file, each.question):
                still.append(each)
            else:
                each.later.send(self._read(each.file, each.question))
        with self._lock:
            self._waiting = still + self._waiting
            return _LOOK if self._waiting else _IDLE

    def close(self) -> None:
        """Hang up on all who wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            os.close(each.file)
            each.later.drop()

    def _has_nothing_yet(self, file: int, question: LogQuestion) -> bool:
        return os.fstat(file).st_size == question.start and self._runs_here(question.task)

    def _read(self, file: int, question: LogQuestion) -> Response:
        try:
            # First: what ends in between has written its last line by then.
            ended = not self._runs_here(question.task)
            size = os.fstat(file).st_size
            body = os.pread(file, question.most, question.start) if question.start < size else b""
        except OSError as error:
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, error.strerror or "it can't be read")
        finally:
            os.close(file)
        headers = {
            "Content-Type": "application/octet-stream",
            "Log-Size": str(size),
            "Log-Ended": "true" if ended else "false",
        }
        return Response(status=HTTPStatus.OK, headers=headers, body=body)


def _refusal(status: HTTPStatus, why: str) -> Response:
    body = json.dumps({"error": why}).encode() + b"\n"
    return Response(status=status, headers={"Content-Type": "application/json"}, body=body)
