"""Stopping, pausing, giving up and branching, in the rows of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import KillEntry
from common.model.commands import CommandType
from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    PauseProcess,
    SkipTask,
    StopProcess,
)
from common.model.definitions import TaskTimeout
from common.model.instances import Ownership
from common.model.plans import Drop, SetIntent
from common.model.states import (
    Priority,
    ProcessState,
    TaskState,
    TimeoutStrategy,
)
from common.store import tables as t
from common.store.master.ports import Intent, Saved, Step, UnreadableRun
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    WORKER,
    Tables,
    a_child,
    a_run,
    a_stop,
    a_sub_process,
    a_submit,
    an_end,
    an_intent,
    carry_out,
    claim,
    end,
    finish,
    has,
    kill,
    load,
    pause,
    save,
    submit,
    take_over,
    the_process,
    the_task,
)

# Pause


def test_a_pause_withdraws_what_is_queued_and_lets_run_what_runs(db: Tables) -> None:
    """T41."""
    owned = a_run(db)
    queued, running, ended = submit(db, owned, "queued", "running", "ended")
    claim(db, [running, ended])
    end(db, an_end(ended))
    saved = save(db, owned, PauseProcess(), *(pause(n) for n in ("queued", "running", "ended")))
    assert the_process(db, owned)["state"] == ProcessState.READY_PAUSE
    assert [entry.task_instance_id for entry in saved.withdrawn] == [queued]
    assert (saved.kills, saved.intents, saved.holds) == ((), False, False)
    assert has(
        the_task(db, queued),
        state=3,
        wanted_state=3,
        end_time=NOON,
        reason="paused before it started",
        settled=False,
    )
    assert claim(db, [queued]) == []
    assert has(the_task(db, running), state=1, wanted_state=3)
    assert the_task(db, ended)["state"] == TaskState.SUCCESS
    assert db.tasks.running(WORKER) == {running: False}
    wanted = {row.name: (row.pause_requested, row.kill_requested) for row in load(db, owned).tasks}
    assert wanted == dict.fromkeys(("queued", "running", "ended"), (True, False))
    assert end(db, an_end(running)) == {running}
    save(db, owned, finish("queued", TaskState.PAUSE))


def test_a_kill_after_a_pause_is_a_kill_and_a_pause_after_a_kill_is_one_too(db: Tables) -> None:
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    save(db, owned, pause("a"))
    assert len(save(db, owned, kill("a")).kills) == 1
    save(db, owned, pause("a"))
    assert the_task(db, task_id)["wanted_state"] == TaskState.KILL
    assert db.tasks.running(WORKER) == {task_id: True}


def test_a_pause_ends_with_the_tasks(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, PauseProcess())
    assert db.runs.owned(MASTER) == {owned}
    save(db, owned, FinishProcess(state=ProcessState.PAUSE))
    assert has(the_process(db, owned), state=3, end_time=NOON)


# Stop


def test_a_stop_is_visible_with_the_time_by_which_it_has_to_be_over(db: Tables) -> None:
    owned = a_run(db)
    carry_out(db, a_stop(owned))
    save(db, owned, StopProcess(deadline=LATER), at=LATER)
    assert has(
        the_process(db, owned), state=4, wanted_state=5, wanted_at=NOON, wanted_deadline=LATER
    )
    process = load(db, owned).process
    assert (process.state, process.wanted_deadline) == (ProcessState.READY_STOP, LATER)
    assert process.wanted_state is ProcessState.STOP
    # Any new owner continues with the same deadline and reads the same intent.
    taken = take_over(db, owned)
    assert load(db, taken).process.wanted_deadline == LATER
    assert db.runs.wanted(OTHER_MASTER) == {taken: Intent(state=ProcessState.STOP, at=NOON)}


def test_a_run_that_is_to_end_as_a_failure_is_wanted_so(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, StopProcess(deadline=LATER, failing=True), at=LATER)
    assert has(the_process(db, owned), state=4, wanted_state=6, wanted_at=LATER)
    assert db.runs.wanted(MASTER) == {owned: Intent(state=ProcessState.FAILURE, at=LATER)}
    save(db, owned, StopProcess(deadline=LATER, failing=True), at=LATER + MINUTE)
    assert the_process(db, owned)["wanted_at"] == LATER


def test_a_stop_does_not_make_a_stop_of_a_run_that_is_being_failed(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, StopProcess(deadline=LATER, failing=True))
    assert isinstance(carry_out(db, a_stop(owned)).plan, Drop)
    assert the_process(db, owned)["wanted_state"] == ProcessState.FAILURE


def _paused(owned: Ownership) -> SetIntent:
    return an_intent(owned.process_instance_id, CommandType.PAUSE)


def test_a_pause_that_comes_about_after_a_stop_was_taken_is_not_written(db: Tables) -> None:
    owned, other = a_run(db), a_run(db)
    for request in (_paused(owned), a_stop(owned), _paused(other)):
        carry_out(db, request)
    paused = (PauseProcess(), FinishProcess(state=ProcessState.PAUSE))
    saved = db.runs.save(
        [Step(ownership=each, decisions=paused, at=NOON) for each in (owned, other)]
    )
    assert (saved.overtaken, saved.lost) == ({owned}, frozenset())
    assert has(the_process(db, owned), state=1, wanted_state=5, end_time=None)
    assert has(the_process(db, other), state=3, wanted_state=3)
    stopped = (StopProcess(deadline=LATER), FinishProcess(state=ProcessState.STOP))
    assert save(db, owned, *stopped).overtaken == frozenset()
    assert the_process(db, owned)["state"] == ProcessState.STOP


def test_a_pause_is_not_written_once_its_run_has_taken_too_long(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, StopProcess(deadline=LATER, failing=True))
    assert save(db, owned, FinishProcess(state=ProcessState.PAUSE)).overtaken == {owned}
    assert the_process(db, owned)["state"] == ProcessState.READY_STOP


@pytest.mark.parametrize("state", [ProcessState.SUCCESS, ProcessState.FAILURE])
def test_a_run_that_comes_to_its_end_before_its_stop_begins_has_ended_so(
    db: Tables, state: ProcessState
) -> None:
    owned = a_run(db)
    carry_out(db, a_stop(owned))
    assert save(db, owned, FinishProcess(state=state)).overtaken == frozenset()
    assert the_process(db, owned)["state"] == state


# Giving up


def test_what_does_not_end_in_time_is_given_up(db: Tables) -> None:
    owned = a_run(db)
    queued, running = submit(db, owned, "queued", "running")
    save(db, owned, a_submit("delayed", due_at=LATER))
    claim(db, [running])
    db.notifications()
    saved = save(
        db,
        owned,
        *(AbandonTask(name=name, attempt=1) for name in ("queued", "running", "delayed")),
        at=LATER,
    )
    assert saved.kills == (KillEntry(address=WORKER.address, task_instance_id=running),)
    assert [entry.task_instance_id for entry in saved.withdrawn] == [queued]
    for task in db.rows(t.task_instance):
        assert has(
            task,
            state=9,
            wanted_state=9,
            end_time=LATER,
            settled=True,
            flag=1,
            reason="given up: it had not ended when the time for stopping was over",
        )
    # The decider knows it already; the worker is notified that it holds nothing any more.
    assert db.notifications() == []
    assert db.runs.reports(MASTER) == ()
    assert db.tasks.running(WORKER) == {}
    assert end(db, an_end(running)) == frozenset()


@pytest.mark.parametrize("settled", [False, True])
def test_giving_up_what_has_ended_meanwhile_keeps_its_end(db: Tables, *, settled: bool) -> None:
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    end(db, an_end(task_id, reason="just in time"))
    if settled:
        save(db, owned, finish("a"))
    saved = save(db, owned, AbandonTask(name="a", attempt=1))
    assert (saved.kills, saved.withdrawn) == ((), ())
    assert has(the_task(db, task_id), state=7, end_time=LATER, settled=True, reason="just in time")


def test_a_sub_process_and_a_dependent_can_be_given_up_too(db: Tables) -> None:
    owned = a_run(db)
    _, child = a_child(db, owned)
    save(db, owned, a_submit("dep", task_type="DEPENDENT"))
    saved = save(db, owned, AbandonTask(name="sub", attempt=1), AbandonTask(name="dep", attempt=1))
    assert (saved.kills, saved.withdrawn) == ((), ())
    assert [row["state"] for row in db.rows(t.task_instance)] == [9, 9]
    assert the_process(db, child)["state"] == ProcessState.RUNNING


def test_an_attempt_that_is_not_there_can_not_be_paused_or_given_up(db: Tables) -> None:
    owned = a_run(db)
    for decision in (pause("a"), AbandonTask(name="a", attempt=1)):
        with pytest.raises(StoreConflictError, match=str(owned.process_instance_id)):
            save(db, owned, decision)


# Branches


def a_decision(name: str, attempt: int = 1, **changes: Any) -> DecideTask:
    decision = DecideTask(
        name=name,
        attempt=attempt,
        task_type="SWITCH",
        task_json='{"type":"SWITCH"}',
        priority=Priority.HIGH,
        state=TaskState.SUCCESS,
        branch=("b", "ä"),
    )
    return replace(decision, **changes)


def test_a_branch_that_the_engine_chose_is_a_finished_and_settled_row(db: Tables) -> None:
    owned = a_run(db, executor_id=5)
    db.notifications()
    saved = save(db, owned, a_decision("s", input_pool="[]"), SkipTask(name="c"), at=LATER)
    assert saved == Saved(lost=frozenset(), offers=(), kills=(), withdrawn=())
    (row,) = db.rows(t.task_instance)
    assert has(
        row,
        name="s",
        task_type="SWITCH",
        state=7,
        submit_time=LATER,
        start_time=LATER,
        end_time=LATER,
        flag=1,
        settled=True,
        attempt=1,
        task_instance_priority=1,
        executor_id=5,
        host=None,
        input_pool="[]",
        reason=None,
    )
    assert json.loads(row["branch"]) == ["b", "ä"]
    (task,) = load(db, owned).tasks
    assert (task.state, task.settled, task.branch) == (TaskState.SUCCESS, True, ("b", "ä"))
    assert db.notifications() == []
    assert db.runs.reports(MASTER) == ()


def test_a_branch_may_be_none_or_empty(db: Tables) -> None:
    owned = a_run(db)
    failed = a_decision("s", state=TaskState.FAILURE, branch=None, reason="no case holds\0")
    save(db, owned, failed, a_decision("t", branch=()))
    assert [task.branch for task in load(db, owned).tasks] == [None, ()]
    first = db.rows(t.task_instance)[0]
    assert has(first, state=6, branch=None, reason="no case holds\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("ending", [kill, pause])
@pytest.mark.parametrize("child_first", [True, False])
def test_a_save_that_ends_a_child_and_its_attempt_is_one_whatever_comes_first(
    db: Tables, ending: Callable[[str], Decision], *, child_first: bool
) -> None:
    parent = a_run(db)
    task_id, child = a_child(db, parent)
    steps = [
        Step(ownership=child, decisions=(FinishProcess(state=ProcessState.SUCCESS),), at=NOON),
        Step(ownership=parent, decisions=(ending("sub"),), at=NOON),
    ]
    saved = db.runs.save(steps if child_first else steps[::-1])
    # The attempt was running when its end was asked for; to look once more does no harm.
    assert saved.intents
    wanted = TaskState.KILL if ending is kill else TaskState.PAUSE
    assert has(the_task(db, task_id), state=TaskState.SUCCESS, wanted_state=wanted)


def test_deciding_again_supersedes_the_former_decision(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, a_decision("s"))
    save(db, owned, a_decision("s", 2, branch=("c",)))
    assert [(task.attempt, task.valid, task.branch) for task in load(db, owned).tasks] == [
        (1, False, ("b", "ä")),
        (2, True, ("c",)),
    ]
    with pytest.raises(StoreConflictError):
        save(db, owned, a_decision("s", 2))


@pytest.mark.parametrize("text", ["{not JSON", '{"b":1}', "[1]", '"b"'])
@pytest.mark.parametrize("column", ["branch", "run_scope"])
def test_a_run_whose_lists_somebody_spoilt_is_told_apart_and_hinders_no_other(
    db: Tables, column: str, text: str
) -> None:
    spoilt, fine = a_run(db), a_run(db)
    save(db, spoilt, a_decision("s"), a_submit("a"))
    if column == "branch":
        db.update(t.task_instance, db.rows(t.task_instance)[0]["id"], branch=text)
    else:
        db.update(t.process_instance, spoilt.process_instance_id, run_scope=text)
    unreadable, loaded = db.runs.load([spoilt, fine])
    assert isinstance(unreadable, UnreadableRun)
    assert (unreadable.ownership, unreadable.live) == (spoilt, (("a", 1),))
    assert column in unreadable.reason
    assert loaded.ownership == fine


# Other columns of a submission


def test_what_an_attempt_was_given_and_how_long_it_may_take_stands_in_its_row(db: Tables) -> None:
    owned = a_run(db)
    timeout = TaskTimeout(after=timedelta(minutes=2), strategy=TimeoutStrategy.WARNFAILED)
    save(db, owned, a_submit("a", input_pool='[{"prop":"x"}]', timeout=timeout))
    (row,) = db.rows(t.task_instance)
    assert has(row, input_pool='[{"prop":"x"}]', timeout_seconds=120, timeout_strategy=2)
    assert has(row, state=0, due_at=None, alert_flag=0, var_pool=None)


def test_a_run_is_loaded_with_all_that_its_decisions_depend_on(db: Tables) -> None:
    owned = a_run(
        db,
        command_type=CommandType.COMPLEMENT_DATA,
        global_params='[{"prop":"day"}]',
        schedule_time=NOON,
        business_time=LATER,
    )
    process = load(db, owned).process
    assert process.complement
    assert (process.global_params, process.moment) == ('[{"prop":"day"}]', LATER)
    assert (process.run_scope, process.wanted_deadline) == (None, None)
    other = a_run(db, command_type=CommandType.SCHEDULER)
    db.update(
        t.process_instance, other.process_instance_id, history_cmd="SCHEDULER,COMPLEMENT_DATA"
    )
    assert not load(db, other).process.complement


def test_t60_nothing_but_worker_tasks_is_ever_offered(db: Tables) -> None:
    owned = a_run(db)
    saved = save(
        db,
        owned,
        a_sub_process("sub"),
        a_submit("dep", task_type="DEPENDENT"),
        a_decision("s"),
        a_submit("a"),
    )
    assert len(saved.offers) == 1
    (entry,) = db.runs.unclaimed(MASTER, submitted_before=LATER)
    assert entry == saved.offers[0]
    ids = [row["id"] for row in db.rows(t.task_instance)]
    assert claim(db, ids) == [entry.task_instance_id]
