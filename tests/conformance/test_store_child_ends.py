"""Sub processes that end or are ended: the parent's attempt, intents, and commands about a child."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.model.decisions import AbandonTask, FinishProcess, StopProcess
from common.model.failures import FailureReason
from common.model.plans import Resume
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.listen import Channel, read_task_report
from common.store.master.ports import Step
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    OTHER_MASTER,
    STOPPING,
    Tables,
    a_child,
    a_definition,
    a_run,
    a_sub_process,
    about,
    always,
    end_run,
    finish,
    has,
    kill,
    load,
    pause,
    planner_arguments,
    save,
    take,
    take_over,
    the_process,
    the_task,
)

# Ending

WORDS = {
    TaskState.FAILURE: FailureReason.SUB_PROCESS_FAILED,
    # Somebody has stopped the child alone, and its parent did not ask for it.
    TaskState.KILL: FailureReason.KILLED,
}


@pytest.mark.parametrize(
    ("state", "of_task"),
    [
        (ProcessState.SUCCESS, TaskState.SUCCESS),
        (ProcessState.FAILURE, TaskState.FAILURE),
        (ProcessState.STOP, TaskState.KILL),
        (ProcessState.PAUSE, TaskState.PAUSE),
    ],
)
def test_a_childs_end_is_that_of_its_parents_attempt_12933(
    db: Tables, state: ProcessState, of_task: TaskState
) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    db.notifications()
    pool = '[{"prop":"rows","direct":"OUT","type":"VARCHAR","value":"7"}]'
    save(db, child, FinishProcess(state=state, reason="so it was", var_pool=pool), at=LATER)
    reason = f"process instance {child.process_instance_id}: so it was"
    assert has(
        the_task(db, task_id),
        state=int(of_task),
        end_time=LATER,
        reason=reason,
        var_pool=pool,
        settled=False,
        failure_reason=WORDS.get(of_task),
    )
    (report,) = db.runs.reports(MASTER)
    assert (report.task_instance_id, report.state, report.name) == (task_id, of_task, "sub")
    assert (report.reason, report.var_pool, report.has_output) == (reason, pool, True)
    notifications = dict(db.notifications())
    assert notifications[Channel.PROCESS] == str(child.process_instance_id)
    told = read_task_report(notifications[Channel.TASK])
    assert (told.process_instance_id, told.state) == (parent.process_instance_id, of_task)
    assert told.has_output
    save(db, parent, replace(finish("sub", of_task), var_pool=report.var_pool))
    (row,) = load(db, parent).tasks
    assert (row.state, row.var_pool) == (of_task, pool)


def test_a_child_that_ends_without_a_word_leaves_no_reason_and_no_output(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    end_run(db, child)
    assert has(the_task(db, task_id), state=7, reason=None, var_pool=None)
    (report,) = db.runs.reports(MASTER)
    assert not report.has_output


def test_a_stop_of_the_whole_tree_is_no_failure_of_the_attempt(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    save(db, parent, kill("sub"))
    end_run(db, child, ProcessState.STOP)
    assert has(the_task(db, task_id), state=TaskState.KILL, failure_reason=None)


def test_a_childs_end_changes_nothing_of_an_attempt_that_was_given_up(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    save(db, parent, AbandonTask(name="sub", attempt=1))
    before = the_task(db, task_id)
    assert before["state"] == TaskState.KILL
    end_run(db, child)
    assert the_task(db, task_id) == before


def test_children_and_parents_of_one_save_end_together(db: Tables) -> None:
    parent = a_run(db)
    (a, one), (b, other) = a_child(db, parent, "a"), a_child(db, parent, "b")
    steps = [
        Step(ownership=run, decisions=(FinishProcess(state=ProcessState.SUCCESS),), at=NOON)
        for run in (other, one)
    ]
    db.runs.save([*steps, Step(ownership=parent, decisions=(kill("a"),), at=NOON)])
    assert [the_task(db, task)["state"] for task in (a, b)] == [7, 7]


# Intents


def test_a_kill_of_a_running_sub_process_becomes_its_childs_intent(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    _, bystander = a_child(db, parent, "other")
    saved = save(db, parent, kill("sub"))
    assert (saved.intents, saved.kills, saved.withdrawn) == (True, (), ())
    assert has(the_task(db, task_id), state=1, wanted_state=9)
    db.notifications()
    assert db.runs.propagate_intents(OTHER_MASTER) == 0
    assert db.runs.propagate_intents(MASTER) == 1
    assert the_process(db, child)["wanted_state"] == ProcessState.STOP
    assert the_process(db, child)["wanted_at"] is not None
    assert the_process(db, bystander)["wanted_state"] is None
    assert db.notifications() == [(Channel.WANTED, str(child.process_instance_id))]
    assert db.runs.propagate_intents(MASTER) == 0
    assert db.notifications() == []


def test_a_pause_is_passed_on_and_a_stop_after_it_but_none_before_it(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    assert not save(db, parent, STOPPING).intents
    saved = save(db, parent, pause("sub"))
    assert (saved.intents, saved.kills, saved.withdrawn) == (True, (), ())
    assert the_task(db, task_id)["wanted_state"] == TaskState.PAUSE
    assert db.runs.propagate_intents(MASTER) == 1
    assert the_process(db, child)["wanted_state"] == ProcessState.PAUSE
    save(db, parent, kill("sub"))
    assert db.runs.propagate_intents(MASTER) == 1
    assert the_process(db, child)["wanted_state"] == ProcessState.STOP
    save(db, parent, pause("sub"))
    assert the_task(db, task_id)["wanted_state"] == TaskState.KILL
    assert db.runs.propagate_intents(MASTER) == 0


@pytest.mark.parametrize("wanted", [ProcessState.STOP, ProcessState.FAILURE])
def test_a_pause_that_is_passed_on_replaces_nothing_stronger(
    db: Tables, wanted: ProcessState
) -> None:
    parent = a_run(db)
    _, child = a_child(db, parent)
    db.update(t.process_instance, child.process_instance_id, wanted_state=int(wanted))
    save(db, parent, pause("sub"))
    assert db.runs.propagate_intents(MASTER) == 0
    assert the_process(db, child)["wanted_state"] == wanted


def test_a_child_that_is_being_stopped_is_asked_for_nothing_more(db: Tables) -> None:
    """The final state was decided when the stop began."""
    parent = a_run(db)
    _, child = a_child(db, parent)
    save(db, child, StopProcess(deadline=LATER, failing=True))
    save(db, parent, kill("sub"))
    assert db.runs.propagate_intents(MASTER) == 0
    assert the_process(db, child)["wanted_state"] == ProcessState.FAILURE


def test_intents_go_down_a_tree_level_by_level_whoever_owns_the_levels(db: Tables) -> None:
    top = a_run(db)
    _, middle = a_child(db, top)
    middle = take_over(db, middle)
    _, deep = a_child(db, middle)
    save(db, top, kill("sub"))
    assert db.runs.propagate_intents(MASTER) == 1
    assert db.runs.wanted(OTHER_MASTER)[middle].state is ProcessState.STOP
    save(db, middle, kill("sub"))
    assert db.runs.propagate_intents(OTHER_MASTER) == 1
    assert db.runs.wanted(MASTER)[deep].state is ProcessState.STOP


@pytest.mark.parametrize("gone", ["given up", "superseded", "the run has ended"])
def test_a_child_that_nobody_waits_for_any_more_is_stopped_by_its_own_owner(
    db: Tables, gone: str
) -> None:
    """The parent's attempt may be given up before the stop intent is propagated."""
    parent = a_run(db)
    _, child = a_child(db, parent)
    _, wanted = a_child(db, parent, "other")
    child = take_over(db, child)
    assert db.runs.propagate_intents(OTHER_MASTER) == 0
    match gone:
        case "given up":
            save(db, parent, AbandonTask(name="sub", attempt=1))
        case "superseded":
            save(db, parent, AbandonTask(name="sub", attempt=1), a_sub_process("sub", 2))
        case "the run has ended":
            end_run(db, wanted)
            save(db, parent, FinishProcess(state=ProcessState.FAILURE))
    assert db.runs.propagate_intents(OTHER_MASTER) == 1
    assert db.runs.wanted(OTHER_MASTER)[child].state is ProcessState.STOP
    assert db.runs.propagate_intents(OTHER_MASTER) == 0
    # The owner's other runs continue, and so do the other children of its parent.
    assert db.runs.propagate_intents(MASTER) == 0
    assert the_process(db, wanted)["wanted_state"] is None


