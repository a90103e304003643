"""The loop that claims: slots, complements, groups, and claims whose answer is late or lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import NodeKind, QueueEntry
from common.model.states import TaskState
from tests.unit.worker_loops.place import Place


def test_what_is_submitted_is_claimed_started_and_released(place: Place) -> None:
    place.join()
    tasks = [place.submit(), place.submit()]
    place.worker.claims.run_once()
    assert place.attempts.started == tasks
    assert place.store.running(place.node) == dict.fromkeys(tasks, False)
    # The claims are released by the next pass, when the processes have been started.
    place.worker.claims.run_once()
    assert place.registry.task_queue.entries() == ()
    assert place.registry.task_queue.claimed() == frozenset()


def test_nothing_is_claimed_before_the_worker_has_joined(place: Place) -> None:
    place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == []


def test_no_more_is_claimed_than_there_are_slots() -> None:
    place = Place(slots=2, batch=10)
    place.join()
    tasks = [place.submit() for _ in range(3)]
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:2]
    place.attempts.end(tasks[0])
    place.worker.claims.run_once()
    assert place.attempts.started == tasks


def test_the_more_urgent_is_claimed_first() -> None:
    place = Place(slots=1)
    place.join()
    place.submit(priority=3)
    urgent = place.submit(priority=0)
    place.worker.claims.run_once()
    assert place.attempts.started == [urgent]


def test_a_complement_fills_all_the_slots_that_are_empty() -> None:
    place = Place(slots=3)
    place.join()
    live = place.submit()
    complement = place.submit_complement(4)
    assert place.claim() == [live, *complement[:2]]
    place.attempts.end(complement[0])
    assert place.claim() == [live, *complement[:3]]


def test_a_live_task_takes_a_slot_as_if_no_complement_were_there() -> None:
    place = Place(slots=2)
    place.join()
    complement = place.submit_complement(3)
    assert place.claim() == complement[:2]
    live = [place.submit() for _ in range(3)]
    assert place.claim() == [*complement[:2], *live[:2]]
    # Neither of them ran into a slot that it may have: those of live tasks are all taken.
    place.attempts.end(complement[0])
    assert place.claim() == [*complement[:2], *live[:2]]
    place.attempts.end(live[0])
    assert place.claim() == [*complement[:2], *live]


def test_a_complement_goes_on_only_when_nothing_holds_the_slot() -> None:
    place = Place(slots=2)
    place.join()
    complement = place.submit_complement(3)
    place.claim()
    live = place.submit()
    place.claim()
    place.attempts.end(complement[0])
    assert place.claim() == [*complement[:2], live]
    place.attempts.end(complement[1])
    assert place.claim() == [*complement[:2], live, complement[2]]


def test_a_complement_takes_no_more_slots_than_are_meant_for_it() -> None:
    place = Place(slots=4, complement_slots=1)
    place.join()
    complement = place.submit_complement(2)
    live = [place.submit() for _ in range(2)]
    assert place.claim() == [*live, complement[0]]
    place.attempts.end(complement[0])
    assert place.claim() == [*live, *complement]


def test_an_urgent_complement_goes_first_and_keeps_nobody_out() -> None:
    place = Place(slots=1)
    place.join()
    urgent = place.submit(complement=True, priority=0)
    live = place.submit()
    assert place.claim() == [urgent, live]


def test_a_complement_s_task_that_was_adopted_counts_as_one() -> None:
    place = Place(slots=1)
    adopted = place.row(
        process_instance_id=place.complement, state=1, host="w:1", worker_incarnation=7
    )
    place.attempts.left = (adopted,)
    place.attempts.complements.add(adopted)
    place.join()
    waits = place.submit(complement=True)
    live = place.submit()
    assert place.claim() == [live]
    place.attempts.end(live)
    place.attempts.end(adopted)
    assert place.claim() == [live, waits]


def test_a_task_bound_to_a_group_is_left_to_workers_of_that_group() -> None:
    place = Place(group_ids=(7,))
    place.join()
    place.submit(group=8)
    ours = place.submit(group=7)
    place.worker.claims.run_once()
    assert place.attempts.started == [ours]


def test_a_reserved_worker_takes_tasks_of_its_groups_alone_from_the_queue_and_by_hints() -> None:
    place = Place(group_ids=(7,), reserved=True)
    place.join()
    shared, ours = place.submit(), place.submit(group=7)
    assert place.claim() == [ours]
    # The other task stays in the queue for workers that are not reserved.
    assert [e.task_instance_id for e in place.registry.task_queue.entries()] == [shared]
    place.worker.claims.hinted([place.entry(shared)])
    assert place.claim() == [ours]
    # A master chose this worker before the worker was reserved.
    place.worker.claims.hinted([replace(place.entry(shared), worker="w:1")])
    assert place.claim() == [ours]
    assert place.worker.status().is_reserved


@pytest.mark.parametrize(
    ("group", "hosts"), [(8, "-1"), (8, "167772164"), (-1, "167772164"), (-1, "not an address")]
)
def test_t05_a_worker_rests_while_the_queue_holds_only_the_tasks_of_others(
    monkeypatch: pytest.MonkeyPatch, group: int, hosts: str
) -> None:
    place = Place(group_ids=(7,))
    place.join()
    others = replace(place.entry(place.row(), group=group), hosts=hosts)
    place.registry.task_queue.offer([others])
    place.zookeeper.deliver()
    looks: list[None] = []
    entries = place.registry.task_queue.entries

    def counted() -> tuple[QueueEntry, ...]:
        looks.append(None)
        return entries()

    monkeypatch.setattr(place.registry.task_queue, "entries", counted)
    assert place.worker.claims.run_once() >= timedelta(seconds=1)
    assert place.worker.claims.run_once() >= timedelta(seconds=1)
    assert len(looks) == 1
    assert place.attempts.started == []


def test_a_row_that_somebody_else_has_claimed_is_not_started(place: Place) -> None:
    place.join()
    task = place.row(state=1, host="other:1", worker_incarnation=5)
    place.registry.task_queue.offer([place.entry(task)])
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    assert place.attempts.started == []
    assert place.registry.task_queue.claimed() == frozenset()


def test_claims_are_released_within_a_second_though_more_come_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(slots=100)
    place.join()
    # As where other workers compete.
    monkeypatch.setattr(place.registry.task_queue, "take_soon", lambda *_: None)
    tasks = []
    for _ in range(10):
        tasks.append(place.submit())
        place.worker.claims.run_once()
    assert place.registry.task_queue.claimed() == set(tasks)
    place.pass_time(1)
    last = place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == [*tasks, last]
    assert place.registry.task_queue.claimed() == {last}


def test_the_claim_of_a_row_that_was_refused_is_released_at_once(place: Place) -> None:
    place.join()
    refused = place.row(state=1, host="other:1", worker_incarnation=5)
    place.registry.task_queue.offer([place.entry(refused)])
    ours = place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == [ours]
    assert refused not in place.registry.task_queue.claimed()


def test_an_end_has_more_claimed_only_where_something_may_wait_for_its_slot() -> None:
    place = Place(slots=2)
    wakes: list[None] = []
    place.worker.wakes.by_name["claim"] = lambda: wakes.append(None)
    place.join()
    first = place.submit()
    place.claim()
    wakes.clear()
    place.attempts.end(first)
    assert not wakes
    others = [place.submit() for _ in range(3)]
    assert place.claim() == [first, *others[:2]]
    wakes.clear()
    place.attempts.end(others[0])
    assert wakes
    assert place.claim() == [first, *others]


def test_slots_that_become_free_one_by_one_are_filled_together() -> None:
    place = Place(slots=16, batch=20)
    place.join()
    tasks = [place.submit() for _ in range(20)]
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:16]
    place.attempts.end(tasks[0])
    rest = place.worker.claims.run_once()
    assert timedelta() < rest <= timedelta(milliseconds=10)
    assert place.attempts.started == tasks[:16]
    place.attempts.end(tasks[1])
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:18]
    # A slot is not left empty for longer than a moment.
    place.attempts.end(tasks[2])
    place.worker.claims.run_once()
    place.pass_time(0.01)
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:19]
    # Nothing waits but this one: there is nothing to gather.
    place.attempts.end(tasks[3])
    place.worker.claims.run_once()
    assert place.attempts.started == tasks


def test_slots_gather_longer_while_attempts_wait_for_their_start() -> None:
    place = Place(slots=16, batch=20)
    place.join()
    tasks = [place.submit() for _ in range(20)]
    place.worker.claims.run_once()
    place.attempts.waits = 10_000
    place.attempts.end(tasks[0])
    place.worker.claims.run_once()
    place.pass_time(0.04)
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:16]
    place.pass_time(0.01)
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:17]


def test_a_live_run_waits_for_no_slots_of_a_complement_to_become_free() -> None:
    place = Place(slots=16, batch=20)
    place.join()
    complement = place.submit_complement(20)
    place.worker.claims.run_once()
    live = place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == [*complement[:16], live]


def test_an_end_during_a_pass_has_another_pass_made(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(slots=1)
    place.join()
    first = place.submit()
    place.claim()
    place.submit()
    wakes: list[None] = []
    place.worker.wakes.by_name["claim"] = lambda: wakes.append(None)
    running = place.attempts.running

    def ended_after() -> frozenset[int]:
        seen = running()
        if first in seen:
            place.attempts.end(first)
        return seen

    monkeypatch.setattr(place.attempts, "running", ended_after)
    place.worker.claims.run_once()
    assert wakes


def test_while_the_session_is_in_doubt_nothing_is_claimed(place: Place) -> None:
    place.join()
    place.submit()
    place.registry.cut_off()
    place.pass_time(2)
    place.worker.claims.run_once()
    assert place.attempts.started == []


def test_a_claim_that_surely_failed_is_made_again(place: Place) -> None:
    place.join()
    task = place.submit()
    place.no_answer("claim", "before")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.worker.claims.claiming() == {task}
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.registry.task_queue.claimed() == frozenset()


def test_an_attempt_is_started_though_its_entry_is_taken_later(place: Place) -> None:
    place.join()
    place.registry.claims_late = True
    task = place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.registry.task_queue.entries() == ()
    # Nobody competes, so that none is held.
    assert place.registry.task_queue.claimed() == frozenset()


def test_an_attempt_whose_entry_could_not_be_taken_runs_and_the_entry_goes_later(
    place: Place,
) -> None:
    place.join()
    place.registry.claims_late = True
    task = place.submit()

    def cut_off(name: str, moment: Literal["before", "after"]) -> None:
        if (name, moment) == ("claim", "after"):
            place.registry.cut_off()

    place.database.commit_hook = cut_off
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.worker.claims.claiming() == frozenset()
    place.database.commit_hook = lambda *_: None
    place.registry.reconnect()
    for _ in range(3):
        place.pass_time(1)
        place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.registry.task_queue.entries() == ()
    assert place.registry.task_queue.claimed() == frozenset()


def test_an_entry_that_another_worker_took_is_no_reason_not_to_start_the_row(place: Place) -> None:
    place.join()
    place.registry.claims_late = True
    task = place.submit()
    other = place.zookeeper.registry()
    node = other.membership.join(NodeKind.WORKER, "w:2", "")

    def take(name: str, moment: Literal["before", "after"]) -> None:
        if (name, moment) == ("claim", "after"):
            assert other.task_queue.claim([place.entry(task)], node)

    place.database.commit_hook = take
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    # From now on this worker asks the registry first.
    assert place.registry.task_queue.take_soon([place.entry(task)], place.node) is None


def test_a_claim_whose_answer_was_lost_is_given_back_unstarted(place: Place) -> None:
    place.join()
    task = place.submit()
    place.no_answer("claim", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.worker.claims.claiming() == {task}
    place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.attempts.started == []
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE
    assert place.worker.claims.claiming() == frozenset()
