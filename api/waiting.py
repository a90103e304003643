"""Waits in the thread of a request until a master has begun a run, for as long as it prefers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

from api.turns import aside
from common.clock import SystemClock
from operations.commands import outcome
from operations.session import Session

Result = TypeVar("Result")

LONGEST_SECONDS: Final = 10.0
_WAIT: Final = re.compile(r"(?:^|[\s,;])wait=(\d{1,5})(?:$|[\s,;])")
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.1
_PAUSE_GROWTH: Final = 1.3


def seconds_of(prefer: str | None) -> float:
    """Return the seconds of `Prefer: wait=N`, ten at most; 0 without one."""
    found = _WAIT.search(prefer or "")
    return 0.0 if found is None else min(float(found.group(1)), LONGEST_SECONDS)


def await_some(read: Callable[[], Result], seconds: float) -> Result:
    """Return what is read as soon as there is something; after these seconds whatever there is."""
    clock = SystemClock()
    until = clock.monotonic() + seconds
    pause = _FIRST_PAUSE
    if seconds <= 0:
        return read()
    with aside():
        while not (found := read()):
            left = until - clock.monotonic()
            if left <= 0:
                break
            # No notification reports a refused command, so the tables are queried.
            time.sleep(min(pause, left))
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    return found


def await_instance(session: Session, command_id: int, seconds: float) -> int | None:
    """Return the instance that the command began; None if it still waits after these seconds.

    `CommandFailedError` if a master has dropped or refused it.
    """
    handled = await_some(lambda: outcome(session, command_id), seconds)
    return None if handled is None else handled.process_instance_id
