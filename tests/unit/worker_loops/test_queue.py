"""The queue between a master and a worker: entries are neither lost nor doubled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from common.model.cluster import Node, QueueEntry, ip_number
from common.registry.protocol import RegistryUnavailableError, TaskQueue
from common.store.master.ports import Saved
from master.identity import Identity
from master.loops.queue_loop import QueueConfig, QueueLoop
from tests.memory.store import MemoryRunStore
from tests.unit.worker_loops.place import Place


def a_queue_loop(place: Place, **config: Any) -> QueueLoop:
    """The queue of the master that owns this place's run."""
    registry = place.zookeeper.registry()
    identity = Identity(registry.membership)
    identity.become(Node(address="m:1", incarnation=1))
    return QueueLoop(
        MemoryRunStore(place.database),
        tasks=registry.task_queue,
        kills=registry.kill_queue,
        identity=identity,
        clock=place.clock,
        config=QueueConfig(**config),
    )


def test_t03_an_entry_whose_row_is_not_visible_yet_is_not_lost(place: Place) -> None:
    queue = a_queue_loop(place)
    place.join()
    seen = place.submit()
    unseen = seen + 1
    place.registry.task_queue.offer([place.entry(unseen)])
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    # One adopted attempt does not imply that the next one is adopted.
    assert place.attempts.started == [seen]
    assert place.registry.task_queue.claimed() == frozenset()
    assert place.row(submit_time=place.clock.now()) == unseen
    place.pass_time(5)
    queue.run_once()
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert place.attempts.started == [seen, unseen]


def test_t51_an_offer_that_the_registry_did_not_take_is_made_again(place: Place) -> None:
    queue = a_queue_loop(place)
    place.join()
    task = place.row(submit_time=place.clock.now())
    place.zookeeper.freeze()
    queue.offer([place.entry(task)])
    with pytest.raises(RegistryUnavailableError):
        queue.run_once()
    place.zookeeper.thaw()
    place.pass_time(5)
    queue.run_once()
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert place.attempts.started == [task]


def test_t08_an_entry_is_found_by_its_attempt_whatever_its_name_was(place: Place) -> None:
    queue = a_queue_loop(place)
    group = place.database.insert(place.database.worker_groups, name="spark", ip_list="10.0.0.9")
    task = place.row(submit_time=place.clock.now(), worker_group_id=group)
    now = replace(place.entry(task, group=group), hosts=str(ip_number("10.0.0.9")))
    before = replace(now, process_priority=4, hosts=str(ip_number("10.0.0.8")))
    place.registry.task_queue.offer([before])
    for _ in range(2):
        place.pass_time(5)
        queue.run_once()
        # Neither left where no worker may claim it, nor twice in the queue.
        assert place.registry.task_queue.entries() == (now,)


def test_a_queue_that_was_lost_is_offered_again_page_by_page(place: Place) -> None:
    queue = a_queue_loop(place, page=2)
    place.join()
    tasks = [place.row(submit_time=place.clock.now()) for _ in range(5)]
    place.pass_time(5)
    while queue.run_once() == timedelta():
        pass
    there = {entry.task_instance_id for entry in place.registry.task_queue.entries()}
    assert there == set(tasks)


