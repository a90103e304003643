"""Reading and saving runs, for the master that owns them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import KillEntry, QueueEntry, ip_number
from common.model.decisions import (
    Decision,
    FinishProcess,
    GiveUpRetry,
    PassForbidden,
    RetryTask,
)
from common.model.states import (
    Priority,
    ProcessState,
    TaskState,
    WarningType,
)
from common.store import tables as t
from common.store.master.ports import Saved, Step
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    OTHER_MASTER,
    REBORN,
    STOPPING,
    WORKER,
    Tables,
    a_begin,
    a_child,
    a_run,
    a_submit,
    an_end,
    claim,
    end,
    finish,
    has,
    kill,
    load,
    save,
    submit,
    take_over,
    the_process,
    the_task,
)

# Reading runs


def test_a_run_is_loaded_with_every_attempt_oldest_first(db: Tables) -> None:
    owned = a_run(db, worker_group_id=4, priority=Priority.HIGH)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    due = LATER + timedelta(minutes=1)
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=due))
    waiting = load(db, owned).tasks
    assert [(row.settled, row.valid, row.retry_at) for row in waiting] == [(True, True, due)]
    saved = save(db, owned, a_submit("a", 2), a_submit("b"))
    loaded = load(db, owned)
    assert loaded.ownership == owned
    assert loaded.process.state is ProcessState.RUNNING
    assert loaded.process.priority is Priority.HIGH
    assert loaded.process.worker_group_id == 4
    assert loaded.process.process_instance_json == a_begin().process_instance_json
    assert loaded.process.start_time == NOON
    assert loaded.process.wanted_state is None
    assert [(row.name, row.attempt, row.state, row.valid) for row in loaded.tasks] == [
        ("a", 1, TaskState.FAILURE, False),
        ("a", 2, TaskState.SUBMITTED, True),
        ("b", 1, TaskState.SUBMITTED, True),
    ]
    assert [row.id for row in loaded.tasks[1:]] == [o.task_instance_id for o in saved.offers]
    assert loaded.tasks[0].end_time == LATER
    assert [row.retry_times for row in loaded.tasks] == [0, 1, 0]


def test_a_run_of_somebody_else_is_not_loaded(db: Tables) -> None:
    owned = a_run(db)
    taken = take_over(db, owned)
    foreign = [
        owned,
        replace(taken, host=MASTER.address),
        replace(taken, epoch=3),
        replace(taken, process_instance_id=2_000_000_000),
    ]
    assert db.runs.load(foreign) == db.runs.load([]) == ()
    assert [run.ownership for run in db.runs.load([*foreign, taken])] == [taken]


def test_several_runs_are_loaded_in_the_order_asked_each_with_its_own_tasks(db: Tables) -> None:
    first, second = a_run(db), a_run(db)
    submit(db, first, "a")
    submit(db, second, "b", "c")
    loaded = db.runs.load([second, first])
    assert [(run.ownership, [task.name for task in run.tasks]) for run in loaded] == [
        (second, ["b", "c"]),
        (first, ["a"]),
    ]


def test_an_incarnation_owns_its_live_runs_and_not_its_former_ones(db: Tables) -> None:
    first, second, ended = a_run(db), a_run(db), a_run(db)
    a_run(db, node=OTHER_MASTER)
    save(db, ended, FinishProcess(state=ProcessState.SUCCESS))
    save(db, second, STOPPING)
    assert db.runs.owned(MASTER) == {first, second}
    assert db.runs.owned(REBORN) == frozenset()


# Saving runs


def test_a_submitted_task_is_a_row_and_an_offer(db: Tables) -> None:
    owned = a_run(db, priority=Priority.HIGHEST)
    saved = save(db, owned, a_submit("a", priority=Priority.LOW))
    (row,) = db.rows(t.task_instance)
    expected = {
        "name": "a",
        "task_type": "SHELL",
        "process_definition_id": 1,
        "process_instance_id": owned.process_instance_id,
        "task_json": '{"type":"SHELL"}',
        "state": 0,
        "submit_time": NOON,
        "start_time": NOON,
        "end_time": None,
        "host": None,
        "retry_times": 0,
        "flag": 1,
        "retry_interval": 2,
        "max_retry_times": 3,
        "task_instance_priority": 3,
        "worker_group_id": -1,
        "executor_id": 1,
        "attempt": 1,
        "wanted_state": None,
        "settled": False,
    }
    assert {name: row[name] for name in expected} == expected
    offer = QueueEntry(
        process_priority=0,
        process_instance_id=owned.process_instance_id,
        task_priority=3,
        task_instance_id=row["id"],
    )
    assert saved == Saved(lost=frozenset(), offers=(offer,), kills=(), withdrawn=())


@pytest.mark.parametrize(
    ("ip_list", "hosts"),
    [
        (" 10.0.0.3 ,10.0.0.4", f"{ip_number('10.0.0.3')},{ip_number('10.0.0.4')}"),
        ("spark-1, spark-2", "-1"),
        (" ", "-1"),
        (None, "-1"),
    ],
)
def test_t06_an_offer_names_the_workers_of_its_group(
    db: Tables, ip_list: str | None, hosts: str
) -> None:
    group = db.insert(t.worker_group, name="spark", ip_list=ip_list)
    by_run = save(db, a_run(db, worker_group_id=group), a_submit("a")).offers
    by_task = save(db, a_run(db, worker_group_id=99), a_submit("a", worker_group_id=group)).offers
    for (offer,) in (by_run, by_task):
        assert (offer.hosts, offer.worker_group_id) == (hosts, group)
    (unknown,) = save(db, a_run(db, worker_group_id=99), a_submit("a")).offers
    assert (unknown.hosts, unknown.worker_group_id) == ("-1", 99)


def test_settling_an_end_and_submitting_the_next_task_are_one_save(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    saved = save(db, owned, finish("a"), a_submit("b"), PassForbidden(name="c"))
    assert len(saved.offers) == 1
    assert the_task(db, first)["settled"] is True
    assert db.runs.reports(MASTER) == ()


def test_the_steps_of_several_runs_are_written_together(db: Tables) -> None:
    runs = [a_run(db) for _ in range(3)]
    steps = [Step(ownership=run, decisions=(a_submit("a"), a_submit("b")), at=NOON) for run in runs]
    saved = db.runs.save(steps)
    assert [offer.process_instance_id for offer in saved.offers] == [
        run.process_instance_id for run in runs for _ in range(2)
    ]
    assert len(db.rows(t.task_instance)) == 6


def test_t65_a_save_for_a_run_that_was_taken_over_writes_nothing_of_it_and_all_of_others(
    db: Tables,
) -> None:
    lost, kept = a_run(db), a_run(db)
    take_over(db, lost)
    unknown = replace(kept, process_instance_id=2_000_000_000)
    steps = [
        Step(ownership=run, decisions=(a_submit("a"), STOPPING), at=NOON)
        for run in (lost, kept, unknown)
    ]
    saved = db.runs.save(steps)
    assert saved.lost == {lost, unknown}
    assert [offer.process_instance_id for offer in saved.offers] == [kept.process_instance_id]
    assert the_process(db, lost)["state"] == ProcessState.RUNNING
    assert the_process(db, kept)["state"] == ProcessState.READY_STOP


def test_the_address_alone_does_not_make_an_owner(db: Tables) -> None:
    owned = a_run(db)
    taken = take_over(db, owned, node=REBORN)
    assert taken.host == owned.host
    assert save(db, owned, a_submit("a")).lost == {owned}
    assert save(db, taken, a_submit("a")).lost == frozenset()


def test_a_save_before_a_take_over_is_what_the_next_owner_loads(db: Tables) -> None:
    owned = a_run(db)
    submit(db, owned, "a")
    assert [task.name for task in load(db, take_over(db, owned)).tasks] == ["a"]


def test_an_empty_save_does_nothing(db: Tables) -> None:
    nothing = Saved(lost=frozenset(), offers=(), kills=(), withdrawn=())
    assert db.runs.save([]) == nothing
    assert save(db, a_run(db)) == nothing


@pytest.mark.parametrize(
    "decision",
    [
        finish("a", TaskState.FAILURE),
        finish("a", attempt=2),
        finish("b"),
        RetryTask(name="a", attempt=1, state=TaskState.KILL, at=LATER),
        GiveUpRetry(name="a", attempt=1),
        kill("b"),
        a_submit("a"),
        a_submit("b", task_json="\0"),
        a_submit("n" * 256),
    ],
)
def test_a_decision_that_the_rows_contradict_undoes_the_whole_save(
    db: Tables, decision: Decision
) -> None:
    owned, bystander = a_run(db), a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    before = db.rows(t.task_instance)
    steps = [
        Step(ownership=bystander, decisions=(a_submit("x"), STOPPING), at=NOON),
        Step(ownership=owned, decisions=(decision,), at=NOON),
    ]
    with pytest.raises(StoreConflictError, match=str(owned.process_instance_id)):
        db.runs.save(steps)
    assert db.rows(t.task_instance) == before
    assert the_process(db, bystander)["state"] == ProcessState.RUNNING


def test_an_end_is_settled_once(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    save(db, owned, finish("a"))
    with pytest.raises(StoreConflictError, match="attempt 1 of task 'a'"):
        save(db, owned, finish("a"))


def test_an_end_with_an_output_is_not_settled_as_one_without(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    output = '[{"prop": "x", "value": "7"}]'
    end(db, an_end(first, var_pool=output))
    with pytest.raises(StoreConflictError, match="attempt 1 of task 'a'"):
        save(db, owned, finish("a"))
    save(db, owned, replace(finish("a"), var_pool=output))
    assert the_task(db, first)["settled"]


def test_an_attempt_that_still_runs_can_not_be_superseded(db: Tables) -> None:
    owned = a_run(db)
    claim(db, submit(db, owned, "a"))
    with pytest.raises(StoreConflictError):
        save(db, owned, a_submit("a", 2))
    assert len(db.rows(t.task_instance)) == 1


def test_a_retry_supersedes_the_failed_attempt_and_keeps_its_end(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    retry = RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER)
    saved = save(db, owned, retry, a_submit("a", 2))
    old, new = the_task(db, first), the_task(db, saved.offers[0].task_instance_id)
    assert (old["flag"], old["settled"], old["end_time"]) == (0, True, LATER)
    assert (new["flag"], new["attempt"], new["state"], new["host"]) == (1, 2, 0, None)


def test_a_promised_retry_can_be_given_up_once(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER))
    save(db, owned, GiveUpRetry(name="a", attempt=1))
    row = the_task(db, first)
    assert (row["retry_at"], row["settled"], row["flag"]) == (None, True, 1)
    with pytest.raises(StoreConflictError):
        save(db, owned, GiveUpRetry(name="a", attempt=1))


def test_killing_withdraws_what_waits_asks_for_what_runs_and_ends_nothing_twice(
    db: Tables,
) -> None:
    owned = a_run(db)
    waiting, running, ended = submit(db, owned, "waiting", "running", "ended")
    claim(db, [running, ended])
    end(db, an_end(ended))
    saved = save(db, owned, kill("waiting"), kill("running"), kill("ended"))
    assert [entry.task_instance_id for entry in saved.withdrawn] == [waiting]
    assert saved.kills == (KillEntry(address=WORKER.address, task_instance_id=running),)
    withdrawn = the_task(db, waiting)
    assert (withdrawn["state"], withdrawn["end_time"]) == (TaskState.KILL, NOON)
    assert withdrawn["reason"] == "withdrawn before it started"
    assert not withdrawn["settled"]
    asked = the_task(db, running)
    assert (asked["state"], asked["wanted_state"]) == (TaskState.RUNNING, TaskState.KILL)
    assert the_task(db, ended)["state"] == TaskState.SUCCESS
    assert db.tasks.running(WORKER) == {running: True}
    kill_requested = {task.name: task.kill_requested for task in load(db, owned).tasks}
    assert kill_requested == {"waiting": True, "running": True, "ended": True}
    # The run reads the withdrawal as it reads any other end.
    reports = {report.name: report.state for report in db.runs.reports(MASTER)}
    assert reports["waiting"] is TaskState.KILL
    save(db, owned, finish("waiting", TaskState.KILL))


def test_a_kill_may_be_asked_for_again(db: Tables) -> None:
    owned = a_run(db)
    claim(db, submit(db, owned, "a"))
    assert len(save(db, owned, kill("a")).kills) == 1
    assert len(save(db, owned, kill("a")).kills) == 1


def test_a_claim_that_comes_after_a_withdrawal_gets_nothing(db: Tables) -> None:
    owned = a_run(db)
    ids = submit(db, owned, "a")
    save(db, owned, kill("a"))
    assert claim(db, ids) == []


def test_a_withdrawal_that_comes_after_a_claim_becomes_a_kill(db: Tables) -> None:
    owned = a_run(db)
    ids = submit(db, owned, "a")
    assert claim(db, ids) == ids
    saved = save(db, owned, kill("a"))
    assert (len(saved.kills), saved.withdrawn) == (1, ())


def test_a_later_step_may_act_on_what_an_earlier_step_of_the_save_has_made(db: Tables) -> None:
    owned = a_run(db)
    steps = [
        Step(ownership=owned, decisions=(a_submit("a"), a_submit("b")), at=NOON),
        Step(ownership=owned, decisions=(kill("a"),), at=NOON),
        Step(ownership=owned, decisions=(finish("a", TaskState.KILL),), at=LATER),
        Step(ownership=owned, decisions=(a_submit("a", 2),), at=LATER),
    ]
    saved = db.runs.save(steps)
    first, second, again = db.rows(t.task_instance)
    assert [(row["name"], row["attempt"]) for row in (first, second, again)] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]
    assert (first["state"], first["settled"], first["flag"]) == (TaskState.KILL, True, 0)
    assert [entry.task_instance_id for entry in saved.offers] == [second["id"], again["id"]]
    assert [entry.task_instance_id for entry in saved.withdrawn] == [first["id"]]


def test_a_run_ends_once_and_says_why(db: Tables) -> None:
    owned = a_run(db)
    reason = "task 'a\0b' failed" + "!" * 10_000
    save(db, owned, STOPPING, FinishProcess(state=ProcessState.STOP, reason=reason))
    row = the_process(db, owned)
    assert (row["state"], row["end_time"]) == (ProcessState.STOP, NOON)
    assert row["state_reason"].startswith("task 'a\N{REPLACEMENT CHARACTER}b' failed!")
    assert len(row["state_reason"]) <= 4000
    for decision in (FinishProcess(state=ProcessState.SUCCESS), STOPPING, a_submit("a")):
        with pytest.raises(StoreConflictError, match=str(owned.process_instance_id)):
            save(db, owned, decision)
    assert the_process(db, owned)["state"] == ProcessState.STOP


def test_runs_of_which_nobody_is_told_end_with_others_of_which_somebody_is(db: Tables) -> None:
    parent = a_run(db)
    called, child = a_child(db, parent)
    lost, told, quiet = (
        a_run(db),
        a_run(db, warning_type=WarningType.SUCCESS),
        a_run(db, warning_type=WarningType.FAILURE),
    )
    take_over(db, lost)
    over = (FinishProcess(state=ProcessState.SUCCESS),)
    for ended in ((quiet,), (lost, told, child)):
        steps = [Step(ownership=run, decisions=over, at=LATER) for run in ended]
        assert db.runs.save(steps).lost == frozenset(ended) & {lost}
    for run in (quiet, told, child):
        assert has(the_process(db, run), state=ProcessState.SUCCESS, end_time=LATER)
    assert the_process(db, lost)["state"] == ProcessState.RUNNING
    assert the_task(db, called)["state"] == TaskState.SUCCESS
    (alert,) = db.rows(t.alert)
    assert f"id:{told.process_instance_id}" in alert["content"]


def test_the_end_of_a_run_is_written_with_the_last_ends_and_what_others_begin(db: Tables) -> None:
    ending, going_on = a_run(db), a_run(db)
    (last,) = submit(db, ending, "a")
    claim(db, [last])
    end(db, an_end(last))
    over = (finish("a"), FinishProcess(state=ProcessState.SUCCESS))
    saved = db.runs.save(
        [
            Step(ownership=ending, decisions=over, at=LATER),
            Step(ownership=going_on, decisions=(a_submit("b"),), at=LATER),
        ]
    )
    assert [offer.process_instance_id for offer in saved.offers] == [going_on.process_instance_id]
    assert has(the_process(db, ending), state=ProcessState.SUCCESS, end_time=LATER)
    assert the_task(db, last)["settled"]
    # An end that is settled already undoes all of such a save.
    third = a_run(db)
    steps = [
        Step(ownership=third, decisions=(FinishProcess(state=ProcessState.SUCCESS),), at=LATER),
        Step(ownership=going_on, decisions=(finish("b"),), at=LATER),
    ]
    with pytest.raises(StoreConflictError):
        db.runs.save(steps)
    assert the_process(db, third)["state"] == ProcessState.RUNNING


# The owner's periodic queries


def test_reports_are_the_unsettled_ends_of_this_nodes_live_runs(db: Tables) -> None:
    owned, others, over = a_run(db), a_run(db, node=OTHER_MASTER), a_run(db)
    a, b, c = submit(db, owned, "a", "b", "c")
    (foreign,) = submit(db, others, "a")
    (late,) = submit(db, over, "a")
    claim(db, [a, b, c, foreign, late])
    end(db, an_end(b, TaskState.FAILURE, reason="exit 3"), an_end(a))
    end(db, an_end(foreign), an_end(late))
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    found = db.runs.reports(MASTER)
    assert [report.task_instance_id for report in found] == [a, b]
    assert found[1].process_instance_id == owned.process_instance_id
    assert (found[1].name, found[1].attempt, found[1].state) == ("b", 1, TaskState.FAILURE)
    assert (found[1].end_time, found[1].reason) == (LATER, "exit 3")
    assert db.runs.reports(REBORN) == ()
    save(db, owned, finish("a"))
    assert db.runs.reports(MASTER) == found[1:]


def test_the_queue_must_hold_what_is_submitted_and_not_claimed_in_its_order(db: Tables) -> None:
    group = db.insert(t.worker_group, name="spark", ip_list="10.0.0.3")
    usual, urgent = a_run(db), a_run(db, priority=Priority.HIGHEST, worker_group_id=group)
    save(db, a_run(db, node=OTHER_MASTER), a_submit("foreign"))
    offers = save(
        db, usual, a_submit("low", priority=Priority.LOWEST), a_submit("a"), a_submit("b")
    ).offers
    urgent_offers = save(db, urgent, a_submit("a")).offers
    claim(db, [offers[2].task_instance_id])
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == (
        *urgent_offers,
        offers[1],
        offers[0],
    )
    assert db.runs.unclaimed(MASTER, submitted_before=NOON) == ()
    save(db, usual, kill("low"))
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == (*urgent_offers, offers[1])


def test_what_a_master_owns_is_read_page_by_page(db: Tables) -> None:
    runs = [a_run(db) for _ in range(5)]
    ids = [owned.process_instance_id for owned in runs]
    assert db.runs.owned(MASTER, limit=2) == set(runs[:2])
    assert db.runs.owned(MASTER, after=ids[1], limit=2) == set(runs[2:4])
    assert db.runs.owned(MASTER, after=ids[3], limit=2) == {runs[4]}


def test_reports_are_read_page_by_page_or_by_their_ids(db: Tables) -> None:
    names = [f"t{number}" for number in range(5)]
    ids = submit(db, a_run(db), *names)
    claim(db, ids)
    end(db, *(an_end(each) for each in ids))

    def reported(**page: Any) -> list[int]:
        return [report.task_instance_id for report in db.runs.reports(MASTER, **page)]

    assert reported(limit=2) == ids[:2]
    assert reported(after=ids[1], limit=2) == ids[2:4]
    assert reported(after=ids[3], limit=2) == ids[4:]
    assert reported(only=[ids[4], ids[0], 2**31 - 1]) == [ids[0], ids[4]]


def test_unclaimed_attempts_are_read_page_by_page_and_sorted_as_the_queue_is(db: Tables) -> None:
    owned = a_run(db)
    low = submit(db, owned, "a", "b", priority=Priority.LOW)
    high = submit(db, owned, "c", "d", priority=Priority.HIGH)

    def unclaimed(**page: Any) -> list[int]:
        entries = db.runs.unclaimed(MASTER, submitted_before=LATER, **page)
        return [entry.task_instance_id for entry in entries]

    assert unclaimed(limit=3) == [high[0], *low]
    assert unclaimed(after=high[0], limit=3) == [high[1]]