def test_a_child_that_is_being_stopped_and_that_nobody_waits_for_is_left_alone(db: Tables) -> None:
    parent = a_run(db)
    _, child = a_child(db, parent)
    save(db, parent, AbandonTask(name="sub", attempt=1))
    save(db, child, StopProcess(deadline=LATER, failing=True))
    assert db.runs.propagate_intents(MASTER) == 0
    assert the_process(db, child)["wanted_state"] == ProcessState.FAILURE


def test_a_child_that_somebody_ended_by_hand_ends_its_parents_attempt_at_the_next_look(
    db: Tables,
) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    db.update(
        t.process_instance,
        child.process_instance_id,
        state=5,
        end_time=LATER,
        state_reason="by hand",
    )
    assert the_task(db, task_id)["state"] == TaskState.RUNNING
    assert db.runs.propagate_intents(MASTER) == 0
    assert has(
        the_task(db, task_id),
        state=9,
        end_time=LATER,
        reason=f"process instance {child.process_instance_id}: by hand",
    )
    assert [report.task_instance_id for report in db.runs.reports(MASTER)] == [task_id]


# Commands about a child


@pytest.mark.parametrize("command_type", [3, 4, 7, 8, 9])
def test_a_command_about_a_sub_process_is_about_the_root_of_its_tree(
    db: Tables, command_type: int
) -> None:
    """T74: the whole tree from any level."""
    definition_id = a_definition(db)
    top = a_run(db, process_definition_id=definition_id)
    _, middle = a_child(db, top)
    _, deep = a_child(db, middle)
    _, snapshot = planner_arguments(
        db,
        command_type=command_type,
        process_definition_id=0,
        command_param=about(deep.process_instance_id),
    )
    assert snapshot.asked_instance_id == deep.process_instance_id
    assert snapshot.instance is not None
    assert snapshot.instance.id == top.process_instance_id
    assert snapshot.instance.root_id == 0
    assert snapshot.definition is not None
    assert snapshot.definition.id == definition_id


