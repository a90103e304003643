"""A worker without a session: what runs on, what is killed, and how the attempts change hands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.leases import GRACE, LEASE
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, Kept
from tests.memory.store import MemoryFailoverStore
from tests.unit.worker_loops.place import ADDRESS, Place


def a_running_task(place: Place) -> int:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    return task


def watch_the_lease(place: Place, seconds: float) -> None:
    """Let time pass as the daemon would: the loops that need no ZooKeeper run all the while."""
    for _ in range(round(4 * seconds)):
        place.pass_time(0.25)
        place.worker.looks.run_once()
        place.worker.leases.run_once()


def test_a_lost_session_stops_nothing_and_the_next_incarnation_takes_over(place: Place) -> None:
    task = a_running_task(place)
    first = place.node
    place.zookeeper.expire(place.registry)
    place.pass_time(1)
    place.worker.heartbeat.run_once()
    assert place.node.incarnation > first.incarnation
    assert place.attempts.running() == {task}
    assert place.store.running(place.node) == {task: False}
    place.attempts.end(task)
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS


def test_while_zookeeper_is_away_attempts_run_end_and_are_reported(place: Place) -> None:
    short, long = a_running_task(place), place.submit()
    place.worker.claims.run_once()
    waiting = place.submit()
    place.zookeeper.freeze()
    for _ in range(3):
        watch_the_lease(place, 20)
        place.worker.heartbeat.run_once()
        place.worker.claims.run_once()
        place.worker.kills.run_once()
    place.attempts.end(short)
    place.worker.reporter.run_once()
    assert place.state(short) is TaskState.SUCCESS
    assert place.attempts.running() == {long}
    place.zookeeper.thaw()
    place.worker.heartbeat.run_once()
    assert place.store.running(place.node) == {long: False}
    # One that was claimed by nobody is claimed now.
    place.pass_time(1)
    assert waiting in place.claim()


def test_a_kill_that_is_wanted_while_zookeeper_is_away_is_found_in_the_row(place: Place) -> None:
    task = a_running_task(place)
    place.zookeeper.freeze()
    watch_the_lease(place, 10)
    place.database.update(place.database.tasks, task, wanted_state=9)
    watch_the_lease(place, 1)
    assert place.attempts.killed[0] == task


def test_an_attempt_that_was_given_to_others_is_ended_at_once_and_no_other(place: Place) -> None:
    given, kept = a_running_task(place), place.submit()
    place.worker.claims.run_once()
    place.registry.cut_off()
    place.pass_time(3)
    place.database.update(place.database.tasks, given, state=8, end_time=place.clock.now())
    place.worker.looks.run_once()
    assert place.attempts.abandoned == [given]
    assert kept in place.attempts.running()


def test_a_worker_that_is_missed_kills_its_attempts_before_the_grace_is_over(place: Place) -> None:
    task = a_running_task(place)
    node = place.node
    place.registry.cut_off()
    watch_the_lease(place, 10)
    assert place.attempts.running() == {task}
    failover = MemoryFailoverStore(place.database)
    failover.mark_lost(node, now=place.clock.now())
    watch_the_lease(place, GRACE.total_seconds() - 1)
    assert place.attempts.running() == frozenset()
    assert failover.fail_tasks_over(node, now=place.clock.now()) == 1


def test_a_worker_that_is_back_in_time_keeps_what_was_marked(place: Place) -> None:
    task = a_running_task(place)
    node = place.node
    place.registry.cut_off()
    watch_the_lease(place, 10)
    failover = MemoryFailoverStore(place.database)
    failover.mark_lost(node, now=place.clock.now())
    watch_the_lease(place, 2)
    place.registry.reconnect()
    place.worker.heartbeat.run_once()
    watch_the_lease(place, 10)
    assert place.attempts.running() == {task}
    assert failover.fail_tasks_over(node, now=place.clock.now()) == 0


def test_a_worker_that_reaches_neither_server_kills_its_attempts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_running_task(place)
    place.registry.cut_off()
    watch_the_lease(place, 10)

    def no_answer(*_: object) -> dict[int, Kept]:
        raise ServiceUnreachableError("no answer")

    monkeypatch.setattr(place.store, "kept", no_answer)
    watch_the_lease(place, LEASE.total_seconds() - 1)
    assert place.attempts.running() != frozenset()
    watch_the_lease(place, 2)
    assert place.attempts.running() == frozenset()


def test_a_daemon_that_was_frozen_looks_before_it_kills(place: Place) -> None:
    task = a_running_task(place)
    # No loop runs for longer than the session and the lease last.
    place.clock.move_to(place.clock.elapsed + timedelta(seconds=8))
    place.worker.leases.run_once()
    place.worker.looks.run_once()
    watch_the_lease(place, 1)
    assert place.attempts.running() == {task}


def test_an_end_that_was_refused_while_the_rows_changed_hands_is_reported_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = a_running_task(place)
    report = place.store.report

    def overtaken(node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        monkeypatch.setattr(place.store, "report", report)
        place.zookeeper.expire(place.registry)
        place.pass_time(1)
        place.worker.heartbeat.run_once()
        return report(node, ends)

    monkeypatch.setattr(place.store, "report", overtaken)
    place.attempts.end(task)
    place.worker.reporter.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS
    assert place.attempts.forgotten == [task]


def test_a_take_over_that_failed_is_made_again_and_kills_nothing(place: Place) -> None:
    task = a_running_task(place)
    place.zookeeper.expire(place.registry)
    place.pass_time(1)
    place.no_answer("take_over", "after")
    place.worker.heartbeat.run_once()
    assert place.worker.identity.node is None
    place.worker.kills.run_once()
    watch_the_lease(place, 1)
    place.worker.heartbeat.run_once()
    assert place.store.running(place.node) == {task: False}
    place.worker.kills.run_once()
    assert (place.attempts.killed, place.attempts.abandoned) == ([], [])


def test_an_adoption_whose_answer_was_lost_loses_no_attempt(place: Place) -> None:
    ours = place.row(state=1, host=ADDRESS, worker_incarnation=999)
    place.attempts.left = (ours,)
    place.no_answer("adopt", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.heartbeat.run_once()
    place.join()
    assert place.attempts.adopted == [ours]
