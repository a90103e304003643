"""Sub processes: one begins only while it is wanted, and begins again once it has ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import Command, CommandType
from common.model.decisions import AbandonTask, Decision, FinishProcess
from common.model.instances import Ownership
from common.model.origins import Origin
from common.model.plans import Begin, Drop, Plan, Reject, Resume, Snapshot
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
    WarningType,
)
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Saved
from tests.conformance.children import (
    a_restart,
    asked_to_stop,
    being_stopped,
    called_again,
    orphaned,
    the_command,
    the_relation,
)
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    MOST_SUB_PROCESSES,
    OTHER_MASTER,
    Tables,
    a_begin,
    a_child,
    a_command,
    a_definition,
    a_run,
    a_sub_process,
    about,
    always,
    begin_child,
    call_child,
    child_of,
    claim,
    end_run,
    finish,
    has,
    kill,
    load,
    pause,
    planner_arguments,
    save,
    submit,
    take,
    the_process,
    the_task,
)

# The command for a child


def test_a_sub_process_is_a_row_a_relation_and_a_command_and_no_offer(db: Tables) -> None:
    child_definition = a_definition(db, name="child")
    parent = a_run(
        db,
        warning_type=WarningType.ALL,
        warning_group_id=7,
        failure_strategy=FailureStrategy.END,
        schedule_time=LATER,
        executor_id=5,
        priority=Priority.HIGH,
        worker_group_id=3,
    )
    saved = save(db, parent, a_sub_process("sub", child_definition=child_definition), at=LATER)
    assert saved == Saved(lost=frozenset(), offers=(), kills=(), withdrawn=())
    (task,) = db.rows(t.task_instance)
    assert has(task, state=0, host=None, submit_time=LATER, flag=1)
    relation = the_relation(db, task["id"])
    assert has(
        relation,
        parent_process_instance_id=parent.process_instance_id,
        process_instance_id=0,
    )
    command = the_command(db)
    assert has(
        command,
        command_type=0,
        process_definition_id=child_definition,
        task_depend_type=2,
        failure_strategy=0,
        warning_type=3,
        warning_group_id=7,
        schedule_time=LATER,
        start_time=LATER,
        update_time=LATER,
        executor_id=5,
        process_instance_priority=1,
        worker_group_id=3,
        process_instance_id=0,
        parent_task_instance_id=task["id"],
    )
    assert json.loads(command["command_param"]) == {
        "id": relation["id"],
        "parentProcessInstanceId": parent.process_instance_id,
        "parentTaskInstanceId": task["id"],
        "processInstanceId": 0,
    }
    assert db.runs.unclaimed(MASTER, submitted_before=LATER + MINUTE) == ()
    assert claim(db, [task["id"]]) == []


def test_t35_a_child_inherits_the_worker_group_of_its_task_before_that_of_its_parent(
    db: Tables,
) -> None:
    """T35."""
    parent = a_run(db, worker_group_id=3)
    save(db, parent, a_sub_process("sub", worker_group_id=9))
    assert the_command(db)["worker_group_id"] == 9


def test_a_child_named_by_name_is_looked_for_in_the_parents_project_alone(db: Tables) -> None:
    a_definition(db, name="child", project_id=1)
    a_definition(db, name="other", project_id=2)
    here = a_definition(db, name="child", project_id=2)
    parent_definition = a_definition(db, name="parent", project_id=2)
    foreign_definition = a_definition(db, name="foreign", project_id=3)
    for definition_id, expected in ((parent_definition, here), (foreign_definition, 0)):
        parent = a_run(db, process_definition_id=definition_id)
        save(db, parent, a_sub_process("sub", child_definition="child"))
        command = the_command(db)
        assert command["process_definition_id"] == expected
        assert ("processDefinitionName" in json.loads(command["command_param"])) == (not expected)
        take(db, always(Drop(reason="only the row matters")))


def test_an_unknown_child_is_named_in_the_command_for_the_planner_to_refuse(db: Tables) -> None:
    parent = a_run(db)
    save(db, parent, a_sub_process("sub", child_definition="nobody"))
    assert the_command(db)["process_definition_id"] == 0
    assert json.loads(the_command(db)["command_param"])["processDefinitionName"] == "nobody"


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ("SCHEDULER", CommandType.SCHEDULER),
        ("COMPLEMENT_DATA,REPEAT_RUNNING", CommandType.COMPLEMENT_DATA),
        ("START_PROCESS,STOP,RECOVER_SUSPENDED_PROCESS", CommandType.START_PROCESS),
    ],
)
def test_a_new_child_is_begun_as_its_parent_was(
    db: Tables, parents: str, expected: CommandType
) -> None:
    """T34."""
    parent = a_run(db)
    db.update(t.process_instance, parent.process_instance_id, history_cmd=parents)
    call_child(db, parent)
    assert the_command(db)["command_type"] == expected


def test_a_later_attempt_finds_the_child_of_the_newest_earlier_one_that_had_one(
    db: Tables,
) -> None:
    parent = a_run(db)
    first, former = a_child(db, parent)
    a_child(db, parent, "other")
    end_run(db, former, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE))
    second = call_child(db, parent, "sub", 2)
    child = begin_child(db, parent, second)
    end_run(db, child, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE, 2))
    third = call_child(db, parent, "sub", 3)
    assert the_relation(db, third)["process_instance_id"] == child.process_instance_id
    command = the_command(db)
    assert has(command, command_type=7, process_instance_id=0, parent_task_instance_id=third)
    param = json.loads(command["command_param"])
    assert param["processInstanceId"] == child.process_instance_id
    assert param["ProcessInstanceId"] == child.process_instance_id
    assert param["id"] == the_relation(db, third)["id"]
    assert the_task(db, first)["flag"] == the_task(db, second)["flag"] == 0


def test_the_command_for_a_child_is_not_hindered_by_a_recovery_that_waits(db: Tables) -> None:
    parent = a_run(db)
    _, child = a_child(db, parent)
    end_run(db, child, ProcessState.FAILURE)
    save(db, parent, finish("sub", TaskState.FAILURE))
    a_command(db, command_type=12, command_param=about(child.process_instance_id))
    call_child(db, parent, "sub", 2)
    assert [row["command_type"] for row in db.rows(t.command)] == [12, 7]


# The view of its planner


def test_the_planner_of_a_child_sees_its_parent_and_all_above_it(db: Tables) -> None:
    top = a_run(db, process_definition_id=a_definition(db))
    _, middle = a_child(db, top)
    a_definition_of_middle = the_process(db, middle)["process_definition_id"]
    db.update(
        t.process_instance,
        middle.process_instance_id,
        global_params='[{"prop":"day"}]',
        schedule_time=LATER,
        history_cmd="SCHEDULER,STOP",
    )
    save(db, middle, a_sub_process("deep", task_json='{"n":1}', input_pool='[{"prop":"x"}]'))
    task_id = the_command(db)["parent_task_instance_id"]
    seen: list[Snapshot] = []

    def planner(_command: Command, snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return Drop(reason="seen")

    take(db, planner)
    parent = seen[0].parent
    assert parent is not None
    assert parent.process_instance_id == middle.process_instance_id
    assert (parent.task_instance_id, parent.task_name) == (task_id, "deep")
    assert (parent.task_json, parent.input_pool) == ('{"n":1}', '[{"prop":"x"}]')
    assert parent.waits
    assert parent.root_id == top.process_instance_id
    assert parent.history == ("SCHEDULER", "STOP")
    assert (parent.global_params, parent.schedule_time) == ('[{"prop":"day"}]', LATER)
    top_definition = the_process(db, top)["process_definition_id"]
    assert parent.ancestors == (top_definition, a_definition_of_middle)


def test_the_root_of_a_first_child_is_its_parent(db: Tables) -> None:
    top = a_run(db)
    task_id = call_child(db, top)
    take(db, always(Drop(reason="only the row was wanted")))
    _, snapshot = planner_arguments(db, parent_task_instance_id=task_id)
    assert snapshot.parent is not None
    assert snapshot.parent.root_id == top.process_instance_id
    assert snapshot.parent.waits
    save(db, top, kill("sub"))
    _, snapshot = planner_arguments(db, parent_task_instance_id=task_id)
    assert snapshot.parent is not None
    assert not snapshot.parent.waits


def test_an_attempt_of_another_type_is_nobodys_parent(db: Tables) -> None:
    (shell,) = submit(db, a_run(db), "a")
    for task_id in (shell, 2_000_000_000):
        _, snapshot = planner_arguments(db, parent_task_instance_id=task_id)
        assert snapshot.parent is None


# Beginning


def test_a_child_begins_and_its_parents_attempt_with_it(db: Tables) -> None:
    parent = a_run(db)
    task_id = call_child(db, parent)
    param = json.loads(the_command(db)["command_param"])
    plan = a_begin(child_of=child_of(db, parent, task_id), command_param=json.dumps(param))
    (handled,) = take(db, always(plan), now=LATER)
    child = handled.ownership
    assert child is not None
    assert has(
        the_process(db, child),
        state=1,
        is_sub_process=1,
        root_id=parent.process_instance_id,
        parent_task_instance_id=task_id,
        owner_epoch=1,
    )
    assert has(the_task(db, task_id), state=1, start_time=LATER, host=None, settled=False)
    relation = the_relation(db, task_id)
    assert relation["process_instance_id"] == child.process_instance_id
    # contract §3.1: in the child's own row all of them are text.
    assert json.loads(the_process(db, child)["command_param"]) == {
        "id": str(relation["id"]),
        "parentProcessInstanceId": str(parent.process_instance_id),
        "parentTaskInstanceId": str(task_id),
        "processInstanceId": str(child.process_instance_id),
    }
    assert load(db, child).process.parent_task_instance_id == task_id
    assert load(db, parent).process.parent_task_instance_id == 0


def test_a_run_and_the_snapshots_about_it_name_its_definition_and_project(db: Tables) -> None:
    definition = a_definition(db, name="trips")
    wanted = Origin(
        definition_name="trips", definition_code=definition, project_name="default", project_code=1
    )
    _, snapshot = planner_arguments(db, process_definition_id=definition)
    assert snapshot.definition is not None
    assert snapshot.definition.origin == wanted
    owned = a_run(db, process_definition_id=definition)
    assert load(db, owned).process.origin == wanted
    call_child(db, owned)
    seen: list[Origin | None] = []

    def planner(_command: Command, snapshot: Snapshot) -> Plan:
        seen.append(snapshot.parent and snapshot.parent.origin)
        return Drop(reason="seen")

    take(db, planner)
    assert seen == [wanted]


@pytest.mark.parametrize("gone", ["killed", "paused", "abandoned", "the run has ended"])
def test_t36c_a_child_that_nobody_waits_for_any_more_does_not_begin(db: Tables, gone: str) -> None:
    """T36c."""
    parent = a_run(db)
    task_id = call_child(db, parent)
    decisions: dict[str, Decision] = {
        "killed": kill("sub"),
        "paused": pause("sub"),
        "abandoned": AbandonTask(name="sub", attempt=1),
        "the run has ended": FinishProcess(state=ProcessState.FAILURE),
    }
    save(db, parent, decisions[gone])
    before = the_task(db, task_id)
    (handled,) = take(db, always(a_begin(child_of=child_of(db, parent, task_id))))
    assert isinstance(handled.plan, Drop)
    assert "does not wait for it any more" in handled.plan.reason
    assert handled.ownership is None
    assert len(db.rows(t.process_instance)) == 1
    assert db.rows(t.command) == db.rows(t.error_command) == []
    assert the_task(db, task_id) == before
    assert the_relation(db, task_id)["process_instance_id"] == 0


def test_a_sub_process_that_is_given_up_leaves_no_processes_to_look_for(db: Tables) -> None:
    parent = a_run(db)
    task_id = call_child(db, parent)
    take(db, always(a_begin(child_of=child_of(db, parent, task_id))))
    assert the_task(db, task_id)["state"] == TaskState.RUNNING
    save(db, parent, AbandonTask(name="sub", attempt=1))
    row = the_task(db, task_id)
    assert (row["state"], row["lost_at"]) == (TaskState.KILL, None)


def test_a_child_begins_once(db: Tables) -> None:
    parent = a_run(db)
    task_id = call_child(db, parent)
    plan = a_begin(child_of=child_of(db, parent, task_id))
    a_command(db, parent_task_instance_id=task_id)
    first, second = take(db, always(plan))
    assert isinstance(first.plan, Begin)
    assert isinstance(second.plan, Drop)
    assert len(db.rows(t.process_instance)) == 2


@pytest.mark.parametrize(
    ("columns", "plan"),
    [
        ({}, Reject(reason="there is no definition\0 'nobody'")),
        ({"command_type": 99}, None),
        ({}, a_begin(name="x" * 321)),
    ],
)
def test_t51b_a_command_of_a_child_that_is_rejected_fails_the_attempt_that_wants_it(
    db: Tables, columns: dict[str, Any], plan: Plan | None
) -> None:
    parent = a_run(db)
    task_id = call_child(db, parent)
    if columns:
        db.update(t.command, the_command(db)["id"], **columns)
    db.notifications()
    if isinstance(plan, Begin):
        plan = replace(plan, child_of=child_of(db, parent, task_id))
    (handled,) = take(db, always(plan or Drop(reason="it is never planned")), now=LATER)
    assert isinstance(handled.plan, Reject)
    (error,) = db.rows(t.error_command)
    task = the_task(db, task_id)
    assert has(task, state=6, end_time=LATER, settled=False, reason=error["message"])
    (report,) = db.runs.reports(MASTER)
    assert (report.task_instance_id, report.state) == (task_id, TaskState.FAILURE)
    assert [channel for channel, _ in db.notifications()] == [Channel.TASK]
    assert len(db.rows(t.process_instance)) == 1


def test_a_rejected_command_fails_no_attempt_that_does_not_wait_for_a_child(db: Tables) -> None:
    parent = a_run(db)
    (shell,) = submit(db, parent, "a")
    running, _ = a_child(db, parent)
    for task_id in (shell, running, 2_000_000_000):
        a_command(db, parent_task_instance_id=task_id)
    take(db, always(Reject(reason="no")))
    assert the_task(db, shell)["state"] == TaskState.SUBMITTED
    assert the_task(db, running)["state"] == TaskState.RUNNING
    assert len(db.rows(t.error_command)) == 3


def test_a_child_begins_whatever_else_runs_of_a_serial_definition(db: Tables) -> None:
    definition_id = a_definition(db, execution_type=1)
    a_run(db, process_definition_id=definition_id)
    parent = a_run(db)
    task_id = call_child(db, parent)
    child = begin_child(
        db,
        parent,
        task_id,
        process_definition_id=definition_id,
        execution_type=ExecutionType.SERIAL_WAIT,
    )
    assert the_process(db, child)["state"] == ProcessState.RUNNING


# Beginning again


@pytest.mark.parametrize("about_to_end", [being_stopped, asked_to_stop, orphaned])
def test_the_command_for_a_child_that_has_still_to_end_waits_for_that(
    db: Tables, about_to_end: Callable[[Tables, Ownership, Ownership], None]
) -> None:
    """The attempt was given up at the stop deadline; the parent recovers before the child ends."""
    parent = a_run(db)
    child, again = called_again(db, parent)
    about_to_end(db, parent, child)
    command = the_command(db)
    for room in (0, 100):
        assert take(db, always(Reject(reason="it has not ended")), room=room) == ()
    assert the_command(db) == command
    assert the_task(db, again)["state"] == TaskState.SUBMITTED
    db.runs.propagate_intents(MASTER)
    assert the_process(db, child)["wanted_state"] == (
        None if about_to_end is being_stopped else ProcessState.STOP
    )
    end_run(db, child, ProcessState.STOP)
    (handled,) = take(db, always(a_restart(child, child_of=child_of(db, parent, again))))
    assert handled.ownership == replace(child, epoch=2)
    assert the_task(db, again)["state"] == TaskState.RUNNING


def test_a_command_that_waits_for_a_childs_end_keeps_no_other_from_its_place(db: Tables) -> None:
    """Not even the recovery that leads to this end when the child's master is lost."""
    parent = a_run(db)
    child, _ = called_again(db, parent)
    assert db.failover.recover_runs(MASTER, now=LATER) == 2

    def planner(command: Command, snapshot: Snapshot) -> Plan:
        assert command.command_type is CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
        assert snapshot.instance is not None
        return Resume(process_instance_id=snapshot.instance.id, epoch=child.epoch)

    for _ in range(2):
        (handled,) = take(db, planner, node=OTHER_MASTER, limit=1)
        assert handled.ownership is not None
    assert the_command(db)["command_type"] == CommandType.REPEAT_RUNNING
    assert take(db, planner, node=OTHER_MASTER) == ()


