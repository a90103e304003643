"""Removes files of datasets that no table names, and segments that were replaced long ago.

A task that was killed, or whose publication was refused, leaves its files behind. They are removed
once the attempt has ended and nothing in their folder has changed for an hour; never those of a
live attempt, of another database, or of a segment, be it used or not. Several workers may do the
same at once. A loop with a step, and no thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from common.clock import Clock
from common.store.worker.datasets import Wanted
from worker.datasets.folders import DatasetFolders, WriteFolder

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(minutes=10)
_GRACE: Final = timedelta(hours=1)
_PAGE: Final = 500


class Store(Protocol):
    """`common.store.worker.datasets.PostgresDatasetStore`."""

    def wanted(self, datasets: Collection[str], task_ids: Collection[int]) -> Wanted: ...

    def purge(self, age: timedelta) -> int: ...


class DatasetLoop:
    """Looks through the folders of datasets again and again."""

    name = "dataset files"

    def __init__(
        self,
        store: Store,
        folders: DatasetFolders,
        *,
        remove: Callable[[Path], None],
        clock: Clock,
        unused_days: int,
    ) -> None:
        """`unused_days`: the age at which replaced segments go; 0 is never."""
        self._store = store
        self._folders = folders
        self._remove = remove
        self._clock = clock
        self._unused = timedelta(days=unused_days)

    def run_once(self) -> timedelta:
        """Look once; return the time to rest. `ServiceUnreachableError` passes through."""
        if self._unused and (purged := self._store.purge(self._unused)):
            log.info("replaced segments removed", extra={"segments": purged})
        old = self._clock.now().timestamp() - _GRACE.total_seconds()
        for page in _pages(each for each in self._folders.all() if each.changed_before(old)):
            wanted = self._store.wanted(
                {each.dataset for each in page}, {each.task_id for each in page}
            )
            for each in page:
                is_named = f"{each.dataset}/{each.path.name}" in wanted.folders
                if each.task_id not in wanted.live and not is_named:
                    log.info(
                        "unpublished files removed",
                        extra={"dataset": each.dataset, "task_instance_id": each.task_id},
                    )
                    self._remove(each.path)
        return _INTERVAL


def _pages(found: Iterator[WriteFolder]) -> Iterator[list[WriteFolder]]:
    page: list[WriteFolder] = []
    for each in found:
        page.append(each)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page
