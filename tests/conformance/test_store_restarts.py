"""Restarts: an ended process instance becomes live again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import Command, CommandType
from common.model.decisions import (
    FinishProcess,
    RetryTask,
)
from common.model.instances import Ownership
from common.model.plans import Drop, NewVersion, Plan, Reject, Restart, Snapshot
from common.model.states import (
    ProcessState,
    TaskDependType,
    TaskState,
    TimeoutStrategy,
)
from common.store import tables as t
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    STOPPING,
    Tables,
    a_begin,
    a_child,
    a_command,
    a_run,
    a_stop,
    a_submit,
    about,
    always,
    an_end,
    call_child,
    carry_out,
    child_of,
    claim,
    end,
    end_run,
    end_with_promise,
    finish,
    has,
    kill,
    load,
    planner_arguments,
    run_to_end,
    save,
    submit,
    take,
    the_process,
    the_task,
)


def an_ended_run(db: Tables, *, state: ProcessState = ProcessState.FAILURE) -> Ownership:
    """a succeeded, b failed, c never began; the run was stopped, and left every kind of row."""
    owned = a_run(db, global_params="[]", command_param='{"x":1}')
    run_to_end(db, owned, "a", TaskState.SUCCESS)
    (failed,) = submit(db, owned, "b")
    claim(db, [failed])
    end(db, an_end(failed, TaskState.FAILURE))
    save(db, owned, RetryTask(name="b", attempt=1, state=TaskState.FAILURE, at=LATER))
    carry_out(db, a_stop(owned))
    save(db, owned, STOPPING, FinishProcess(state=state, reason="it broke"), at=LATER)
    db.update(t.process_instance, owned.process_instance_id, timeout_flag=1)
    return owned


def a_restart(owned: Ownership, *reset: str, **changes: Any) -> Restart:
    restart = Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.START_FAILURE_TASK_PROCESS,
        reset=reset,
    )
    return replace(restart, **changes)


def valid(db: Tables, owned: Ownership) -> dict[str, int]:
    """The attempt number of each valid attempt, by name."""
    return {task.name: task.attempt for task in load(db, owned).tasks if task.valid}


def test_t38_a_restart_makes_the_run_live_with_a_new_owner_and_a_clean_row(db: Tables) -> None:
    owned = an_ended_run(db)
    ended = the_process(db, owned)
    assert has(ended, wanted_state=5, wanted_deadline=LATER, state_reason="it broke")
    plan = a_restart(owned, "b")
    handled = carry_out(db, plan, node=OTHER_MASTER, now=LATER + MINUTE)
    again = replace(owned, host=OTHER_MASTER.address, epoch=2)
    assert (handled.plan, handled.ownership) == (plan, again)
    assert has(
        the_process(db, again),
        state=1,
        host=OTHER_MASTER.address,
        owner_incarnation=OTHER_MASTER.incarnation,
        owner_epoch=2,
        run_times=2,
        start_time=NOON,
        end_time=None,
        state_reason=None,
        wanted_state=None,
        wanted_at=None,
        wanted_deadline=None,
        timeout_flag=0,
        run_scope=None,
        recovery=0,
        command_type=4,
        history_cmd="START_PROCESS,STOP,START_FAILURE_TASK_PROCESS",
        global_params="[]",
        command_param='{"x":1}',
        update_time=LATER + MINUTE,
    )
    assert db.runs.owned(OTHER_MASTER) == {again}
    assert save(db, owned, a_submit("c")).lost == {owned}


def test_idle_time_before_a_restart_is_no_part_of_the_duration(db: Tables) -> None:
    owned = an_ended_run(db)  # It has executed from noon for a minute.
    again = carry_out(db, a_restart(owned, "b"), now=LATER + 10 * MINUTE).ownership
    assert again is not None
    executed = LATER + 9 * MINUTE
    assert has(the_process(db, again), start_time=NOON, duration_from=executed)
    stopped = FinishProcess(state=ProcessState.FAILURE, reason="it broke")
    save(db, again, stopped, at=LATER + 12 * MINUTE)
    third = carry_out(db, a_restart(again, "b"), now=LATER + 20 * MINUTE).ownership
    assert third is not None
    assert the_process(db, third)["duration_from"] == executed + 8 * MINUTE
    save(db, third, stopped, at=LATER + 21 * MINUTE)
    afresh = carry_out(db, a_restart(third, "b", afresh=True), now=LATER + 30 * MINUTE).ownership
    assert afresh is not None
    start = LATER + 30 * MINUTE
    assert has(the_process(db, afresh), start_time=start, duration_from=None)


def test_a_restart_on_a_clock_that_was_set_back_makes_the_duration_no_longer(db: Tables) -> None:
    owned = an_ended_run(db)
    again = carry_out(db, a_restart(owned, "b"), now=NOON).ownership
    assert again is not None
    assert the_process(db, again)["duration_from"] == NOON


def test_a_restart_resets_exactly_the_named_and_keeps_every_other_result(db: Tables) -> None:
    owned = an_ended_run(db)
    before = db.rows(t.task_instance)
    handled = carry_out(db, a_restart(owned, "b", "c", "nobody"))
    assert handled.ownership is not None
    a, b = db.rows(t.task_instance)
    assert a == before[0]
    assert b == before[1] | {"flag": 0, "retry_at": None}
    assert valid(db, handled.ownership) == {"a": 1}
    # A retried task continues its attempt numbers.
    save(db, handled.ownership, a_submit("b", 2))
    assert valid(db, handled.ownership) == {"a": 1, "b": 2}
    with pytest.raises(StoreConflictError):
        save(db, handled.ownership, a_submit("c"), a_submit("b", 1))


def test_a_restarted_run_goes_on_naming_the_command_that_began_it(db: Tables) -> None:
    owned = an_ended_run(db)
    before = the_process(db, owned)["command_id"]
    assert before
    handled = carry_out(db, a_restart(owned))
    assert handled.command_id != before
    assert the_process(db, owned)["command_id"] == before


def test_a_restart_of_nothing_resets_nothing(db: Tables) -> None:
    owned = an_ended_run(db)
    before = db.rows(t.task_instance)
    carry_out(db, a_restart(owned))
    assert db.rows(t.task_instance) == before


def test_a_restart_may_be_afresh_with_other_parameters_and_for_some_nodes_only(
    db: Tables,
) -> None:
    owned = an_ended_run(db)
    plan = a_restart(
        owned,
        "a",
        "b",
        command_type=CommandType.EXECUTE_TASK,
        run_scope=("b", "ä,c"),
        global_params='[{"prop":"day"}]',
        command_param='{"y":2}',
        afresh=True,
    )
    handled = carry_out(db, plan, now=LATER)
    assert handled.ownership is not None
    process = load(db, handled.ownership).process
    assert process.run_scope == ("b", "ä,c")
    assert process.start_time == LATER
    assert (process.global_params, process.command_param) == ('[{"prop":"day"}]', '{"y":2}')
    assert valid(db, handled.ownership) == {}
    save(db, handled.ownership, FinishProcess(state=ProcessState.SUCCESS))
    assert the_process(db, handled.ownership)["run_scope"] is None


VERSION = NewVersion(
    version=5,
    process_instance_json='{"tasks": []}',
    timeout_minutes=7,
    timeout_strategy=TimeoutStrategy.FAILED,
    tenant_id=4,
    locations="{}",
    connects="[]",
)


def test_a_restart_with_another_version_replaces_the_copy_and_sets_results_aside(
    db: Tables,
) -> None:
    owned = an_ended_run(db)
    assert the_process(db, owned)["definition_version"] is None
    handled = carry_out(db, a_restart(owned, "a", "b", version=VERSION))
    assert handled.ownership is not None
    assert has(
        the_process(db, handled.ownership),
        state=1,
        definition_version=5,
        process_instance_json='{"tasks": []}',
        timeout=7,
        timeout_strategy=1,
        tenant_id=4,
        locations="{}",
        connects="[]",
    )
    assert valid(db, handled.ownership) == {}


def test_a_restart_with_another_version_that_finds_other_results_changes_nothing(
    db: Tables,
) -> None:
    owned = an_ended_run(db)
    before = the_process(db, owned), db.rows(t.task_instance)
    handled = carry_out(db, a_restart(owned, "a", "c", version=VERSION))
    assert isinstance(handled.plan, Drop)
    assert (the_process(db, owned), db.rows(t.task_instance)) == before


def test_the_planner_sees_the_start_and_the_worker_group_of_an_ended_run(db: Tables) -> None:
    owned = an_ended_run(db)
    db.update(t.process_instance, owned.process_instance_id, worker_group_id=9)
    param = about(owned.process_instance_id)
    _, snapshot = planner_arguments(db, command_type=4, command_param=param)
    assert snapshot.instance is not None
    assert (snapshot.instance.start_time, snapshot.instance.worker_group_id) == (NOON, 9)


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ('{"definitionVersion": "latest", "freshChildNameList": "x,sub"}', (True, True)),
        ('{"definitionVersion": "latest"}', (True, False)),
        ('{"environmentCode": "7"}', (False, False)),
    ],
)
def test_the_planner_of_a_child_sees_what_the_restart_of_its_parent_noted(
    db: Tables, noted: str, expected: tuple[bool, bool]
) -> None:
    parent, _, _ = a_second_call(db)
    db.update(t.process_instance, parent.process_instance_id, command_param=noted)
    seen: list[Snapshot] = []

    def planner(_: Command, snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return Drop(reason="seen")

    take(db, planner)
    (snapshot,) = seen
    assert snapshot.parent is not None
    assert (snapshot.parent.took_latest, snapshot.parent.wants_fresh_child) == expected


def test_retries_that_were_promised_to_nodes_that_are_not_chosen_are_given_up(db: Tables) -> None:
    owned = a_run(db)
    end_with_promise(db, owned, "a", "b")
    plan = a_restart(owned, "b", command_type=CommandType.EXECUTE_TASK, run_scope=("b", "c"))
    again = carry_out(db, plan).ownership
    assert again is not None
    rows = {row["name"]: (row["flag"], row["retry_at"]) for row in db.rows(t.task_instance)}
    assert rows == {"a": (1, None), "b": (0, None)}


@pytest.mark.parametrize("state", [ProcessState.PAUSE, ProcessState.STOP])
def test_chosen_nodes_that_were_paused_or_stopped_stay_the_chosen_ones(
    db: Tables, state: ProcessState
) -> None:
    plan = a_restart(an_ended_run(db), command_type=CommandType.EXECUTE_TASK, run_scope=("b",))
    owned = carry_out(db, plan).ownership
    assert owned is not None
    end_run(db, owned, state)
    _, snapshot = planner_arguments(
        db, command_type=3, command_param=about(owned.process_instance_id)
    )
    assert snapshot.instance is not None
    assert snapshot.instance.run_scope == ("b",)


def test_a_run_scope_of_no_nodes_is_not_the_same_as_none(db: Tables) -> None:
    handled = carry_out(db, a_restart(an_ended_run(db), run_scope=()))
    assert handled.ownership is not None
    assert load(db, handled.ownership).process.run_scope == ()


def test_of_two_restarts_of_one_batch_the_second_is_dropped(db: Tables) -> None:
    owned = an_ended_run(db)
    for _ in range(2):
        a_command(db)
    first, second = take(db, always(a_restart(owned, "b")))
    assert first.ownership is not None
    assert isinstance(second.plan, Drop)
    assert the_process(db, owned)["run_times"] == 2


def test_a_restart_of_a_run_that_lives_or_was_restarted_since_is_dropped(db: Tables) -> None:
    live = a_run(db)
    assert isinstance(carry_out(db, a_restart(live)).plan, Drop)
    assert the_process(db, live)["run_times"] == 1
    owned = an_ended_run(db)
    stale = a_restart(owned, "b", epoch=owned.epoch - 1)
    missing = a_restart(replace(owned, process_instance_id=2_000_000_000))
    for plan in (stale, missing):
        assert isinstance(carry_out(db, plan).plan, Drop)
    assert the_process(db, owned)["state"] == ProcessState.FAILURE


def test_a_restart_that_the_tables_can_not_hold_is_rejected_whole(db: Tables) -> None:
    owned = an_ended_run(db)
    before = db.rows(t.task_instance), the_process(db, owned)
    handled = carry_out(db, a_restart(owned, "b", command_param="a\0b"))
    assert isinstance(handled.plan, Reject)
    assert (db.rows(t.task_instance), the_process(db, owned)) == before


def test_a_recovering_planner_sees_the_whole_instance(db: Tables) -> None:
    owned = an_ended_run(db)
    db.update(
        t.process_instance, owned.process_instance_id, schedule_time=NOON, business_time=LATER
    )
    for command_type in (3, 4, 7, 12):
        _, snapshot = planner_arguments(
            db, command_type=command_type, command_param=about(owned.process_instance_id)
        )
        instance = snapshot.instance
        assert instance is not None
        assert (instance.state, instance.owner_epoch) == (ProcessState.FAILURE, 1)
        assert instance.process_definition_id == 1
        assert (instance.command_param, instance.global_params) == ('{"x":1}', "[]")
        assert instance.process_instance_json == a_begin().process_instance_json
        assert instance.task_depend_type is TaskDependType.TASK_POST
        assert instance.history == ("START_PROCESS", "STOP")
        assert (instance.schedule_time, instance.business_time) == (NOON, LATER)
        assert instance.start_time == NOON
        assert [(task.name, task.state, task.valid) for task in instance.tasks] == [
            ("a", TaskState.SUCCESS, True),
            ("b", TaskState.FAILURE, True),
        ]


def test_other_planners_are_not_burdened_with_it(db: Tables) -> None:
    owned = an_ended_run(db)
    for command_type in (2, 8, 9):
        _, snapshot = planner_arguments(
            db, command_type=command_type, command_param=about(owned.process_instance_id)
        )
        assert snapshot.instance is not None
        assert snapshot.instance.process_definition_id == 1
        assert (snapshot.instance.tasks, snapshot.instance.process_instance_json) == ((), "")


# Children


def test_an_existing_child_is_restarted_for_the_attempt_that_wants_it_now(db: Tables) -> None:
    parent = a_run(db)
    _, child = a_child(db, parent)
    run_to_end(db, child, "x", TaskState.FAILURE)
    end_run(db, child, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE))
    again = call_child(db, parent, "sub", 2)
    plan = a_restart(child, "x", child_of=child_of(db, parent, again))
    (handled,) = take(db, always(plan), now=LATER)
    assert handled.ownership == replace(child, epoch=2)
    assert has(
        the_process(db, child),
        state=1,
        is_sub_process=1,
        root_id=parent.process_instance_id,
        parent_task_instance_id=again,
    )
    assert has(the_task(db, again), state=1, start_time=LATER)
    relations = {
        row["parent_task_instance_id"]: row["process_instance_id"]
        for row in db.rows(t.relation_process_instance)
    }
    assert relations[again] == child.process_instance_id
    end_run(db, handled.ownership)
    assert the_task(db, again)["state"] == TaskState.SUCCESS


def test_a_child_that_nobody_waits_for_any_more_is_not_restarted(db: Tables) -> None:
    """T36c."""
    parent = a_run(db)
    _, child = a_child(db, parent)
    end_run(db, child, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE))
    again = call_child(db, parent, "sub", 2)
    save(db, parent, kill("sub", 2))
    (handled,) = take(db, always(a_restart(child, child_of=child_of(db, parent, again))))
    assert isinstance(handled.plan, Drop)
    assert has(the_process(db, child), state=6, owner_epoch=1, run_times=1)


def a_second_call(db: Tables) -> tuple[Ownership, Ownership, int]:
    """A parent, its failed child, and the attempt that calls the child again."""
    parent = a_run(db)
    _, child = a_child(db, parent)
    end_run(db, child, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE))
    return parent, child, call_child(db, parent, "sub", 2)


def test_a_child_that_has_changed_since_fails_the_attempt_that_wants_it(db: Tables) -> None:
    """No other command for it would ever come."""
    parent, child, again = a_second_call(db)
    before = the_process(db, child)
    plan = a_restart(child, epoch=child.epoch + 1, child_of=child_of(db, parent, again))
    (handled,) = take(db, always(plan), now=LATER)
    assert isinstance(handled.plan, Reject)
    (error,) = db.rows(t.error_command)
    assert has(
        the_task(db, again),
        state=6,
        end_time=LATER,
        settled=False,
        reason=error["message"],
    )
    assert [report.task_instance_id for report in db.runs.reports(MASTER)] == [again]
    assert the_process(db, child) == before


def test_a_child_that_is_gone_fails_the_attempt_that_wants_it(db: Tables) -> None:
    parent, child, again = a_second_call(db)
    gone = replace(child, process_instance_id=2_000_000_000)
    (handled,) = take(db, always(a_restart(gone, child_of=child_of(db, parent, again))))
    assert isinstance(handled.plan, Reject)
    assert has(the_task(db, again), state=TaskState.FAILURE, failure_reason="CONFIGURATION")


def test_a_child_that_has_changed_since_is_nothing_to_an_attempt_that_waits_no_more(
    db: Tables,
) -> None:
    """T36c."""
    parent, child, again = a_second_call(db)
    save(db, parent, kill("sub", 2))
    before = the_task(db, again)
    plan = a_restart(child, epoch=child.epoch + 1, child_of=child_of(db, parent, again))
    (handled,) = take(db, always(plan))
    assert isinstance(handled.plan, Drop)
    assert the_task(db, again) == before
    assert db.rows(t.command) == db.rows(t.error_command) == []
