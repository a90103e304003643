"""Copies the facts of live attempts about their Spark applications from their files to their rows.

A file is read only when it has changed, and the news of all attempts are written in one statement.
The last of them may be missed, since an attempt's end carries the facts once more. Nothing is
decided by them. No threads and no time of its own: a service or a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.spark import SparkFacts
from common.runtime import metrics
from common.store.worker.ports import TaskStore
from worker.processes.spark_facts import read_facts

log = logging.getLogger(__name__)

_CHECK_INTERVAL = timedelta(seconds=0.5)
_IDLE = timedelta(seconds=1)
_NOTHING = SparkFacts()

_Stamp: TypeAlias = tuple[int, int, int]
"""Of a file's state: when it was written, which one it is, and its size."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The facts that an attempt's row holds by now, and the state of the file they are from."""

    stamp: _Stamp
    facts: SparkFacts


class TrackLoop:
    """Keeps the rows of a worker's live Spark attempts up to date."""

    name = "track"

    def __init__(
        self,
        *,
        store: TaskStore,
        node: Callable[[], Node | None],
        live: Callable[[], Mapping[int, Path]],
    ) -> None:
        """`live` names the file of each live attempt that may have one; called on our thread."""
        self._store = store
        self._node = node
        self._live = live
        self._known: dict[int, _Known] = {}
        self._reported_as: Node | None = None

    def run_once(self) -> timedelta:
        """Tell what has changed; how long to rest.

        `ServiceUnreachableError` passes through; the same is told again by the next pass.
        """
        node = self._node()
        if node is None:
            self._known.clear()
            return _IDLE
        if node != self._reported_as:
            # What a former incarnation told may have come too late to be accepted.
            self._known.clear()
            self._reported_as = node
        live = self._live()
        for task_id in [each for each in self._known if each not in live]:
            del self._known[task_id]
        changed = self._changed(live)
        news = {
            task_id: known.facts
            for task_id, known in changed.items()
            if known.facts != self._facts(task_id)
        }
        if news:
            self._record(node, news)
        self._known |= changed
        _measure(known.facts for known in self._known.values())
        return _CHECK_INTERVAL if live else _IDLE

    def _record(self, node: Node, news: Mapping[int, SparkFacts]) -> None:
        try:
            self._store.record_facts(node, news)
        except ServiceUnreachableError:
            raise
        except Exception:
            if len(news) == 1:
                # They are for people alone; the next change of the same attempt may fit again.
                log.exception("facts were refused", extra={"task_instance_id": min(news)})
                return
            for task_id, facts in news.items():
                self._record(node, {task_id: facts})

    def _facts(self, task_id: int) -> SparkFacts:
        known = self._known.get(task_id)
        return _NOTHING if known is None else known.facts

    def _changed(self, live: Mapping[int, Path]) -> dict[int, _Known]:
        changed = {}
        for task_id, path in live.items():
            known = self._known.get(task_id)
            stamp = _stamp_of(path)
            if stamp is not None and (known is None or known.stamp != stamp):
                # Looked at before it is read: what is written in between is read again.
                changed[task_id] = _Known(stamp, read_facts(path))
        return changed


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_ino, about.st_size


def _measure(all_facts: Iterable[SparkFacts]) -> None:
    spark = [facts.progress for facts in all_facts if facts != _NOTHING]
    running = sum(each.tasks_running for each in spark)
    done = sum(each.tasks_done for each in spark)
    metrics.spark_attempts.set(len(spark))
    metrics.spark_tasks.labels(state="running").set(running)
    metrics.spark_tasks.labels(state="done").set(done)
    metrics.spark_tasks.labels(state="waiting").set(
        max(0, sum(each.tasks for each in spark) - running - done)
    )
