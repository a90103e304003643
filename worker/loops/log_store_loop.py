"""Keeps logs of tasks in a store while they run, and whole when they have ended.

Another process reads the logs and talks to the store (`common.log_store`); this loop tells it which
and how far. While an attempt runs, no more is kept than what stands: what is masked already, and
what no cut will take out. An ended attempt has a mark on the disk until its log is in the store, so
that a worker that was killed goes on where it was. A store that is away costs a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from common.clock import Clock
from common.folders import closed_folder
from common.log_store.process import LogStoreError
from common.store.worker.ports import AttemptEnd, TaskStore
from worker.processes.live_attempts import SettledLog

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(seconds=10)
_RETRY: Final = timedelta(seconds=10)
_PATIENCE: Final = timedelta(minutes=2)
_AT_ONCE: Final = 40


class LogKeeper(Protocol):
    """The part of `LogStoreProcess` that is used here."""

    def keep(
        self, logs: Path, items: Sequence[Mapping[str, object]], *, patience: timedelta
    ) -> list[dict[str, Any]]: ...


class LogStoreLoop:
    """Takes reported ends by `reported` and running logs by `settled`, from any thread."""

    name = "log-store"

    def __init__(
        self,
        keeper: LogKeeper,
        store: TaskStore,
        *,
        logs: Path,
        marks: Path,
        running: Callable[[], Collection[int]],
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`logs`: the folder of all logs of this home; `marks`: one of this worker's own."""
        self._running = running
        self._keeper = keeper
        self._store = store
        self._logs = logs
        self._marks = closed_folder(marks)
        self._clock = clock
        self._wake = wake
        # True: nothing of it can be in the store, which then need not be asked.
        self._ended: dict[int, bool] = {
            int(each.name): False for each in marks.iterdir() if each.name.isdecimal()
        }
        self._settled: Mapping[int, SettledLog] = {}
        self._kept: dict[int, int] = {}
        self._instances: dict[int, int] = {}
        self._look_at = 0.0
        self._is_away = False

    def left_behind(self, task_instance_ids: Sequence[int]) -> None:
        """Remember attempts of a former incarnation, which may have ended meanwhile."""
        for each in task_instance_ids:
            self._mark(each, is_fresh=False)

    def reported(self, ends: Sequence[AttemptEnd]) -> None:
        """Have the logs of these attempts kept whole."""
        for each in ends:
            task = each.task_instance_id
            self._mark(task, is_fresh=task not in self._kept)
        self._wake()

    def settled(self, logs: Mapping[int, SettledLog]) -> None:
        """Take the logs of all running attempts, as far as they stand."""
        self._settled = logs

    def run_once(self) -> timedelta:
        """Keep some; return the time to rest. `ServiceUnreachableError` passes through."""
        try:
            more = self._keep_ended()
            now = self._clock.monotonic()
            if now >= self._look_at:
                self._keep_running()
                self._look_at = now + _INTERVAL.total_seconds()
        except LogStoreError as error:
            self._warn(str(error))
            return _RETRY
        return timedelta() if more else _INTERVAL

    def _mark(self, task_instance_id: int, *, is_fresh: bool) -> None:
        try:
            (self._marks / str(task_instance_id)).touch(mode=0o600)
        except OSError as error:
            log.warning("log is kept only if this worker goes on", extra={"cause": str(error)})
        self._ended.setdefault(task_instance_id, is_fresh)

    def _keep_ended(self) -> bool:
        """Keep logs of attempts that have ended; return whether there are more."""
        running = self._running()
        ids = [each for each in list(self._ended) if each not in running][:_AT_ONCE]
        if not ids:
            return False
        places = self._places(ids)
        items = [
            {
                "instance": places[each],
                "task": each,
                "ended": True,
                "fresh": self._ended[each],
            }
            for each in ids
            if each in places
        ]
        self._ended.update(dict.fromkeys(ids, False))
        done = set(ids) - places.keys() | self._ask(items).keys()
        for each in done:
            self._ended.pop(each, None)
            self._kept.pop(each, None)
            self._instances.pop(each, None)
            (self._marks / str(each)).unlink(missing_ok=True)
        if len(done) < len(ids):
            raise LogStoreError("some logs are not kept yet")
        return len(self._ended) > len(done)

    def _keep_running(self) -> None:
        settled, running = self._settled, self._running()
        grown = [
            each
            for each in settled
            if each in running and settled[each].end > self._kept.get(each, 0)
        ]
        places = self._places(grown)
        for start in range(0, len(grown), _AT_ONCE):
            part = [each for each in grown[start : start + _AT_ONCE] if each in places]
            items = [
                {
                    "instance": places[each],
                    "task": each,
                    "ended": False,
                    "upto": settled[each].end,
                    "holds": settled[each].puts_out,
                    "fresh": False,
                }
                for each in part
            ]
            # Before: what is written though no answer comes is there.
            self._kept.update({each: self._kept.get(each, 0) for each in part})
            for each in self._ask(items):
                self._kept[each] = settled[each].end

    def _ask(self, items: Sequence[Mapping[str, object]]) -> dict[int, dict[str, Any]]:
        """Have logs kept; return the answers that are no failures."""
        if not items:
            return {}
        answers = self._keeper.keep(self._logs, items, patience=_PATIENCE)
        failed = [each for each in answers if "error" in each]
        if failed:
            self._warn(str(failed[0]["error"]))
        elif self._is_away:
            self._is_away = False
            log.info("the store of logs is there again")
        return {int(each["task"]): each for each in answers if "error" not in each}

    def _places(self, ids: Sequence[int]) -> dict[int, int]:
        unknown = [each for each in ids if each not in self._instances]
        if unknown:
            self._instances.update(self._store.log_places(unknown))
        return {each: self._instances[each] for each in ids if each in self._instances}

    def _warn(self, cause: str) -> None:
        if not self._is_away:
            self._is_away = True
            log.warning("the store of logs keeps nothing at the moment", extra={"cause": cause})