def test_t36c_no_command_waits_for_a_childs_end_that_nobody_waits_for(db: Tables) -> None:
    """T36c."""
    parent = a_run(db)
    child, again = called_again(db, parent)
    save(db, parent, kill("sub", 2))
    (handled,) = take(db, always(a_restart(child, child_of=child_of(db, parent, again))))
    assert isinstance(handled.plan, Drop)
    assert db.rows(t.command) == []


def test_a_command_for_a_child_that_goes_on_for_another_attempt_does_not_wait(db: Tables) -> None:
    """Only a person can write such a command; the child has no end that it could wait for."""
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    other = call_child(db, parent, "other")
    relation = the_relation(db, other)["id"]
    db.update(t.relation_process_instance, relation, process_instance_id=child.process_instance_id)
    db.update(t.command, the_command(db)["id"], command_type=7)
    (handled,) = take(db, always(Reject(reason="it has not ended")))
    assert isinstance(handled.plan, Reject)
    assert the_task(db, other)["state"] == TaskState.FAILURE
    assert the_task(db, task_id)["state"] == TaskState.RUNNING


# The limit of a tree


def _wanting(db: Tables) -> list[dict[str, Any]]:
    return [row for row in db.rows(t.task_instance) if not row["settled"]]


def test_x81_a_tree_has_a_limited_number_of_sub_processes_that_are_live_or_wait(
    db: Tables,
) -> None:
    root = a_run(db)
    _, child = a_child(db, root)
    names = [f"sub{number}" for number in range(MOST_SUB_PROCESSES + 1)]
    save(db, child, *(a_sub_process(name) for name in names), at=LATER)
    reason = (
        f"process instance {root.process_instance_id} has {MOST_SUB_PROCESSES} sub-processes that"
        f" are live or wait to start; master.sub_process_runs allows {MOST_SUB_PROCESSES}"
    )
    _, *waiting, excess, last = _wanting(db)
    assert [row["name"] for row in (excess, last)] == names[-2:]
    for row in (excess, last):
        assert has(row, state=6, reason=reason, failure_reason="CONFIGURATION", end_time=LATER)
    # Only the attempts within the limit have a command. The next save finds the limit reached.
    assert [row["state"] for row in waiting] == [0] * (MOST_SUB_PROCESSES - 1)
    assert len(db.rows(t.command)) == MOST_SUB_PROCESSES - 1
    save(db, root, a_sub_process("other"))
    assert has(_wanting(db)[-1], name="other", state=6, reason=reason)
    # The owner reads these ends like any other report.
    ends = [report.task_instance_id for report in db.runs.reports(MASTER)]
    assert ends == [excess["id"], last["id"], _wanting(db)[-1]["id"]]


def test_x81_trees_do_not_take_each_other_s_places_and_a_place_becomes_free_again(
    db: Tables,
) -> None:
    first, second = a_run(db), a_run(db)
    names = [f"sub{number}" for number in range(MOST_SUB_PROCESSES)]
    for root in (first, second):
        save(db, root, *(a_sub_process(name) for name in names))
    assert [row["state"] for row in _wanting(db)] == [0] * 2 * MOST_SUB_PROCESSES
    save(db, first, kill(names[0]))
    save(db, first, a_sub_process("next"))
    assert has(_wanting(db)[-1], name="next", state=0)


def test_x81_a_stop_withdraws_every_sub_process_that_has_not_begun(db: Tables) -> None:
    root = a_run(db)
    names = [f"sub{number}" for number in range(MOST_SUB_PROCESSES)]
    save(db, root, *(a_sub_process(name) for name in names))
    save(db, root, *(kill(name) for name in names))
    assert {row["state"] for row in db.rows(t.task_instance)} == {int(TaskState.KILL)}
    # Every command is deleted without a run.
    handled = take(db, always(a_begin(child_of=child_of(db, root, _wanting(db)[0]["id"]))))
    assert {type(one.plan) for one in handled} == {Drop}
    assert db.rows(t.command) == []
