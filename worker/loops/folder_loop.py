"""Removes what no row needs any longer: logs and directories of runs that are gone.

Rows go by `orcaflow instance delete`, `orcaflow purge` or a master's retention, on whatever host;
each worker then finds the folders in its own home, a page at a time. Directories of attempts that
succeeded go too, if a crash kept their worker from removing them. Nothing younger than a day is
touched, and nothing at all in a home whose folders belong to another database.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from common.clock import Clock
from common.log_store.process import LogStoreError
from common.store.worker.ports import TaskStore
from worker.workspace import remove_directory

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(hours=1)
_BREATH: Final = timedelta(seconds=1)
_LEAST_AGE: Final = timedelta(days=1)
_PAGE: Final = 500
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_OWNER: Final = "database"
_LOGS: Final = "logs"


class FolderLoop:
    """Goes through the folders of one home again and again; other workers may do the same there."""

    name = "folders"

    def __init__(
        self,
        store: TaskStore,
        *,
        tasks: Path,
        cluster: str,
        clock: Clock,
        removes_directories: bool = True,
        drop_stored: Callable[[int], None] | None = None,
    ) -> None:
        """`cluster` is the database's token; `removes_directories`: those of attempts, too.

        `drop_stored` removes the logs of a run from where else they are kept; if that fails, a
        folder stays until it succeeds.
        """
        self._drop_stored = drop_stored
        self._store = store
        self._tasks = tasks
        self._cluster = cluster
        self._clock = clock
        self._removes_directories = removes_directories
        self._found: Iterator[Path] | None = None

    def run_once(self) -> timedelta:
        """Look at the next folders; return the time to rest."""
        if self._found is None:
            if not self._is_ours():
                return _INTERVAL
            self._found = self._old_folders()
        page = list(islice(self._found, _PAGE))
        try:
            self._remove_needless(page)
        except BaseException:
            self._found = None
            raise
        if len(page) < _PAGE:
            self._found = None
            return _INTERVAL
        return _BREATH

    def _is_ours(self) -> bool:
        """Return False in a home that another database's workers have used."""
        path = self._tasks / _OWNER
        try:
            owner = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            path.write_text(self._cluster + "\n", encoding="ascii")
            return True
        except ValueError:
            owner = ""
        if owner != self._cluster:
            log.warning(
                "the folders of this home belong to another database, so none is removed;"
                " remove the file if that database is gone",
                extra={"file": str(path)},
            )
        return owner == self._cluster

    def _old_folders(self) -> Iterator[Path]:
        """Yield the folders of runs that nothing was added to for a day."""
        limit = self._clock.now().timestamp() - _LEAST_AGE.total_seconds()
        for top in (self._tasks / _LOGS, self._tasks):
            for definition in _numbered(top):
                for run in _numbered(definition):
                    try:
                        age = run.lstat().st_mtime
                    except FileNotFoundError:
                        continue
                    if age < limit:
                        yield run

    def _remove_needless(self, runs: Sequence[Path]) -> None:
        # A run has two folders, with its logs and with its directories.
        existing = self._store.existing({int(path.name) for path in runs})
        for path in runs:
            if int(path.name) not in existing:
                if self._drop_stored is not None and path.parent.parent.name == _LOGS:
                    try:
                        self._drop_stored(int(path.name))
                    except LogStoreError as error:
                        log.warning("stored logs stay", extra={"cause": str(error)})
                        continue
                _remove(path)
                log.info("folder of a deleted run was removed", extra={"folder": str(path)})
        if self._removes_directories:
            attempts = {
                int(attempt.name): attempt
                for path in runs
                if int(path.name) in existing and path.parent.parent == self._tasks
                for attempt in _numbered(path)
            }
            if attempts:
                for number in sorted(self._store.succeeded(list(attempts))):
                    _remove(attempts[number])


def _numbered(folder: Path) -> Iterator[Path]:
    """Yield the folders in a folder whose names are ids; links are none."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def _remove(path: Path) -> None:
    try:
        remove_directory(path)
    except FileNotFoundError:
        return  # Another worker of this home was faster.
    except OSError as error:
        log.warning("folder could not be removed", extra={"folder": str(path), "cause": str(error)})
