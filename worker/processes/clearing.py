"""The files of ended attempts, kept until their ends stand in the tables.

Until then a worker that dies must find the record again, to report the end once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from worker.processes.records import Records

DirectoryPolicy: TypeAlias = Literal["never", "on_success", "always"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ended:
    execute_path: str
    succeeded: bool


class Clearing:
    """The ended attempts that have not been forgotten."""

    def __init__(
        self,
        *,
        records: Records,
        policy: DirectoryPolicy,
        remove_directory: Callable[[Path], None],
    ) -> None:
        self._records = records
        self._policy = policy
        self._remove_directory = remove_directory
        self._ended: dict[int, _Ended] = {}

    def __contains__(self, task_instance_id: object) -> bool:
        return task_instance_id in self._ended

    def keep(self, task_instance_id: int, execute_path: str, *, succeeded: bool) -> None:
        """Keep an ended attempt's record and directory until `forget`."""
        self._ended[task_instance_id] = _Ended(execute_path, succeeded)

    def forget(self, task_instance_id: int) -> None:
        """Remove an attempt's record, and its directory if the policy says so."""
        ended = self._ended.pop(task_instance_id, None)
        try:
            # The wrapper of one that has succeeded has noted its exit and ended.
            is_spare = ended is not None and ended.succeeded
            self._records.remove(task_instance_id, is_spare=is_spare)
            if ended is not None and self._is_to_go(ended):
                self._remove_directory(Path(ended.execute_path))
        except OSError as error:
            log.warning(
                "attempt could not be cleared away",
                extra={"task_instance_id": task_instance_id, "error": str(error)},
            )

    def _is_to_go(self, ended: _Ended) -> bool:
        return self._policy == "always" or (self._policy == "on_success" and ended.succeeded)
