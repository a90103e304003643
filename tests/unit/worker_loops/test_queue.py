"""The queue between a master and a worker: entries are neither lost nor doubled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import Node, ip_number
from common.registry.protocol import RegistryUnavailableError
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
