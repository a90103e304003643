"""Takes submitted attempts from the queue for this worker, and has them started.

A claim is made twice: in the registry, so that workers don't run after the same entry, and in the
row, which alone decides: afterwards, or at the same time as long as no other worker has taken
anything from under this one; then the entry is taken without a claim. What a call that failed may
have done is never guessed: the entries are remembered and looked at again in the tables before any
other is claimed, so that an attempt whose row says that it is ours is started, reported or handed
back (`worker.loops.given_up`), never forgotten. Attempts that need data sources, an environment, or
what former runs have measured, are *awaiting inputs* from their claim until that has been read;
nothing else is claimed before that. No threads and no time of its own: a service or a simulator
calls `run_once`.

A *hint* names attempts that a master has submitted this moment. If nothing else waits, their rows
are claimed before their entries are seen, which are then only taken out of the queue.

A complement *yields*: its attempts take slots that nothing holds, while any other takes each slot
that no other such holds, as if the complement's were not there. So a live run never waits for a
complement to let go of a slot, and a worker may have more attempts than slots for a while.

Entries of a project that holds its share of the slots are passed over (`worker.loops.task_shares`).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, QueueEntry
from common.model.states import TaskState
from common.registry.protocol import (
    Membership,
    RegistryUnavailableError,
    Standing,
    TaskQueue,
)
from common.store.worker.ports import AttemptEnd, AttemptFolders, ClaimedTask, TaskStore
from worker.attempts import Attempts, Ended
from worker.loops.claimed_inputs import awaits_inputs, with_inputs
from worker.loops.gathering import gathering_seconds
from worker.loops.given_up import GivenUpClaims
from worker.loops.late_entries import LateEntries
from worker.loops.task_shares import TaskShares

log = logging.getLogger(__name__)

_IDLE = timedelta(seconds=1)
_REST_AFTER_START = timedelta(milliseconds=50)
"""The rest after starts, in which no release or log line gets in the way of the processes."""
_GATHERED_SHARE = 8
"""No more than an eighth of the slots is waited for, and with fewer slots than that nothing."""
_UNDISTURBED = timedelta(milliseconds=8)
"""The rest after a claim by a hint, before its entry is looked for and taken out."""
_KEPT_AT_MOST = 100
_PATIENT_SECONDS = 3.0
"""The time for which an unanswered claim keeps its entries from other workers."""
_KEPT_SECONDS = 1.0
"""The longest that claims are kept unreleased and unlogged while ever more are made."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Free slots: for live attempts, for anything, for complements.

    A complement gets the smaller of the last two; either may be negative.
    """

    live: int
    empty: int
    complement: int


class ClaimLoop:
    """Fills the free slots of a worker, whenever its session can be trusted."""

    name = "claim"

    def __init__(
        self,
        *,
        store: TaskStore,
        queue: TaskQueue,
        membership: Membership,
        attempts: Attempts,
        ended: Ended,
        node: Callable[[], Node | None],
        slots: int,
        complement_slots: int,
        shares: TaskShares,
        group_ids: Callable[[], Collection[int]],
        ip: int | None,
        address: str = "",
        is_reserved: bool = False,
        folders: AttemptFolders,
        clock: Clock,
        batch: int,
        admits: Callable[[], bool] = lambda: True,
        wake: Callable[[], None] = lambda: None,
        idle: timedelta = _IDLE,
    ) -> None:
        """`wake` is called, from any thread, when there may be something to claim.

        `complement_slots`: the most `slots` that complements may take. A reserved worker claims
        only attempts of its groups.
        """
        self._store = store
        self._queue = queue
        self._membership = membership
        self._attempts = attempts
        self._ended = ended
        self._node = node
        self._slots = slots
        self._complement_slots = complement_slots
        self._group_ids = group_ids
        self._ip = ip
        self._address = address
        self._is_reserved = is_reserved
        self._folders = folders
        self._clock = clock
        self._batch = batch
        self._admits = admits
        self._wake = wake
        self._idle = idle
        self._entries: tuple[QueueEntry, ...] = ()
        self._changed = True
        self._read_again_at = 0.0
        self._unsure: tuple[QueueEntry, ...] = ()
        self._unsure_node: Node | None = None
        self._unsure_hinted = False
        # None until the rows are queried.
        self._unsure_claimed_at: datetime | None = None
        self._given_up = GivenUpClaims(store=store, queue=queue, node=node)
        self._shares = shares
        self._has_passed_over = False
        # The time of the first pass without an answer, and the entries released since then.
        self._unanswered_since: float | None = None
        self._let_go_of: tuple[QueueEntry, ...] = ()
        self._to_release: tuple[QueueEntry, ...] = ()
        self._claimed: tuple[ClaimedTask, ...] = ()
        self._tidy_by = math.inf
        self._awaiting_inputs: tuple[ClaimedTask, ...] = ()
        self._awaiting_inputs_node: Node | None = None
        self._awaiting_inputs_entries: dict[int, QueueEntry] = {}
        self._is_short_of_room = True
        self._claimed_at = -math.inf
        # Filled by another thread.
        self._hints: deque[QueueEntry] = deque()
        self._late = LateEntries(clock)
        # The time of the next look after claims by hints; in the past if none was made since one.
        self._look_again_at = -math.inf
        self._took_out = False
        queue.watch(self._entries_changed)

    def run_once(self) -> timedelta:
        """Claim some attempts and start them; how long to rest.

        `ServiceUnreachableError` passes through, with everything remembered that it leaves open.
        """
        try:
            rest = self._pass()
        except ServiceUnreachableError:
            self._let_go()
            raise
        self._unanswered_since = None
        return rest

    def _let_go(self) -> None:
        """Release entries after three seconds in which the tables did not answer.

        Other workers may reach the tables, and the claims in the registry would keep them away. The
        rows decide: this worker queries them when the tables answer again.
        """
        now = self._clock.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = now
        is_early = now - self._unanswered_since < _PATIENT_SECONDS
        if is_early or not self._unsure or self._let_go_of == self._unsure:
            return
        with suppress(RegistryUnavailableError):
            self._queue.release(self._unsure)
            self._queue.offer(self._unsure)
            self._let_go_of = self._unsure

    def _pass(self) -> timedelta:
        # Before anything is looked at: an end that comes during the pass has another one made.
        self._is_short_of_room = True
        # This queries the tables only, so it works without a session.
        is_handed_back = self._given_up.hand_back_rows()
        node = self._node()
        is_trusted = self._membership.standing_of(node) is Standing.TRUSTED
        if node is None or not is_trusted or not is_handed_back:
            return self._idle
        if self._given_up.has_entries:
            # First the claims in the registry, which hide the entries.
            self.tidy()
            self._given_up.put_entries_back()
        if len(self._claimed) >= _KEPT_AT_MOST or self._clock.monotonic() >= self._tidy_by:
            self.tidy()
        if self._unsure:
            self._resolve(node)
            return timedelta()
        if self._awaiting_inputs:
            # The look of the pass that claimed them failed; it is made again.
            self._start_awaiting(node)
            return timedelta()
        hints = self._take_hints()
        room = self._room()
        if room.live <= 0 or not self._admits():
            self.tidy()
            return self._idle
        rest = self._rest_after_hints(hints, room, node)
        if rest > timedelta():
            self._is_short_of_room = False
            return rest
        wanted = self._first_that_suit(room)
        if not wanted:
            self._is_short_of_room = bool(self._entries)
            if self._took_out:
                self._took_out = False
                return _REST_AFTER_START
            self.tidy()
            return self._idle
        gathering = self._gathering(wanted, room)
        if gathering > timedelta():
            # Ends need not wake this loop: it looks again so soon.
            self._is_short_of_room = False
            return gathering
        # From here until the rows have answered, nobody else will offer or claim these.
        self._remember(wanted, node)
        self._shares.served(wanted)
        answer = self._queue.take_soon(wanted, node)
        taken = frozenset(wanted)
        if answer is None:
            # Others want them, too: the rows are asked for what was won of the entries.
            won = self._queue.claim(wanted, node)
            self._remember(won, node)
            self._entries = tuple(entry for entry in self._entries if entry not in taken)
            claimed = self._take_rows(won, node)
        else:
            # The rows decide alone, and are asked while the registry is, which holds no claims.
            self._entries = tuple(entry for entry in self._entries if entry not in taken)
            claimed = self._take_rows(wanted, node)
            answer()
            won = ()
        if won:
            self._to_release += won
            if len(claimed) < len(won):
                # A row that was only locked is offered again as soon as its claim is gone.
                self.tidy()
        if won or claimed:
            # Last, since it may fail: by now nothing else is left open.
            self._start_awaiting(node)
            if not self._entries:
                self._is_short_of_room = False
                # The supervisor starts them undisturbed; a new entry ends the rest.
                return _REST_AFTER_START
        return timedelta()

    def _gathering(self, wanted: tuple[QueueEntry, ...], room: _Room) -> timedelta:
        """Return the time to wait for more room than for these; none if there is no reason to.

        A claim of many attempts takes hardly longer than one of a few. So where all slots are in
        use and attempts end one after the other, they are not replaced one by one.
        """
        number = len(wanted)
        left = room.empty if all(entry.yields for entry in wanted) else room.live
        enough = min(self._batch, self._slots // _GATHERED_SHARE)
        is_all = number < left and not self._has_passed_over
        if is_all or number >= enough or number == len(self._entries):
            return timedelta()
        gathering = gathering_seconds(self._attempts.waiting())
        passed = self._clock.monotonic() - self._claimed_at
        return timedelta(seconds=max(0.0, gathering - passed))

    def _take_rows(self, entries: tuple[QueueEntry, ...], node: Node) -> tuple[ClaimedTask, ...]:
        """Claim the rows and start what was claimed; the entries are unsure until that is done."""
        if not entries:
            return ()
        claimed = self._claim_rows(node, entries)
        self._begin(node, entries, claimed)
        self._unsure = ()
        self._claimed += claimed
        self._claimed_at = self._clock.monotonic()
        self._tidy_by = min(self._tidy_by, self._claimed_at + _KEPT_SECONDS)
        return claimed

    def _take_hints(self) -> tuple[QueueEntry, ...]:
        """Return what was hinted at and is no attempt of this worker's yet, each once."""
        hints: dict[int, QueueEntry] = {}
        while self._hints:
            entry = self._hints.popleft()
            hints[entry.task_instance_id] = entry
        if not hints:
            return ()
        running = self._attempts.running()
        return tuple(
            entry
            for task_id, entry in hints.items()
            if not self._late.is_late(task_id) and task_id not in running
        )

    def _rest_after_hints(
        self, hints: tuple[QueueEntry, ...], room: _Room, node: Node
    ) -> timedelta:
        """Claim what was hinted at; the rest after that, none if the queue is to be looked at now.

        With news of the queue that was not looked at, only if there is room for all that may be.
        """
        if self._entries and self._suiting(self._entries, self._group_ids(), room):
            return timedelta()
        room_left = min(room.live, room.empty) - len(hints)
        if hints and (not self._changed or 2 * room_left > self._slots):
            wanted = self._suiting(hints, self._group_ids(), room)
            self._remember(wanted, node, hinted=True)
            if self._take_rows(wanted, node) and self._look_again_at == -math.inf:
                # Not put off by further hints: others may wait.
                self._look_again_at = self._clock.monotonic() + _UNDISTURBED.total_seconds()
            self._start_awaiting(node)
            if not self._changed:
                return _REST_AFTER_START
        rest = self._look_again_at - self._clock.monotonic()
        return timedelta(seconds=max(0.0, rest))

    def hinted(self, entries: Sequence[QueueEntry]) -> None:
        """Take a hint, from any thread."""
        self._hints.extend(entries)
        self._wake()

    def room_made(self) -> None:
        """Claim again if entries may have waited for the slot of an attempt that has ended.

        Called on the thread that ended it, which most ends spare a pass beside their report.
        """
        if self._is_short_of_room:
            self._wake()

    def tidy(self) -> None:
        """Release claims and log them: when nothing waits to be started, and at the daemon's end.

        Both take as long as starting a process, and nobody is in a hurry for either.
        """
        self._tidy_by = math.inf
        if self._to_release:
            self._release(())
        claimed, self._claimed = self._claimed, ()
        if claimed:
            log.info(
                "attempts claimed",
                extra={
                    "task_instance_ids": [task.id for task in claimed],
                    "process_instance_ids": sorted({each.process_instance_id for each in claimed}),
                },
            )

    def claiming(self) -> frozenset[int]:
        """Attempts whose claim is under way, or whose answer was lost."""
        # Called from another thread: each collection is read once. An attempt moves from the unsure
        # to those awaiting inputs, and from both to the unstarted, so they are read in this order.
        unsure = [entry.task_instance_id for entry in self._unsure]
        awaiting = [task.id for task in self._awaiting_inputs]
        return frozenset(unsure).union(awaiting, self._given_up.ids())

    def _entries_changed(self) -> None:
        """Called on the registry's thread."""
        self._changed = True
        self._wake()

    def _room(self) -> _Room:
        # In this order: one that ends in between makes the room look smaller, not larger.
        running = self._attempts.running()
        yielding = self._attempts.yielding() & running
        return _Room(
            live=self._slots - len(running - yielding),
            empty=self._slots - len(running),
            complement=self._complement_slots - len(yielding),
        )

    def _first_that_suit(self, room: _Room) -> tuple[QueueEntry, ...]:
        """Entries to try, first to claim first; asks the registry only if there is reason to."""
        now = self._clock.monotonic()
        groups = self._group_ids()
        if not self._changed:
            suiting = self._suiting(self._entries, groups, room)
            if suiting or now < self._read_again_at:
                return suiting
        # Before the look: what changes during it is looked at once more.
        self._changed = False
        try:
            entries = self._queue.entries()
        except ServiceUnreachableError:
            self._changed = True
            raise
        self._look_again_at = -math.inf
        late = frozenset(entry for entry in entries if self._late.is_late(entry.task_instance_id))
        if late:
            self._took_out = True
            self._queue.take_out_soon(tuple(late))
            entries = tuple(entry for entry in entries if entry not in late)
        self._entries = entries
        self._read_again_at = now + self._idle.total_seconds()
        return self._suiting(entries, groups, room)

    def _suiting(
        self, entries: Sequence[QueueEntry], groups: Collection[int], room: _Room
    ) -> tuple[QueueEntry, ...]:
        found: list[QueueEntry] = []
        live, empty, complement = room.live, room.empty, room.complement
        most = min(self._batch, live)
        admission = self._shares.admission(entries, most=most)
        for entry in self._shares.in_turns(entries, most=most):
            if len(found) == self._batch or live <= 0:
                break
            if entry.yields and (empty <= 0 or complement <= 0):
                continue
            if admission is not None and not admission.admits(entry):
                continue
            if entry.suits(
                group_ids=groups,
                ip=self._ip,
                address=self._address,
                is_reserved=self._is_reserved,
            ):
                found.append(entry)
                if admission is not None:
                    admission.take(entry)
                empty -= 1
                if entry.yields:
                    complement -= 1
                else:
                    live -= 1
        self._has_passed_over = admission is not None and admission.has_refused
        return tuple(found)

    def _claim_rows(self, node: Node, entries: tuple[QueueEntry, ...]) -> tuple[ClaimedTask, ...]:
        self._unsure_claimed_at = now = self._clock.now()
        claimed = self._store.claim(
            node,
            [entry.task_instance_id for entry in entries],
            folders=self._folders,
            now=now,
            hinted=self._unsure_hinted,
            is_reserved=self._is_reserved,
        )
        self._late.expect(task.id for task in claimed)
        return claimed

    def _begin(
        self, node: Node, entries: Iterable[QueueEntry], claimed: tuple[ClaimedTask, ...]
    ) -> None:
        if not claimed:
            return
        entry_of = {entry.task_instance_id: entry for entry in entries}
        if not self._may_start_as(node):
            # The answer took so long that the rows may have been given to others meanwhile.
            self._give_up([entry_of[task.id] for task in claimed], node, claimed[0].start_time)
            return
        awaiting_inputs = tuple(task for task in claimed if awaits_inputs(task))
        if awaiting_inputs:
            self._awaiting_inputs += awaiting_inputs
            self._awaiting_inputs_node = node
            self._awaiting_inputs_entries |= {
                task.id: entry_of[task.id] for task in awaiting_inputs
            }
        for task in claimed:
            if task not in awaiting_inputs:
                self._attempts.start(task)

    def _start_awaiting(self, node: Node) -> None:
        """Start those awaiting inputs; an attempt without its rows is failed by its task type."""
        awaiting_inputs = self._awaiting_inputs
        if not awaiting_inputs:
            return
        if self._awaiting_inputs_node == node:
            filled = with_inputs(self._store, awaiting_inputs)
            if self._may_start_as(node):
                for task in filled:
                    self._attempts.start(task)
                self._awaiting_inputs = ()
                self._awaiting_inputs_entries = {}
                return
        claimant = self._awaiting_inputs_node or node
        for task in awaiting_inputs:
            self._give_up([self._awaiting_inputs_entries[task.id]], claimant, task.start_time)
        self._awaiting_inputs = ()
        self._awaiting_inputs_entries = {}

    def _may_start_as(self, node: Node) -> bool:
        """Return True if what `node` has claimed may be started."""
        is_lost = self._membership.standing_of(node) is Standing.LOST
        return not is_lost and self._node() == node

    def _give_up(
        self, entries: Sequence[QueueEntry], node: Node, claimed_at: datetime | None
    ) -> None:
        """Have claims handed back at the next pass; none of these attempts was started."""
        self._given_up.add(entries, node, claimed_at)
        for entry in entries:
            # Its entry will not be a late one.
            self._late.forget(entry.task_instance_id)

    def _resolve(self, node: Node) -> None:
        """Find out what became of the claims whose answer was lost."""
        entries = self._unsure
        former = self._unsure_node
        if former is not None and former != node:
            self._give_up(entries, former, self._unsure_claimed_at)
            self._settle(entries)
            return
        held = self._store.running(node)
        claimed = self._claim_rows(
            node, tuple(entry for entry in entries if entry.task_instance_id not in held)
        )
        self._begin(node, entries, claimed)
        for entry in entries:
            if entry.task_instance_id in held:
                self._report_unstarted(entry.task_instance_id, killed=held[entry.task_instance_id])
        self._settle(entries)

    def _report_unstarted(self, task_instance_id: int, *, killed: bool) -> None:
        """Report an attempt that became ours without our learning what it is: it never ran."""
        self._ended(
            AttemptEnd(
                task_instance_id=task_instance_id,
                state=TaskState.KILL if killed else TaskState.NEED_FAULT_TOLERANCE,
                end_time=self._clock.now(),
                reason="claimed, but the answer to the claim was lost; it was not started",
            )
        )

    def _remember(
        self, entries: tuple[QueueEntry, ...], node: Node, *, hinted: bool = False
    ) -> None:
        self._unsure = entries
        self._unsure_node = node
        self._unsure_hinted = hinted
        self._unsure_claimed_at = None

    def _settle(self, entries: tuple[QueueEntry, ...]) -> None:
        """The rows have answered: the claims in the registry have done their part."""
        self._unsure = ()
        self._release(entries)

    def _release(self, entries: tuple[QueueEntry, ...]) -> None:
        self._to_release += entries
        self._queue.release(self._to_release)
        self._to_release = ()
