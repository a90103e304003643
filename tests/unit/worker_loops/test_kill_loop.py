"""The loop that kills: on request, by the rows, and of attempts that belong to others."""

from __future__ import annotations

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import KillEntry, Node, NodeKind
from common.model.states import TaskState
from tests.unit.worker_loops.place import ADDRESS, Place


def test_a_claim_that_takes_effect_late_is_found_and_given_back(place: Place) -> None:
    node = place.join()
    task = place.row(state=1, host=node.address, worker_incarnation=node.incarnation)
    for _ in range(2):
        assert place.state(task) is TaskState.RUNNING
        place.worker.kills.run_once()
        place.worker.reporter.run_once()
        place.pass_time(5)
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE


def test_a_kill_request_stays_until_its_row_is_finished(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=task)])
    place.zookeeper.deliver()
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]
    assert place.registry.kill_queue.asked(ADDRESS) != ()
    place.attempts.end(task, TaskState.KILL)
    place.worker.reporter.run_once()
    place.worker.kills.run_once()
    assert place.registry.kill_queue.asked(ADDRESS) == ()


def test_t63_kill_requests_to_others_are_left_alone(place: Place) -> None:
    place.join()
    place.zookeeper.registry().membership.join(NodeKind.WORKER, "w:12", "")
    place.registry.kill_queue.ask([KillEntry(address="w:12", task_instance_id=1)])
    place.worker.kills.run_once()
    assert place.attempts.killed == []
    assert place.registry.kill_queue.asked("w:12") != ()


def test_kill_requests_to_a_worker_that_is_gone_are_taken_out(place: Place) -> None:
    place.join()
    place.registry.kill_queue.ask([KillEntry(address="w:12", task_instance_id=1)])
    place.worker.kills.run_once()
    assert place.registry.kill_queue.asked("w:12") == ()
    assert place.attempts.killed == []


def test_t62_a_bad_kill_request_and_a_lost_answer_cost_no_other_kill(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.join()
    first, second = place.submit(), place.submit()
    place.worker.claims.run_once()
    for nonsense in ("nonsense", f"{ADDRESS}-", f"{ADDRESS}-x", "-1", "-"):
        place.zookeeper.create("tasks_kill", nonsense, nonsense)
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=2_000_000_000)])
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=first)])
    place.zookeeper.deliver()
    place.worker.kills.run_once()
    assert first in place.attempts.killed

    def no_answer(_node: Node) -> dict[int, bool]:
        raise ServiceUnreachableError("no answer")

    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=second)])
    place.zookeeper.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(place.store, "running", no_answer)
        place.pass_time(6)
        with pytest.raises(ServiceUnreachableError):
            place.worker.kills.run_once()
    # A loop whose pass failed for want of an answer passes again.
    place.worker.kills.run_once()
    assert second in place.attempts.killed


def test_a_kill_that_has_no_request_is_found_in_the_row(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, wanted_state=9)
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]


def test_a_process_whose_row_is_not_ours_any_more_is_killed(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, state=8, end_time=place.clock.now())
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]
