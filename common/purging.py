"""Deletes history that is old enough, a small transaction at a time.

`Purge` steps through a `RetentionStore` and remembers nothing that has to survive: an instance
whose deletion has begun is marked in its row, and whoever purges next goes on with it. Used by the
retention loop of a master and by `orcaflow purge`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from common.clock import Clock
from common.retention import Need, Pace, Step, needs_of
from common.store.retention import FIRST, History, Place, RetentionStore

_FRESH: Final = timedelta(seconds=10)
_CHOSEN_AT_ONCE: Final = 50


@dataclass(slots=True)
class Purged:
    """The rows that are gone so far, by table, and the instances with their definitions.

    Rows of pools' queues, quality results and logs' ends go with their attempts, uncounted.
    """

    rows: dict[str, int] = field(default_factory=dict)
    instances: list[tuple[int, int]] = field(default_factory=list)
    longest: timedelta = timedelta()
    """The longest transaction."""

    def add(self, table: str, count: int) -> None:
        """Count deleted rows."""
        if count:
            self.rows[table] = self.rows.get(table, 0) + count


class Purge:
    """One pass over everything that ended before some time; `step` is one transaction of it."""

    def __init__(
        self,
        store: RetentionStore,
        *,
        clock: Clock,
        before: datetime,
        definition_id: int | None = None,
        histories: tuple[History, ...] = tuple(History),
        paces: Mapping[Step, Pace] | None = None,
    ) -> None:
        """`definition_id`: only what belongs to this definition, so no alerts."""
        self._store = store
        self._clock = clock
        self._before = before
        self._definition_id = definition_id
        self._needs: tuple[Need, ...] = ()
        self._needs_read_at: float | None = None
        self._place: Place | None = FIRST
        self._marked: tuple[int, ...] = ()
        self._histories = deque(histories)
        self._after = 0
        self._next: Step | None = Step.MARK
        self.paces = dict(paces or dict.fromkeys(Step, Pace()))
        chooses = self.paces[Step.MARK]
        self.paces[Step.MARK] = replace(chooses, most=min(chooses.most, _CHOSEN_AT_ONCE))
        self.done = Purged()

    def step(self) -> bool:
        """Carry out one transaction; return False once there is nothing left to do."""
        if self._next is None:
            return False
        kind = self._next
        if kind is Step.MARK:
            self._look_at_waits()
        began = self._clock.monotonic()
        match kind:
            case Step.MARK:
                self._mark()
            case Step.ATTEMPTS:
                self._delete_attempts()
            case Step.INSTANCES:
                self._delete_instances()
            case Step.HISTORY:
                self._delete_history()
            case _:
                assert_never(kind)
        took = timedelta(seconds=self._clock.monotonic() - began)
        self.done.longest = max(self.done.longest, took)
        self.paces[kind] = self.paces[kind].after(took)
        return self._next is not None

    def _look_at_waits(self) -> None:
        now = self._clock.monotonic()
        if self._needs_read_at is None or now - self._needs_read_at > _FRESH.total_seconds():
            self._needs = needs_of(self._store.waits(now=self._clock.now()))
            self._needs_read_at = now

    def _mark(self) -> None:
        if self._place is None:
            self._next = Step.HISTORY if self._histories else None
            return
        marked = self._store.mark(
            before=self._before,
            after=self._place,
            limit=self.paces[Step.MARK].rows,
            needs=self._needs,
            definition_id=self._definition_id,
        )
        self._place, self._marked = marked.place, marked.ids
        if marked.ids:
            self._next = Step.ATTEMPTS

    def _delete_attempts(self) -> None:
        deleted = self._store.delete_attempts(self._marked, limit=self.paces[Step.ATTEMPTS].rows)
        self.done.add("t_ds_task_instance", deleted)
        if not deleted:
            self._next = Step.INSTANCES

    def _delete_instances(self) -> None:
        deleted = self._store.delete_instances(self._marked, limit=self.paces[Step.INSTANCES].rows)
        self.done.add("t_ds_process_instance", len(deleted))
        self.done.instances += deleted
        if not deleted:
            self._marked, self._next = (), Step.MARK

    def _delete_history(self) -> None:
        history = self._histories[0]
        page = self._store.delete_history(
            history,
            before=history.limit(self._before, self._clock.now()),
            after=self._after,
            limit=self.paces[Step.HISTORY].rows,
            definition_id=self._definition_id,
        )
        self.done.add(history.value, page.deleted)
        if page.after is not None:
            self._after = page.after
            return
        self._after = 0
        self._histories.popleft()
        if not self._histories:
            self._next = None