@pytest.mark.parametrize("command_type", [2, 10, 11, 12])
def test_some_commands_speak_of_the_sub_process_itself(db: Tables, command_type: int) -> None:
    top = a_run(db)
    _, child = a_child(db, top)
    _, snapshot = planner_arguments(
        db, command_type=command_type, command_param=about(child.process_instance_id)
    )
    assert snapshot.instance is not None
    assert snapshot.instance.id == child.process_instance_id
    assert snapshot.instance.root_id == top.process_instance_id


def test_a_parents_command_speaks_of_its_child_itself(db: Tables) -> None:
    top = a_run(db)
    task_id, child = a_child(db, top)
    _, snapshot = planner_arguments(
        db,
        command_type=7,
        command_param=about(child.process_instance_id),
        parent_task_instance_id=task_id,
    )
    assert snapshot.instance is not None
    assert snapshot.instance.id == child.process_instance_id


def test_the_recovery_of_a_lost_masters_child_needs_no_room(db: Tables) -> None:
    """T36d."""
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    assert db.failover.recover_runs(MASTER, now=LATER) == 2
    by_instance = {row["process_instance_id"]: row for row in db.rows(t.command)}
    assert by_instance[parent.process_instance_id]["parent_task_instance_id"] == 0
    recovery = by_instance[child.process_instance_id]
    assert has(recovery, command_type=2, parent_task_instance_id=task_id)
    plan = Resume(process_instance_id=child.process_instance_id, epoch=child.epoch)
    handled = take(db, always(plan), node=OTHER_MASTER, room=0)
    owned = [one.ownership for one in handled if one.ownership is not None]
    assert owned == [replace(child, host=OTHER_MASTER.address, epoch=2)]
    assert the_task(db, task_id)["state"] == TaskState.RUNNING
