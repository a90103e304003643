"""The loop that releases held tasks: its offers, its rests and its trust."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from common.model.cluster import QueueEntry
from common.store.master.ports import Released
from master.loops.hold_loop import HoldConfig, HoldLoop
from master.loops.queue_loop import QueueLoop
from tests.memory.store import MemoryDatabase, MemoryRunStore
from tests.unit.master_loops.place import MILLISECOND, SECOND, Place


class Holds:
    """Returns the test's answers, each once; then empty ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.answers: list[Released] = []
        self.calls: list[datetime] = []
        self.takes = timedelta()

    def release(self, *, now: datetime) -> Released:
        self.calls.append(now)
        self.place.pass_by(self.takes)
        if self.answers:
            return self.answers.pop(0)
        return Released(offers=(), instances=0, next_due=None)


def a_hold_loop(place: Place, store: Holds) -> tuple[HoldLoop, QueueLoop]:
    queue = QueueLoop(
        MemoryRunStore(MemoryDatabase()),
        tasks=place.registry.task_queue,
        kills=place.registry.kill_queue,
        identity=place.identity,
        clock=place.clock,
    )
    config = HoldConfig(interval=2 * SECOND, breath=50 * MILLISECOND)
    loop = HoldLoop(store, identity=place.identity, clock=place.clock, queue=queue, config=config)
    return loop, queue


def test_what_is_let_go_is_offered_to_the_workers(place: Place) -> None:
    store = Holds(place)
    loop, queue = a_hold_loop(place, store)
    entry = QueueEntry(
        process_priority=2,
        process_instance_id=1,
        task_priority=2,
        task_instance_id=5,
        worker_group_id=-1,
    )
    store.answers = [Released(offers=(entry,), instances=0, next_due=None)]
    loop.run_once()
    queue.run_once()
    assert place.registry.task_queue.entries() == (entry,)


@pytest.mark.parametrize(
    ("due_in", "rest"),
    [
        (None, 2 * SECOND),
        (SECOND, SECOND),
        (timedelta(hours=3), 2 * SECOND),
        (MILLISECOND, 50 * MILLISECOND),
        (timedelta(), 50 * MILLISECOND),
        (-timedelta(hours=3), 50 * MILLISECOND),
    ],
)
def test_the_hold_loop_rests_until_the_next_is_due_and_is_never_busy(
    place: Place, due_in: timedelta | None, rest: timedelta
) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    due = None if due_in is None else place.clock.now() + due_in
    store.answers = [Released(offers=(), instances=0, next_due=due)]
    assert loop.run_once() == rest


def test_a_release_that_takes_long_does_not_make_the_next_one_late(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    store.takes = SECOND
    due = place.clock.now() + 1.5 * SECOND
    store.answers = [Released(offers=(), instances=0, next_due=due)]
    assert loop.run_once() == 0.5 * SECOND


def test_between_two_releases_others_have_their_turn(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    store.takes = 80 * MILLISECOND
    loop.run_once()
    # As one that every end of a task with a pool wakes.
    assert loop.run_once() == 80 * MILLISECOND
    assert len(store.calls) == 1
    place.pass_by(80 * MILLISECOND)
    loop.run_once()
    assert len(store.calls) == 2


def test_a_master_that_is_not_trusted_lets_nothing_go(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    place.identity.become(None)
    assert loop.run_once() == 2 * SECOND
    assert store.calls == []
