"""Keeps the registry's queues equal to the tables.

After a save its entries are offered at once, by the thread that saved and without waiting: a lone
attempt is not handed from thread to thread. While an answer is outstanding, further entries gather,
and the loop writes them together. Of what a worker has been *told* the
entries are put off a moment: an attempt that has ended by then needs none, and while others start
nobody is disturbed by their entries. At an interval, submitted attempts of this master's
runs that have neither a queue entry nor a claim are offered again, so that a lost registry, a lost
claim or a crash between commit and offer costs seconds and nothing else. An entry whose name no
longer follows from the tables, since a group or a priority has changed, is replaced: it might name
workers that no longer exist (trap T08).
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from threading import Lock

from common.clock import Clock
from common.model.cluster import Node, QueueEntry
from common.registry.protocol import KillQueue, RegistryUnavailableError, TaskQueue
from common.store.master.ports import RunStore, Saved
from master.identity import Identity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """An attempt is repaired only after `patience`: the offer of a new one may be under way.

    An entry of which a worker has been told is put off for `told_patience`.

    `page`: the most rows that a repair compares with the queue; the next repair takes the next.
    """

    repair_interval: timedelta = timedelta(seconds=2)
    patience: timedelta = timedelta(seconds=2)
    told_patience: timedelta = timedelta(milliseconds=50)
    page: int = 5000


class QueueLoop:
    """Offers and withdraws queue entries; `add` may be called from any thread."""

    name = "queue"

    def __init__(
        self,
        store: RunStore,
        *,
        tasks: TaskQueue,
        kills: KillQueue,
        identity: Identity,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        config: QueueConfig | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._kills = kills
        self._identity = identity
        self._clock = clock
        self._wake = wake
        self._config = config or QueueConfig()
        self._lock = Lock()
        self._pending: deque[Saved] = deque()
        # True while offers are under way that nobody waits for.
        self._sending = False
        # Entries that are put off, in the order of the times at which they are due.
        self._delayed: OrderedDict[int, tuple[float, QueueEntry]] = OrderedDict()
        # True if one was put off since the last pass: then more will be, and need not wake it.
        self._was_told = False
        # The time of the next pass, which nobody need ask for.
        self._looks_at = math.inf
        self._repaired_at: float | None = None
        # The last attempt of the page that was compared; 0 at the end of the queue.
        self._compared = 0

    def add(self, saved: Saved) -> None:
        """Write the entries of a save, or have them written."""
        for entry in saved.withdrawn:
            self.forget(entry.task_instance_id)
        if saved.hinted:
            told = tuple(entry for entry in saved.offers if entry.is_for_any)
            rest = tuple(entry for entry in saved.offers if not entry.is_for_any)
            self._put_off(told)
            saved = replace(saved, offers=rest)
        if not (saved.offers or saved.kills or saved.withdrawn):
            return
        with self._lock:
            is_alone = not (self._sending or self._pending or saved.kills or saved.withdrawn)
            is_sent = is_alone and bool(saved.offers)
            if is_sent:
                self._sending = True
            else:
                self._pending.append(saved)
            # Whoever is under way now wakes the loop with its answer.
            is_first = not self._sending
        if is_sent:
            self._tasks.offer_soon(saved.offers, done=partial(self._sent, saved))
        elif is_first:
            self._wake()

    def offer(self, entries: Sequence[QueueEntry]) -> None:
        """Offer released attempts of any owner's runs."""
        self.add(Saved(lost=frozenset(), offers=tuple(entries), kills=(), withdrawn=()))

    def forget(self, task_instance_id: int) -> None:
        """Put no entry of an ended attempt in, if that was put off; from any thread."""
        with self._lock:
            self._delayed.pop(task_instance_id, None)

    def run_once(self) -> timedelta:
        """Write pending entries, and repair if it is due; return the time to rest."""
        with self._lock:
            # Whatever is put off during the pass, or after one that fails, has another one made.
            self._looks_at = math.inf
            was_told, self._was_told = self._was_told, False
        self._take_due()
        self._write_pending()
        rest = self._repair()
        if was_told:
            rest = min(rest, self._config.told_patience)
        now = self._clock.monotonic()
        with self._lock:
            if self._delayed:
                due, _ = next(iter(self._delayed.values()))
                rest = min(rest, timedelta(seconds=max(0.0, due - now)))
            self._looks_at = now + rest.total_seconds()
        return rest

    def _put_off(self, entries: Sequence[QueueEntry]) -> None:
        due = self._clock.monotonic() + self._config.told_patience.total_seconds()
        with self._lock:
            self._delayed.update({each.task_instance_id: (due, each) for each in entries})
            self._was_told = True
            is_late = self._looks_at > due
            if is_late:
                self._looks_at = due
        if is_late:
            self._wake()

    def _take_due(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            due = []
            while self._delayed:
                task_instance_id, (at, entry) = next(iter(self._delayed.items()))
                if at > now:
                    break
                del self._delayed[task_instance_id]
                due.append(entry)
            if due:
                offers = tuple(due)
                self._pending.append(Saved(lost=frozenset(), offers=offers, kills=(), withdrawn=()))

    def _sent(self, saved: Saved, is_in: bool) -> None:
        with self._lock:
            self._sending = False
            if not is_in:
                self._pending.appendleft(saved)
            are_more = bool(self._pending)
        if are_more:
            self._wake()

    def _write_pending(self) -> None:
        with self._lock:
            # An answer that went with its session must not hold up what comes later.
            self._sending = False
            pending = list(self._pending)
            self._pending.clear()
        if not pending:
            return
        try:
            self._tasks.offer([entry for saved in pending for entry in saved.offers])
            self._kills.ask([entry for saved in pending for entry in saved.kills])
            self._tasks.withdraw([entry for saved in pending for entry in saved.withdrawn])
        except RegistryUnavailableError:
            # Dropped: the repair finds the same in the tables, once the registry is back.
            log.warning("registry took no entries; they will be repaired from the tables")
            raise

    def _repair(self) -> timedelta:
        started = self._clock.monotonic()
        interval = self._config.repair_interval.total_seconds()
        if self._repaired_at is not None and started - self._repaired_at < interval:
            return timedelta(seconds=interval - (started - self._repaired_at))
        node = self._identity.node
        if node is not None and self._repair_page(node):
            # Many are missing, perhaps all: the rest of them is looked for at once.
            return timedelta()
        self._repaired_at = self._clock.monotonic()
        # A long queue takes long to compare; the repair gets at most a tenth of the time.
        took = self._repaired_at - started
        return timedelta(seconds=max(interval, 10 * took))

    def _repair_page(self, node: Node) -> bool:
        """Compare a page of the rows with the queue; True if some were missing and more follow."""
        # First the rows, then the registry: an attempt that is claimed in between is offered
        # once too often, and its second claimant finds no row to change.
        unclaimed = self._store.unclaimed(
            node,
            submitted_before=self._clock.now() - self._config.patience,
            after=self._compared,
            limit=self._config.page,
        )
        is_last = len(unclaimed) < self._config.page
        self._compared = 0 if is_last else max(e.task_instance_id for e in unclaimed)
        if not unclaimed:
            return False
        entries = self._tasks.entries()
        claimed = self._tasks.claimed()
        wanted = {e.task_instance_id: e for e in unclaimed}
        stale = [e for e in entries if wanted.get(e.task_instance_id, e) != e]
        there = frozenset(entries)
        missing = [e for e in unclaimed if e not in there and e.task_instance_id not in claimed]
        if missing:
            log.warning("queue entries were missing", extra={"count": len(missing)})
            self._tasks.offer(missing)
        if stale:
            self._tasks.withdraw(stale)
        return bool(missing) and not is_last
