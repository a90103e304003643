"""Alerts: each is written once, in the transaction of its cause (contract §5.14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.decisions import (
    FinishProcess,
    RetryTask,
)
from common.model.plans import Restart
from common.model.states import (
    ProcessState,
    TaskState,
    WarningType,
)
from common.store import tables as t
from common.store.master.ports import Step
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    OTHER_MASTER,
    OTHER_WORKER,
    WORKER,
    Tables,
    a_definition,
    a_run,
    a_stop,
    a_submit,
    an_end,
    begin_child,
    call_child,
    carry_out,
    claim,
    end,
    end_run,
    fail_over,
    finish,
    has,
    kill,
    run_to_end,
    save,
    submit,
    take_over,
)


def alerts(db: Tables) -> list[tuple[str, str]]:
    return [(row["title"], row["content"]) for row in db.rows(t.alert)]


def the_alert(db: Tables) -> dict[str, Any]:
    (row,) = db.rows(t.alert)
    return row


def test_a_success_is_told_with_what_people_want_to_know_of_it(db: Tables) -> None:
    definition_id = a_definition(db, receivers="a@b.c", receivers_cc="d@e.f")
    owned = a_run(
        db,
        process_definition_id=definition_id,
        name="flüge-1-1767355200000",
        command_type=CommandType.SCHEDULER,
        warning_type=WarningType.SUCCESS,
        warning_group_id=7,
    )
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS), at=LATER)
    row = the_alert(db)
    assert has(
        row,
        title="scheduler success: flüge",
        show_type=1,
        alert_type=0,
        alert_status=0,
        log=None,
        alertgroup_id=7,
        receivers="a@b.c",
        receivers_cc="d@e.f",
        create_time=LATER,
        update_time=LATER,
    )
    assert row["content"] == (
        f'["id:{owned.process_instance_id}","name:flüge-1-1767355200000","job type: scheduler",'
        '"state: SUCCESS","recovery:NO","run time: 1","start time: 2026-01-02 12:00:00 UTC",'
        '"end time: 2026-01-02 12:01:00 UTC","host: 10.0.0.1:5678"]'
    )


def test_a_long_name_of_a_definition_is_cut_in_the_title(db: Tables) -> None:
    name = "x" * 100
    owned = a_run(db, name=f"{name}-12-1767355200000", warning_type=WarningType.ALL)
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS), at=LATER)
    assert the_alert(db)["title"] == f"start process success: {name}"[:63] + "…"


def test_a_failure_is_told_with_each_valid_task_that_is_not_good(db: Tables) -> None:
    owned = a_run(db, warning_type=WarningType.FAILURE, warning_group_id=7)
    run_to_end(db, owned, "good", TaskState.SUCCESS)
    first = run_to_end(db, owned, "bad", TaskState.FAILURE)
    saved = save(db, owned, a_submit("bad", 2), a_submit("never"))
    second, never = (offer.task_instance_id for offer in saved.offers)
    claim(db, [second])
    end(db, an_end(second, TaskState.FAILURE))
    save(
        db,
        owned,
        finish("bad", TaskState.FAILURE, 2),
        kill("never"),
        finish("never", TaskState.KILL),
        FinishProcess(state=ProcessState.FAILURE),
    )
    row = the_alert(db)
    assert has(
        row,
        title="start process failed: flights",
        show_type=0,
        alertgroup_id=7,
        receivers=None,
        receivers_cc=None,
    )
    place = f"1/{owned.process_instance_id}/{second}"
    assert row["content"] == (
        f'[{{"task id":"{second}","task name":"bad","task type":"SHELL","task state":"FAILURE",'
        '"task start time":"2026-01-02 12:00:00 UTC","task end time":"2026-01-02 12:01:00 UTC",'
        f'"host":"10.0.0.3:1234","log path":"/logs/{place}.log"}},'
        f'{{"task id":"{never}","task name":"never","task type":"SHELL","task state":"KILL",'
        '"task start time":"2026-01-02 12:00:00 UTC","task end time":"2026-01-02 12:00:00 UTC",'
        '"host":"","log path":""}]'
    )
    assert str(first) not in [task["task id"] for task in json.loads(row["content"])]


@pytest.mark.parametrize("warning_type", list(WarningType))
@pytest.mark.parametrize(
    "state", [ProcessState.SUCCESS, ProcessState.FAILURE, ProcessState.STOP, ProcessState.PAUSE]
)
def test_the_warning_type_says_which_ends_are_told(
    db: Tables, warning_type: WarningType, state: ProcessState
) -> None:
    owned = a_run(db, warning_type=warning_type)
    end_run(db, owned, state)
    alerted = (
        warning_type is WarningType.ALL
        or (warning_type is WarningType.SUCCESS and state is ProcessState.SUCCESS)
        or (warning_type is WarningType.FAILURE and state is ProcessState.FAILURE)
    )
    success = state is ProcessState.SUCCESS
    title = f"start process {'success' if success else 'failed'}: flights"
    assert [row["title"] for row in db.rows(t.alert)] == [title] * alerted
    if alerted and state in (ProcessState.STOP, ProcessState.PAUSE):
        assert has(the_alert(db), content="", show_type=0)
    if alerted and state is ProcessState.FAILURE:
        assert the_alert(db)["content"] == "[]"


def test_an_end_is_told_by_the_command_that_came_last(db: Tables) -> None:
    owned = a_run(db, warning_type=WarningType.ALL)
    carry_out(db, a_stop(owned))
    end_run(db, owned, ProcessState.STOP)
    plan = Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.EXECUTE_TASK,
        reset=(),
    )
    again = carry_out(db, plan).ownership
    assert again is not None
    db.update(t.process_instance, owned.process_instance_id, recovery=1)
    end_run(db, again)
    first, second = db.rows(t.alert)
    assert first["title"] == "stop failed: flights"
    assert second["title"] == "unknown type success: flights"
    assert "recovery:YES" in json.loads(second["content"])
    assert "run time: 2" in json.loads(second["content"])


def test_the_end_of_a_sub_process_is_its_parents_affair(db: Tables) -> None:
    parent = a_run(db)
    task_id = call_child(db, parent)
    end_run(db, begin_child(db, parent, task_id, warning_type=WarningType.ALL))
    assert alerts(db) == []


def test_an_end_that_is_not_written_is_not_told(db: Tables) -> None:
    owned = a_run(db, warning_type=WarningType.ALL)
    take_over(db, owned)
    end_run(db, owned)
    assert alerts(db) == []
    with pytest.raises(StoreConflictError):
        save(
            db,
            a_run(db, warning_type=WarningType.ALL),
            FinishProcess(state=ProcessState.SUCCESS),
            finish("nobody"),
        )
    assert alerts(db) == []


def test_attempts_that_are_tried_again_since_their_worker_was_lost_are_told_together(
    db: Tables,
) -> None:
    owned = a_run(db, name="flights", warning_group_id=7)
    a, b, c = submit(db, owned, "a", "b", "c")
    claim(db, [a, b])
    claim(db, [c], node=OTHER_WORKER)
    fail_over(db, WORKER, now=LATER)
    end(db, an_end(c, TaskState.FAILURE), node=OTHER_WORKER)
    lost = TaskState.NEED_FAULT_TOLERANCE
    save(
        db,
        owned,
        RetryTask(name="b", attempt=1, state=lost, at=LATER),
        RetryTask(name="a", attempt=1, state=lost, at=LATER),
        RetryTask(name="c", attempt=1, state=TaskState.FAILURE, at=LATER),
        at=LATER,
    )
    _, row = db.rows(t.alert)
    assert has(
        row,
        title="worker fault tolerance: flights",
        show_type=0,
        alertgroup_id=7,
        receivers=None,
        create_time=LATER,
    )
    assert row["content"] == (
        '[{"process name":"flights","task name":"b","host":"10.0.0.3:1234",'
        '"task retry times":"0"},'
        '{"process name":"flights","task name":"a","host":"10.0.0.3:1234",'
        '"task retry times":"0"}]'
    )


def test_lost_attempts_of_runs_that_name_no_group_are_told_to_the_first(db: Tables) -> None:
    runs = [a_run(db), a_run(db)]
    for owned in runs:
        claim(db, submit(db, owned, "a"))
    fail_over(db, WORKER, now=LATER)
    retry = RetryTask(name="a", attempt=1, state=TaskState.NEED_FAULT_TOLERANCE, at=LATER)
    db.runs.save([Step(ownership=owned, decisions=(retry,), at=NOON) for owned in runs])
    rows = [row for row in db.rows(t.alert) if row["title"] == "worker fault tolerance: flights"]
    assert [row["alertgroup_id"] for row in rows] == [1, 1]


def test_t46c_a_lost_master_is_told_once(db: Tables) -> None:
    a_run(db)
    a_run(db)
    for _ in range(2):
        db.failover.recover_runs(MASTER, now=LATER)
        db.failover.recover_runs(OTHER_MASTER, now=LATER)
    row = the_alert(db)
    assert has(
        row,
        title="Fault tolerance warning",
        show_type=0,
        alertgroup_id=1,
        receivers=None,
        create_time=LATER,
    )
    assert row["content"] == (
        "[{'type':'MASTER','host':'10.0.0.1:5678','event':'server down','warning level':'serious'}]"
    )


def test_t46c_a_lost_worker_is_told_once(db: Tables) -> None:
    owned = a_run(db)
    claim(db, submit(db, owned, "a", "b"))
    for _ in range(2):
        fail_over(db, WORKER, now=LATER)
        fail_over(db, OTHER_WORKER, now=LATER)
    assert alerts(db) == [
        (
            "Fault tolerance warning",
            (
                "[{'type':'WORKER','host':'10.0.0.3:1234','event':'server down',"
                "'warning level':'serious'}]"
            ),
        )
    ]
