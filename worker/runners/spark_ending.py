"""Ends an attempt's applications, and waits until their manager reports their end.

spark-submit is ended first, so that it submits nothing more. Then every application with one of the
attempt's tags is killed, and its state is requested until it is final; a manager that refuses,
fails or hangs is asked again. If no application is seen, the manager must report none for a while:
one may show up late, and the owner of a driver may not be known yet. If this process is killed
meanwhile, the workers' sweep ends the rest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from worker.runners.spark_process import Submission
from worker.runners.spark_watch import Watch
from worker.spark.managers.base import Application, ApplicationManager

_SUBMIT_GRACE_SECONDS: Final = 2.5
_REST_SECONDS: Final = (0.15, 0.35)
_KILL_AGAIN_SECONDS: Final = 2.0
_NAMELESS_SECONDS: Final = 30.0
"""The wait for a driver that may be ours: on a full cluster it may itself wait for days."""


def end(
    watch: Watch,
    tags: Sequence[str],
    submission: Submission,
    say: Callable[[str], None],
    *,
    late_seconds: float,
    limit_seconds: float = float("inf"),
    may_be_ours: Callable[[ApplicationManager], Collection[str]] = lambda _: (),
) -> bool:
    """End the attempt's applications; True if the manager has confirmed that within the limit.

    `tags` begins with the attempt's own. An application that was submitted and never seen may show
    up for `late_seconds`. `may_be_ours` returns the drivers that may be the attempt's and don't
    show it yet: they are waited for, but not killed.
    """
    begun = time.monotonic()
    submission.never_start()
    submission.terminate()
    killer = Killer(watch)
    quiet_since: float | None = None
    while True:
        now = time.monotonic()
        if now - begun > limit_seconds:
            return False
        if submission.is_running() and now - begun > _SUBMIT_GRACE_SECONDS:
            submission.kill()
        seen = watch.find(tags)
        if seen is not None and not killer.has_work(seen) and not submission.is_running():
            # Not from when spark-submit ended, but from when it was first known that nothing was.
            quiet_since = now if quiet_since is None else quiet_since
            may_come = submission.was_started and not any(tags[0] in each.tags for each in seen)
            nameless = sorted(may_be_ours(watch.manager)) if submission.was_started else []
            late = _NAMELESS_SECONDS if nameless else late_seconds if may_come else 0.0
            if nameless:
                watch.say_once(
                    f"{', '.join(nameless)} may be this attempt's, which is known when it has made"
                    " its application: that is waited for"
                )
            if now - quiet_since >= late:
                for each in seen:
                    say(f"{each.id} is {each.state.value}, says {watch.manager.name}")
                if nameless:
                    say(f"{', '.join(nameless)} still shows nothing: a sweep ends it if it is ours")
                elif not seen and late_seconds:
                    say(f"no application was left, says {watch.manager.name}")
                return True
        else:
            quiet_since = None
        time.sleep(random.uniform(*_REST_SECONDS))  # noqa: S311  # No secret depends on it.


class Killer:
    """Kills live applications, and again if they stay alive."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._asked_at: dict[str, float] = {}

    def has_work(self, seen: Sequence[Application]) -> bool:
        """Kill the live ones of these applications; True if there are any."""
        live = [each for each in seen if not each.state.is_final]
        for each in live:
            now = time.monotonic()
            if now - self._asked_at.get(each.id, -_KILL_AGAIN_SECONDS) >= _KILL_AGAIN_SECONDS:
                self._asked_at[each.id] = now
                self._watch.kill(each)
        return bool(live)