class SlowQueue:
    """Takes offers without waiting, and answers them when the test says so."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self.sent: list[tuple[tuple[QueueEntry, ...], Callable[[bool], None]]] = []

    def offer_soon(self, entries: Sequence[QueueEntry], *, done: Callable[[bool], None]) -> None:
        self.sent.append((tuple(entries), done))

    def answer(self, is_in: bool) -> None:
        entries, done = self.sent.pop()
        if is_in:
            self._queue.offer(entries)
        done(is_in)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@dataclass
class Offers:
    """A queue loop whose offers are answered when the test says so."""

    place: Place
    loop: QueueLoop = field(init=False)
    slow: SlowQueue = field(init=False)
    wakes: int = 0

    def __post_init__(self) -> None:
        self.slow = SlowQueue(self.place.registry.task_queue)
        self.loop = QueueLoop(
            MemoryRunStore(self.place.database),
            tasks=cast("TaskQueue", self.slow),
            kills=self.place.registry.kill_queue,
            identity=Identity(self.place.registry.membership),
            clock=self.place.clock,
            wake=self._woken,
        )

    def _woken(self) -> None:
        self.wakes += 1

    def offer(self, task: int) -> QueueEntry:
        entry = self.place.entry(task)
        self.loop.offer([entry])
        return entry

    @property
    def entries(self) -> tuple[QueueEntry, ...]:
        return self.place.registry.task_queue.entries()


def test_a_lone_offer_is_sent_at_once_and_wakes_nobody(place: Place) -> None:
    offers = Offers(place)
    entry = offers.offer(place.row())
    offers.slow.answer(True)
    assert (offers.entries, offers.wakes) == ((entry,), 0)


def test_offers_gather_while_one_is_under_way_and_then_go_together(place: Place) -> None:
    offers = Offers(place)
    first, second, third = (offers.offer(place.row()) for _ in range(3))
    assert (len(offers.slow.sent), offers.wakes) == (1, 0)
    offers.slow.answer(True)
    assert (offers.entries, offers.wakes) == ((first,), 1)
    offers.loop.run_once()
    assert offers.entries == (first, second, third)


def test_what_was_not_taken_is_offered_by_the_loop(place: Place) -> None:
    offers = Offers(place)
    first, second = offers.offer(place.row()), offers.offer(place.row())
    offers.slow.answer(False)
    assert offers.wakes == 1
    offers.loop.run_once()
    assert offers.entries == (first, second)


def test_an_answer_that_never_comes_holds_nothing_up(place: Place) -> None:
    offers = Offers(place)
    offers.offer(place.row())
    second = offers.offer(place.row())
    offers.loop.run_once()
    assert offers.entries == (second,)
    third = offers.offer(place.row())
    offers.slow.answer(True)
    assert offers.entries == (second, third)


def test_a_withdrawal_never_overtakes_an_offer(place: Place) -> None:
    offers = Offers(place)
    entry = offers.offer(place.row())
    offers.loop.add(Saved(lost=frozenset(), offers=(), kills=(), withdrawn=(entry,)))
    assert offers.wakes == 0
    offers.slow.answer(True)
    offers.loop.run_once()
    assert offers.entries == ()


def told(offers: Offers, *entries: QueueEntry) -> None:
    """Save offers of which a worker was told."""
    offers.loop.add(Saved(lost=frozenset(), offers=entries, kills=(), withdrawn=(), hinted=True))


def test_an_attempt_that_a_worker_was_told_of_is_put_in_a_moment_later(place: Place) -> None:
    offers = Offers(place)
    offers.loop.run_once()
    entry = place.entry(place.row())
    told(offers, entry)
    # The loop would not look for seconds.
    assert (offers.slow.sent, offers.entries, offers.wakes) == ([], (), 1)
    rest = offers.loop.run_once()
    assert (rest, offers.entries) == (timedelta(milliseconds=50), ())
    place.pass_time(rest.total_seconds())
    offers.loop.run_once()
    assert offers.entries == (entry,)


def test_an_attempt_that_ends_or_is_withdrawn_before_is_never_put_in(place: Place) -> None:
    offers = Offers(place)
    offers.loop.run_once()
    first, second, third = (place.entry(place.row()) for _ in range(3))
    told(offers, first, second, third)
    offers.loop.forget(first.task_instance_id)
    offers.loop.add(Saved(lost=frozenset(), offers=(), kills=(), withdrawn=(second,)))
    place.pass_time(0.05)
    offers.loop.run_once()
    assert offers.entries == (third,)


def test_while_attempts_follow_each_other_the_loop_looks_by_itself(place: Place) -> None:
    offers = Offers(place)
    offers.loop.run_once()
    for _ in range(3):
        entry = place.entry(place.row())
        told(offers, entry)
        offers.loop.forget(entry.task_instance_id)
        place.pass_time(offers.loop.run_once().total_seconds())
    assert (offers.entries, offers.wakes) == ((), 1)


def test_what_not_every_worker_may_take_is_put_in_at_once(place: Place) -> None:
    offers = Offers(place)
    bound = replace(place.entry(place.row()), worker_group_id=3, hosts="1")
    complement = replace(place.entry(place.row()), yields=True)
    told(offers, bound, complement)
    offers.slow.answer(True)
    assert set(offers.entries) == {bound, complement}
