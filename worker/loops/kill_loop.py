"""Brings kills to this worker's attempts, and compares what runs here with what the rows say.

Requests in the registry make a kill fast; the slow look at the rows makes it sure. The look finds
kills that were asked for without a request, processes whose attempt is not ours any more, and
attempts that are ours by their row and that nobody here knows. It also takes out the requests to
workers that are gone, which nobody would ever meet. No threads and no time of its own: a service or
a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from common.clock import Clock
from common.model.cluster import Node, NodeKind
from common.model.states import TaskState
from common.registry.protocol import KillQueue, Membership, Standing
from common.store.worker.ports import AttemptEnd, TaskStore
from worker.attempts import Attempts, Ended

log = logging.getLogger(__name__)

_IDLE = timedelta(seconds=1)
_CHECK_INTERVAL = timedelta(seconds=5)


class KillLoop:
    """Kills what should not run here."""

    name = "kill"

    def __init__(
        self,
        *,
        store: TaskStore,
        kills: KillQueue,
        membership: Membership,
        attempts: Attempts,
        ended: Ended,
        node: Callable[[], Node | None],
        clock: Clock,
        in_hand: Callable[[], Collection[int]],
        wake: Callable[[], None] = lambda: None,
        idle: timedelta = _IDLE,
        check_interval: timedelta = _CHECK_INTERVAL,
    ) -> None:
        """`in_hand` tells the attempts that are being claimed or whose end is being reported."""
        self._store = store
        self._kills = kills
        self._membership = membership
        self._attempts = attempts
        self._ended = ended
        self._node = node
        self._clock = clock
        self._in_hand = in_hand
        self._wake = wake
        self._idle = idle
        self._check_interval = check_interval.total_seconds()
        self._changed = True
        self._ask_again_at = 0.0
        self._check_at = 0.0
        self._compared_as: Node | None = None
        self._unknown: tuple[int, ...] = ()
        kills.watch(self._kills_changed)

    def run_once(self) -> timedelta:
        """Pass on what is to be killed; how long to rest.

        `ServiceUnreachableError` passes through; the next pass finds the same again.
        """
        node = self._node()
        if node is None or self._membership.standing_of(node) is Standing.LOST:
            return self._idle
        now = self._clock.monotonic()
        if node != self._compared_as:
            # What a new incarnation did not get from the former one must not run on.
            self._compared_as, self._unknown, self._check_at = node, (), now
        if now >= self._check_at:
            self._compare_with_rows(node)
            self._clear_requests_to_nobody(node)
            self._check_at = now + self._check_interval
        if self._changed or now >= self._ask_again_at:
            self._pass_on_requests(node)
            self._ask_again_at = now + self._check_interval
        return self._idle

    def _kills_changed(self) -> None:
        """Called on the registry's thread."""
        self._changed = True
        self._wake()

    def _pass_on_requests(self, node: Node) -> None:
        self._changed = False
        try:
            asked = self._kills.asked(node.address)
            if not asked:
                return
            for entry in asked:
                self._attempts.kill(entry.task_instance_id)
            # A request stays until its row is finished or somebody else's, so that none is lost
            # with us.
            held = self._store.running(node)
            if self._node() != node:
                self._changed = True
                return
            met = [entry for entry in asked if entry.task_instance_id not in held]
            self._kills.remove(met)
        except BaseException:
            self._changed = True
            raise
        if len(met) < len(asked):
            self._changed = True

    def _clear_requests_to_nobody(self, node: Node) -> None:
        """Take out requests to workers that are gone; one that comes back reads its rows."""
        others = self._kills.elsewhere(node.address)
        if not others:
            return
        living = {each.address for each in self._membership.nodes(NodeKind.WORKER)}
        self._kills.remove([entry for entry in others if entry.address not in living])

    def _compare_with_rows(self, node: Node) -> None:
        # First what runs, then the rows: whatever ran before the look had its row before that.
        running = sorted(self._attempts.running())
        held = self._store.running(node)
        if self._node() != node:
            return  # The rows may have changed hands before they were read.
        for task_instance_id, kill_wanted in held.items():
            if kill_wanted:
                self._attempts.kill(task_instance_id)
        for task_instance_id in running:
            if task_instance_id not in held and task_instance_id in self._attempts.running():
                log.warning(
                    "attempt is not ours any more", extra={"task_instance_id": task_instance_id}
                )
                self._attempts.kill(task_instance_id)
        self._report_unknown(held)

    def _report_unknown(self, held: dict[int, bool]) -> None:
        """Report attempts that are ours by their row but were never started here.

        That happens when a claim takes effect after its connection was given up. Only what two
        looks in a row have found is believed: a single one may fall between two hands.
        """
        known = (*self._in_hand(), *self._attempts.running(), *self._in_hand())
        unknown = tuple(each for each in held if each not in known)
        for task_instance_id in unknown:
            if task_instance_id in self._unknown:
                self._ended(
                    AttemptEnd(
                        task_instance_id=task_instance_id,
                        state=TaskState.KILL
                        if held[task_instance_id]
                        else TaskState.NEED_FAULT_TOLERANCE,
                        end_time=self._clock.now(),
                        reason="claimed, but never started: the answer to the claim was lost",
                    )
                )
        self._unknown = unknown
