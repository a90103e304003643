"""Mistakes about daemons that have lost their sessions, for the simulated cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.registry.protocol import Standing
from common.store.worker.ports import Kept
from master.logic.absences import Absences, Due
from tests.memory.store import MemoryTaskStore
from worker.loops.heartbeat import HeartbeatLoop as WorkerHeartbeatLoop
from worker.loops.lease_loop import LeaseLoop
from worker.loops.look_loop import LookLoop


class BlindTaskStore(MemoryTaskStore):
    """Does not show a worker that a master has missed it."""

    def kept(self, address: str, task_instance_ids: Collection[int]) -> dict[int, Kept]:
        found = super().kept(address, task_instance_ids)
        return {task_id: replace(row, lost=False) for task_id, row in found.items()}


def forget_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A worker without a session runs its attempts on until their rows are somebody else's."""
    patch.setattr(LeaseLoop, "run_once", lambda _: timedelta(seconds=1))


def take_silence_for_consent(patch: pytest.MonkeyPatch) -> None:
    """A worker whose rows can't be read goes on as if nobody had missed it."""
    look = LookLoop._look

    def trusting(loop: LookLoop, running: list[int]) -> None:
        try:
            look(loop, running)
        except ServiceUnreachableError:
            loop._lease.renew(loop._clock.monotonic())

    patch.setattr(LookLoop, "_look", trusting)


def fail_over_what_was_marked_just_now(patch: pytest.MonkeyPatch) -> None:
    """A master marks a missing worker's attempts and waits for nothing."""

    def marked(absences: Absences, worker: Node, *, now: float) -> None:
        absences._marked[worker] = float("-inf")

    patch.setattr(Absences, "marked", marked)


def miss_whoever_comes_back_later(patch: pytest.MonkeyPatch) -> None:
    """A master that is back in ZooKeeper gives workers no time to be back, too."""
    due = Absences.due

    def at_once(absences: Absences, missing: Collection[Node], **given: Any) -> Due:
        absences._return_grace = 0.0
        return due(absences, missing, **given)

    patch.setattr(Absences, "due", at_once)


def kill_with_the_session(patch: pytest.MonkeyPatch) -> None:
    """A worker kills what it runs because its session is lost."""
    check = WorkerHeartbeatLoop._check_standing

    def killing(loop: WorkerHeartbeatLoop, now: float) -> None:
        if loop._membership.standing() is Standing.LOST:
            loop._attempts.kill_all()
        check(loop, now)

    patch.setattr(WorkerHeartbeatLoop, "_check_standing", killing)


def join_again_with_empty_hands(patch: pytest.MonkeyPatch) -> None:
    """A worker that is back takes no attempt over, so that others have to miss them."""
    patch.setattr(MemoryTaskStore, "take_over", lambda *_: frozenset())
