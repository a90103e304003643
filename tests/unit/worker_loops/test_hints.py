"""Hints: attempts that are claimed before their entries are seen, once each, and in nobody's way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import NodeKind
from common.model.states import TaskState
from common.model.workers import WorkerMode, WorkerStatus
from common.store.listen import ORDERS, Channel, Notification
from master.loops.hint_targets import MOST_ATTEMPTS, HintTargets
from tests.unit.worker_loops.place import Place
from worker.loops.hint_loop import HintLoop


def test_an_attempt_is_claimed_before_its_entry_is_there_and_started_once(place: Place) -> None:
    place.join()
    place.claim()
    task = place.row()
    place.hint(task)
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.state(task) is TaskState.RUNNING
    place.registry.task_queue.offer([place.entry(task)])
    place.zookeeper.deliver()
    place.pass_time(0.1)
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.registry.task_queue.entries() == ()
    assert place.registry.task_queue.claimed() == frozenset()


def test_hints_that_follow_each_other_do_not_keep_others_waiting(place: Place) -> None:
    place.join()
    place.claim()
    bound_to_queue = place.submit()
    for _ in range(3):
        place.hint(place.row())
        rest = place.worker.claims.run_once()
        place.attempts.end(place.attempts.started[-1])
        place.pass_time(min(rest.total_seconds(), 0.005))
    place.worker.claims.run_once()
    assert bound_to_queue in place.attempts.started


def test_what_waits_for_a_scarce_slot_goes_before_what_is_hinted_at() -> None:
    place = Place(slots=1)
    place.join()
    place.claim()
    waiting, hinted = place.submit(), place.row()
    place.hint(hinted)
    assert place.claim() == [waiting]
    place.hint(hinted)
    assert place.claim() == [waiting]


def test_a_hint_of_an_attempt_that_another_worker_has_changes_nothing(place: Place) -> None:
    place.join()
    place.claim()
    task = place.row(state=int(TaskState.RUNNING), host="w:2", worker_incarnation=5)
    place.hint(task)
    place.worker.claims.run_once()
    assert place.attempts.started == []
    assert place.worker.claims.claiming() == frozenset()


def test_a_late_hint_does_not_end_the_attempt_that_runs(place: Place) -> None:
    place.join()
    task = place.submit()
    assert place.claim() == [task]
    place.attempts.end(task)
    place.hint(task)
    # Were its row asked for, and the answer lost, it would be taken for one that never started.
    place.no_answer("claim", "before")
    place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS


def test_a_claim_by_a_hint_whose_answer_was_lost_is_given_back_unstarted(place: Place) -> None:
    place.join()
    place.claim()
    task = place.row()
    place.hint(task)
    place.no_answer("claim", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.worker.claims.claiming() == {task}
    place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.attempts.started == []
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE


def test_a_worker_without_trust_follows_no_hint(place: Place) -> None:
    place.join()
    place.claim()
    place.registry.cut_off()
    place.pass_time(60)
    task = place.row()
    place.hint(task)
    place.worker.claims.run_once()
    assert place.state(task) is TaskState.SUBMITTED


class Heard:
    def __init__(self, *payloads: str) -> None:
        self.payloads = payloads
        self.channel = "hint"

    def wait(self, timeout: timedelta) -> list[Notification]:
        return [Notification(channel=self.channel, payload=each) for each in self.payloads]

    def wake(self) -> None:
        """Nothing waits in a test."""


def test_only_names_of_entries_are_passed_on(place: Place) -> None:
    told: list[str] = []
    heard = Heard("", "x 2_1_2_7_-1 2_1_2_8_-1", "1_2", ORDERS)
    looks: list[bool] = []
    loop = HintLoop(
        heard,
        hinted=lambda entries: told.extend(each.name for each in entries),
        ordered=lambda: looks.append(True),
    )
    loop.run_once()
    assert told == ["2_1_2_7_-1", "2_1_2_8_-1"]
    assert looks == [True]
    loop.stop()
    loop.run_once()
    assert len(told) == 2


def test_the_workers_in_turn_are_told_of_few_attempts_while_few_runs_go_on(place: Place) -> None:
    place.join()
    place.zookeeper.registry().membership.join(NodeKind.WORKER, "w:2", "")
    targets = HintTargets(place.zookeeper.registry().membership)
    assert targets.target(1) is None
    targets.run_once()
    assert [targets.target(1) for _ in range(3)] == ["w:1", "w:2", "w:1"]
    assert targets.target(0) is targets.target(MOST_ATTEMPTS + 1) is None
    targets.active = lambda: 100
    assert targets.target(1) is None


def test_who_has_left_is_told_of_nothing(place: Place) -> None:
    place.join()
    woken: list[bool] = []
    targets = HintTargets(place.zookeeper.registry().membership)
    targets.wake = lambda: woken.append(True)
    targets.run_once()
    assert targets.target(1) == "w:1"
    place.registry.membership.leave()
    place.zookeeper.deliver()
    assert woken
    targets.run_once()
    assert targets.target(1) is None


def test_who_takes_no_tasks_is_told_of_nothing(place: Place) -> None:
    place.join()
    place.zookeeper.registry().membership.join(NodeKind.WORKER, "w:2", "")
    modes = {"w:1": WorkerMode.LAZY}
    targets = HintTargets(place.zookeeper.registry().membership, lambda: modes)
    targets.run_once()
    assert {targets.target(1) for _ in range(3)} == {"w:2"}
    modes["w:2"] = WorkerMode.DISABLED
    targets.look_again()
    targets.run_once()
    assert targets.target(1) is None


def test_a_reserved_worker_gets_no_hint(place: Place) -> None:
    place.join()
    status = WorkerStatus(capacity=1, used=0, version="1", is_reserved=True)
    beat = f"w,1,0,0,0,2026-01-01 00:00:00,2026-01-01 00:00:00,{status.text()}"
    place.zookeeper.registry().membership.join(NodeKind.WORKER, "w:2", beat)
    targets = HintTargets(place.zookeeper.registry().membership)
    targets.run_once()
    assert {targets.target(1) for _ in range(3)} == {"w:1"}


def test_a_change_of_modes_and_a_reminder_are_passed_on(place: Place) -> None:
    heard: list[bool] = []
    source = Heard("")
    for channel in (Channel.WORKER.value, ""):
        source.channel = channel
        HintLoop(source, hinted=lambda _: None, modes_changed=lambda: heard.append(True)).run_once()
    assert heard == [True, True]


def test_a_new_attempt_with_the_id_of_a_claimed_one_is_started(place: Place) -> None:
    # A server that was promoted without the last transactions, or restored, numbers new rows so.
    place.join()
    place.claim()
    task = place.row()
    place.hint(task)
    place.worker.claims.run_once()
    place.attempts.end(task)
    place.database.update(place.database.tasks, task, state=TaskState.SUBMITTED, host=None)
    for _ in range(4):
        # As a master does whose entry is missing.
        place.registry.task_queue.offer([place.entry(task)])
        place.zookeeper.deliver()
        place.pass_time(3)
        place.worker.claims.run_once()
    assert place.attempts.started == [task, task]
