"""Failover of the runs and attempts of lost daemons."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from common.model.commands import Command
from common.model.decisions import AbandonTask, FinishProcess
from common.model.plans import Plan, Resume, Snapshot
from common.model.states import (
    Priority,
    ProcessState,
    TaskState,
)
from common.store import tables as t
from common.store.worker.ports import Kept
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    OTHER_MASTER,
    OTHER_WORKER,
    REBORN,
    RESTARTED,
    WORKER,
    Tables,
    a_run,
    a_submit,
    always,
    an_end,
    claim,
    end,
    end_run,
    fail_over,
    finish,
    has,
    save,
    submit,
    take,
    the_process,
    the_task,
)


def test_a_lost_masters_runs_are_recovered_once_and_resumed_by_another(db: Tables) -> None:
    first = a_run(db, priority=Priority.HIGH, executor_id=1)
    second, ended = a_run(db), a_run(db)
    a_run(db, node=OTHER_MASTER)
    save(db, ended, FinishProcess(state=ProcessState.SUCCESS))
    assert db.failover.run_owners() == {MASTER, OTHER_MASTER}
    assert db.failover.recover_runs(MASTER, now=LATER) == 2
    assert db.failover.recover_runs(MASTER, now=LATER) == 0
    assert db.failover.run_owners() == {OTHER_MASTER}
    row = db.rows(t.command)[0]
    expected = {
        "command_type": 2,
        "process_definition_id": 1,
        "command_param": json.dumps(
            {"ProcessInstanceId": first.process_instance_id}, separators=(",", ":")
        ),
        "executor_id": 1,
        "process_instance_priority": 1,
        "process_instance_id": first.process_instance_id,
        "start_time": LATER,
        "update_time": LATER,
        "task_depend_type": 2,
        "failure_strategy": 1,
        "worker_group_id": -1,
    }
    assert {name: row[name] for name in expected} == expected

    def resume(_command: Command, snapshot: Snapshot) -> Plan:
        assert snapshot.instance is not None
        assert snapshot.instance.owner == MASTER
        return Resume(process_instance_id=snapshot.instance.id, epoch=snapshot.instance.owner_epoch)

    handled = take(db, resume, node=OTHER_MASTER)
    assert [one.ownership for one in handled] == [
        replace(run, host=OTHER_MASTER.address, epoch=2) for run in (first, second)
    ]
    assert save(db, first, a_submit("a")).lost == {first}
    assert db.failover.run_owners() == {OTHER_MASTER}
    assert db.failover.recover_runs(MASTER, now=LATER) == 0


def test_a_master_that_hands_its_runs_over_raises_no_alert(db: Tables) -> None:
    owned, over, other = a_run(db), a_run(db), a_run(db, node=OTHER_MASTER)
    end_run(db, over)
    assert db.failover.hand_over(MASTER, now=LATER) == 1
    assert db.failover.hand_over(MASTER, now=LATER) == 0
    assert has(the_process(db, owned), state=1, host=None, owner_incarnation=None, owner_epoch=1)
    assert db.failover.run_owners() == {OTHER_MASTER}
    assert save(db, owned, a_submit("a")).lost == {owned}
    assert db.failover.recover_runs(MASTER, now=LATER) == 0
    assert db.failover.recover_ownerless(now=LATER) == 1
    plan = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(plan), node=OTHER_MASTER)
    assert handled.ownership == replace(owned, host=OTHER_MASTER.address, epoch=2)
    assert db.rows(t.alert) == []
    assert the_process(db, other)["host"] == OTHER_MASTER.address


@pytest.mark.parametrize("column", ["host", "owner_incarnation"])
def test_a_run_whose_owner_somebody_has_erased_is_recovered_like_any_other(
    db: Tables, column: str
) -> None:
    spoilt, over = a_run(db), a_run(db)
    a_run(db)
    end_run(db, over)
    for owned in (spoilt, over):
        db.update(t.process_instance, owned.process_instance_id, **{column: None})
    assert db.failover.recover_ownerless(now=LATER) == 1
    assert db.failover.recover_ownerless(now=LATER) == 0
    (row,) = db.rows(t.command)
    assert (row["command_type"], row["process_instance_id"]) == (2, spoilt.process_instance_id)
    assert db.failover.run_owners() == {MASTER}


def test_a_master_that_came_back_under_its_address_is_another_owner(db: Tables) -> None:
    a_run(db, node=REBORN)
    assert db.failover.run_owners() == {REBORN}
    assert db.failover.recover_runs(MASTER, now=LATER) == 0


def test_a_lost_workers_attempts_end_and_their_runs_hear_of_it(db: Tables) -> None:
    owned, over = a_run(db), a_run(db)
    a, b, waiting, done = submit(db, owned, "a", "b", "waiting", "done")
    (forgotten,) = submit(db, over, "a")
    claim(db, [a, done, forgotten])
    claim(db, [b], node=OTHER_WORKER)
    end(db, an_end(done))
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    assert db.failover.task_owners() == {WORKER, OTHER_WORKER}
    assert fail_over(db, RESTARTED, now=LATER) == 0
    assert fail_over(db, WORKER, now=LATER) == 1
    assert fail_over(db, WORKER, now=LATER) == 0
    assert db.failover.task_owners() == {OTHER_WORKER}
    states = [the_task(db, one)["state"] for one in (a, b, waiting, done, forgotten)]
    assert states == [8, 1, 0, 7, 1]
    assert the_task(db, a)["end_time"] == LATER
    assert WORKER.address in the_task(db, a)["reason"]
    reports = {one.task_instance_id: one.state for one in db.runs.reports(MASTER)}
    assert reports[a] is TaskState.NEED_FAULT_TOLERANCE


def test_only_attempts_that_were_marked_as_lost_are_failed_over(db: Tables) -> None:
    owned, over = a_run(db), a_run(db)
    a, b = submit(db, owned, "a", "b")
    (forgotten,) = submit(db, over, "a")
    claim(db, [a, forgotten])
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    assert db.failover.fail_tasks_over(WORKER, now=LATER) == 0
    assert db.failover.mark_lost(RESTARTED, now=NOON) == 0
    assert db.failover.mark_lost(WORKER, now=NOON) == 1
    assert db.failover.mark_lost(WORKER, now=LATER) == 0
    assert [the_task(db, one)["lost_at"] for one in (a, b, forgotten)] == [NOON, None, None]
    # One that is claimed after the marks is not failed over with the others.
    claim(db, [b])
    assert db.failover.fail_tasks_over(WORKER, now=LATER) == 1
    assert [the_task(db, one)["state"] for one in (a, b, forgotten)] == [8, 1, 1]


def test_a_worker_sees_its_marks_and_takes_them_away_with_the_attempts(db: Tables) -> None:
    a, b, elsewhere, done = submit(db, a_run(db), "a", "b", "elsewhere", "done")
    claim(db, [a, b, done])
    claim(db, [elsewhere], node=OTHER_WORKER)
    end(db, an_end(done))
    db.update(t.task_instance, b, wanted_state=int(TaskState.KILL))
    db.failover.mark_lost(WORKER, now=NOON)
    every = [a, b, elsewhere, done]
    assert db.tasks.kept(WORKER.address, every) == {
        a: Kept(kill_wanted=False, lost=True),
        b: Kept(kill_wanted=True, lost=True),
    }
    assert db.tasks.take_over(RESTARTED) == {a, b}
    assert db.tasks.take_over(RESTARTED) == frozenset()
    assert db.tasks.kept(WORKER.address, every) == {
        a: Kept(kill_wanted=False, lost=False),
        b: Kept(kill_wanted=True, lost=False),
    }
    assert db.failover.fail_tasks_over(WORKER, now=LATER) == 0
    assert end(db, an_end(a)) == frozenset()
    assert end(db, an_end(a), node=RESTARTED) == {a}
    assert the_task(db, elsewhere)["worker_incarnation"] == OTHER_WORKER.incarnation


def test_the_end_of_an_attempt_that_was_marked_takes_the_mark_away(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    db.failover.mark_lost(WORKER, now=NOON)
    assert end(db, an_end(task_id)) == {task_id}
    assert the_task(db, task_id)["lost_at"] is None


def test_a_lost_attempt_is_looked_for_on_its_host_until_no_process_is_left(db: Tables) -> None:
    here, running, elsewhere = submit(db, a_run(db), "here", "running", "elsewhere")
    claim(db, [here])
    claim(db, [elsewhere], node=OTHER_WORKER)
    fail_over(db, WORKER, now=LATER)
    fail_over(db, OTHER_WORKER, now=LATER)
    claim(db, [running])
    db.failover.mark_lost(WORKER, now=LATER)
    host = WORKER.address.partition(":")[0]
    path = the_task(db, here)["execute_path"]
    assert db.tasks.lost(host) == {here: path}
    assert db.tasks.lost(host[:-1]) == {}
    db.tasks.found_gone(host, [here, running, elsewhere])
    assert db.tasks.lost(host) == {}
    marks = [the_task(db, one)["lost_at"] for one in (here, running, elsewhere)]
    assert marks == [None, LATER, LATER]


def test_a_running_attempt_that_is_given_up_may_still_run(db: Tables) -> None:
    owned = a_run(db)
    running, waiting = submit(db, owned, "running", "waiting")
    claim(db, [running])
    save(db, owned, AbandonTask(name="running", attempt=1), AbandonTask(name="waiting", attempt=1))
    assert [the_task(db, one)["state"] for one in (running, waiting)] == [9, 9]
    assert the_task(db, running)["lost_at"] is not None
    assert the_task(db, waiting)["lost_at"] is None
    assert list(db.tasks.lost(WORKER.address.partition(":")[0])) == [running]


def test_a_restarted_worker_s_adoption_takes_the_marks_away(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    db.failover.mark_lost(WORKER, now=NOON)
    assert db.tasks.adopt(RESTARTED, [task_id]) == {task_id}
    assert the_task(db, task_id)["lost_at"] is None


def test_t76_a_failover_leaves_the_attempts_of_ended_runs_alone(db: Tables) -> None:
    over = a_run(db)
    (forgotten,) = submit(db, over, "a")
    claim(db, [forgotten])
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    assert db.failover.task_owners() == frozenset()
    assert fail_over(db, WORKER, now=LATER) == 0
    assert the_task(db, forgotten)["state"] == TaskState.RUNNING


def test_a_report_that_comes_after_the_failover_changes_nothing(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    fail_over(db, WORKER, now=NOON)
    saved = save(db, owned, finish("a", TaskState.NEED_FAULT_TOLERANCE), a_submit("a", 2))
    (second,) = [offer.task_instance_id for offer in saved.offers]
    assert claim(db, [second], node=OTHER_WORKER) == [second]
    assert end(db, an_end(first)) == frozenset()
    assert db.tasks.adopt(RESTARTED, [first, second]) == frozenset()
    assert the_task(db, first)["state"] == TaskState.NEED_FAULT_TOLERANCE
    assert the_task(db, second)["state"] == TaskState.RUNNING


def test_a_failover_that_comes_after_the_report_changes_nothing(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    end(db, an_end(task_id))
    assert fail_over(db, WORKER, now=NOON) == 0
    assert the_task(db, task_id)["state"] == TaskState.SUCCESS
