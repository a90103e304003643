"""Keeps one project from taking all slots of a worker, while other projects could have tasks.

If more entries wait than a batch takes, the projects have turns.
The rule is `common.model.slot_share`. The projects of attempts are queried only while one more
attempt could exceed the share of some project, and the answers are kept. Whether there are several
projects is queried at most once a second. Used by the claim loop, on its thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from itertools import islice, zip_longest
from typing import Final

from common.clock import Clock
from common.model.cluster import QueueEntry
from common.model.slot_share import NO_LIMIT, SlotShare, headroom
from common.runtime.remembered import Remembered
from common.store.worker.ports import TaskStore
from worker.attempts import Attempts

_KEPT: Final = timedelta(seconds=1)
_QUERIED_AT_ONCE: Final = 1_000
_SPARE: Final = 1_000


class Admission:
    """Decides, for one batch, on which entries the shares of their projects allow."""

    def __init__(
        self,
        *,
        live: SlotShare,
        complement: SlotShare,
        project_of: Callable[[QueueEntry], int],
    ) -> None:
        self._live = live
        self._complement = complement
        self._project_of = project_of
        # Of thousands of entries most are of a full project.
        self._full_live = set(live.full())
        self._full_complement = set(complement.full())
        self.has_refused = False

    def admits(self, entry: QueueEntry) -> bool:
        """Return True if the entry's project may take another slot."""
        project = self._project_of(entry)
        full, share = self._of(entry)
        if project not in full and share.has_room(project):
            return True
        full.add(project)
        self.has_refused = True
        return False

    def take(self, entry: QueueEntry) -> None:
        """Count the slot that the entry takes."""
        _, share = self._of(entry)
        share.take(self._project_of(entry))

    def _of(self, entry: QueueEntry) -> tuple[set[int], SlotShare]:
        if entry.yields:
            return self._full_complement, self._complement
        return self._full_live, self._live


class Headroom:
    """Allows a number of entries of any projects; the next pass decides on the others."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.has_refused = False

    def admits(self, _entry: QueueEntry) -> bool:
        """Return True until the number is used up."""
        self.has_refused = self._left <= 0
        return not self.has_refused

    def take(self, _entry: QueueEntry) -> None:
        """Count an entry."""
        self._left -= 1


class TaskShares:
    """The shares of the slots of one worker.

    Complements have a share apart from all others, which never wait for them.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        attempts: Attempts,
        clock: Clock,
        percent: int,
        slots: int,
        complement_slots: int,
        group_ids: Callable[[], Collection[int]],
        is_reserved: bool,
    ) -> None:
        """`group_ids`: a reserved worker has tasks only of the projects that may use these."""
        self._store = store
        self._attempts = attempts
        self._percent = percent
        self._slots = slots
        self._complement_slots = complement_slots
        self._several = Remembered(
            lambda: store.several_projects(group_ids() if is_reserved else None),
            clock=clock,
            kept=_KEPT,
        )
        self._projects: dict[int, int] = {}
        self._served_last = 0

    def in_turns(self, entries: Sequence[QueueEntry], *, most: int) -> Iterable[QueueEntry]:
        """Order a batch of at most `most` entries so that the projects have turns.

        The order within a project stays. The first turn is of the project behind the one that was
        served last. Without this order, short tasks of one project could hold up all later ones of
        others, because the project never holds its share of the slots.
        """
        if len(entries) <= most or self._percent == NO_LIMIT or not self._several():
            return entries
        self._forget(entries, self._attempts.running())
        self._query([entry.task_instance_id for entry in entries])
        lanes: dict[int, list[QueueEntry]] = {}
        for entry in entries:
            project = self._projects.get(entry.task_instance_id, 0)
            lanes.setdefault(project, []).append(entry)
        if len(lanes) == 1:
            return entries
        order = sorted(lanes, key=lambda project: (project <= self._served_last, project))
        rounds = zip_longest(*(lanes[project] for project in order))
        return (entry for each in rounds for entry in each if entry is not None)

    def served(self, entries: Sequence[QueueEntry]) -> None:
        """Note the project that has had the last turn."""
        if entries:
            last = entries[-1].task_instance_id
            self._served_last = self._projects.get(last, self._served_last)

    def admission(self, entries: Sequence[QueueEntry], *, most: int) -> Admission | Headroom | None:
        """Return the decisions on a batch of at most `most` entries; None if all are allowed."""
        running = self._attempts.running()
        more = min(most, len(entries))
        if more <= 0 or self._percent == NO_LIMIT:
            return None
        left = self._headroom(entries, len(running))
        if left >= more or not self._several():
            return None
        if left > 0:
            return Headroom(left)
        self._forget(entries, running)
        self._query(running)
        yielding = self._attempts.yielding() & running
        live = self._share(self._slots, running - yielding)
        complement = self._share(self._complement_slots, yielding)
        complement.free = min(complement.free, self._slots - len(running))
        return Admission(live=live, complement=complement, project_of=self._finder(entries))

    def _headroom(self, entries: Sequence[QueueEntry], running: int) -> int:
        left = headroom(self._percent, self._slots, held=running)
        if self._complement_slots == self._slots or not any(entry.yields for entry in entries):
            return left
        yielding = len(self._attempts.yielding())
        return min(left, headroom(self._percent, self._complement_slots, held=yielding))

    def _share(self, slots: int, attempts: Collection[int]) -> SlotShare:
        return SlotShare.of(
            self._percent, slots, Counter(self._projects.get(each, 0) for each in attempts)
        )

    def _finder(self, entries: Sequence[QueueEntry]) -> Callable[[QueueEntry], int]:
        """Return the project of an entry; those behind an unknown one are queried with it."""
        ids = iter([entry.task_instance_id for entry in entries])

        def project_of(entry: QueueEntry) -> int:
            while entry.task_instance_id not in self._projects:
                some = list(islice(ids, _QUERIED_AT_ONCE))
                if not some:
                    return 0
                self._query(some)
            return self._projects[entry.task_instance_id]

        return project_of

    def _query(self, ids: Collection[int]) -> None:
        unknown = [each for each in ids if each not in self._projects]
        for first in range(0, len(unknown), _QUERIED_AT_ONCE):
            some = unknown[first : first + _QUERIED_AT_ONCE]
            # An entry without a row is queried once.
            self._projects |= {**dict.fromkeys(some, 0), **self._store.projects(some)}

    def _forget(self, entries: Sequence[QueueEntry], running: frozenset[int]) -> None:
        """Forget attempts that have ended, now and then."""
        if len(self._projects) > 2 * (len(entries) + len(running)) + _SPARE:
            kept = running.union(entry.task_instance_id for entry in entries)
            self._projects = {key: self._projects[key] for key in self._projects.keys() & kept}
