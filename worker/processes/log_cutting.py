"""Cuts logs that have outgrown their limit and masks secrets in them, off the supervisor's thread.

Giving back what a task has written within a second may take the file system longer than starting a
hundred processes. The supervisor's thread finds logs that are too long, or have grown and may hold
secrets (`worker.log_masking`), and asks for each, one request at a time for a log, and is told when
it is done; it alone writes to logs otherwise.

The logs take turns, a part of a log at a time. So the end of an attempt does not wait until the
large logs of other attempts are masked.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta

from worker import task_log
from worker.log_masking import LogMask

log = logging.getLogger(__name__)

_IDLE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    task_instance_id: int
    log: int
    before: task_log.Cut | None
    steps: Generator[None, None, task_log.Cut | None]
    done: Callable[[task_log.Cut | None], None]


class LogCutter:
    """Takes logs with `cut`, from the supervisor's thread."""

    name = "logs"

    def __init__(self, *, limit_bytes: int, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` asks for a `run_once`, from any thread."""
        self.limit_bytes = limit_bytes
        self._wake = wake
        self._waiting: deque[_Request] = deque()

    @property
    def waits(self) -> bool:
        """True if a log waits to be cut."""
        return bool(self._waiting)

    def cut(
        self,
        task_instance_id: int,
        log: int,
        *,
        before: task_log.Cut | None,
        mask: LogMask | None = None,
        done: Callable[[task_log.Cut | None], None],
    ) -> None:
        """Have a log cut and masked; `done` is called on another thread.

        Not, if the worker ends before.
        """
        # A descriptor of its own: the attempt's may be closed meanwhile, and mean another file.
        own = os.dup(log)
        act = _cut_in_steps if mask is None else mask.cut_in_steps
        steps = act(own, limit_bytes=self.limit_bytes, before=before)
        self._waiting.append(
            _Request(
                task_instance_id=task_instance_id, log=own, before=before, steps=steps, done=done
            )
        )
        self._wake()

    def run_once(self) -> timedelta:
        """Cut and mask the logs that wait, by turns; return how long to rest."""
        while self._waiting:
            request = self._waiting.popleft()
            cut = request.before
            try:
                next(request.steps)
            except StopIteration as end:
                cut = end.value
            except Exception:
                # The trouble of one log must not stop the worker.
                log.exception(
                    "task log could not be cut or masked",
                    extra={"task_instance_id": request.task_instance_id},
                )
            else:
                self._waiting.append(request)
                continue
            os.close(request.log)
            request.done(cut)
        return _IDLE


def _cut_in_steps(
    log: int, *, limit_bytes: int, before: task_log.Cut | None
) -> Generator[None, None, task_log.Cut | None]:
    """Cut a log without secrets, in a single step."""
    yield from ()
    return task_log.cut(log, limit_bytes=limit_bytes, before=before)
