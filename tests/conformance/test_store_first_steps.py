"""First steps: written with the runs that they are of, in the transaction that takes commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from common.model.commands import CommandType
from common.model.decisions import Decision, FinishTask
from common.model.plans import Begin, Plan, Resume
from common.model.states import ExecutionType, FailureStrategy, Priority, ProcessState, TaskState
from common.store import tables as t
from common.store.master.ports import FirstStep, LoadedRun, Step, Taken
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    NOON,
    OTHER_MASTER,
    Tables,
    a_begin,
    a_command,
    a_run,
    a_sub_process,
    a_submit,
    about,
    always,
    by_id,
    call_child,
    child_of,
    has,
    load,
    take_over,
)

TOKYO = timezone(timedelta(hours=9))
UNSTORABLE = '{"script":"a\0b"}'


def take(db: Tables, plan: Plan | dict[int, Plan], first_step: FirstStep | None) -> Taken:
    return db.commands.take(
        node=MASTER,
        limit=100,
        room=100,
        spare=100,
        live_masters=lambda: frozenset([MASTER]),
        planner=by_id(plan) if isinstance(plan, dict) else always(plan),
        now=NOON,
        first_step=first_step,
    )


def note_in(shown: list[LoadedRun]) -> FirstStep:
    def note(run: LoadedRun) -> None:
        shown.append(run)

    return note


def deciding(*decisions: Decision) -> FirstStep:
    return lambda run: Step(ownership=run.ownership, decisions=decisions, at=NOON)


@pytest.mark.parametrize(
    "plan",
    [
        a_begin(),
        a_begin(
            command_param='{"StartNodeNameList":"a"}',
            global_params='[{"prop":"day","value":"1"}]',
            schedule_time=LATER.astimezone(TOKYO),
            timezone_id="Asia/Tokyo",
            failure_strategy=FailureStrategy.END,
            priority=Priority.HIGHEST,
            worker_group_id=7,
            executor_id=3,
        ),
        a_begin(command_type=CommandType.COMPLEMENT_DATA, schedule_time=NOON, business_time=LATER),
        a_begin(execution_type=ExecutionType.SERIAL_WAIT),
    ],
    ids=["plain", "scheduled", "complement", "serial"],
)
def test_a_first_step_is_decided_on_the_run_as_it_would_be_loaded(db: Tables, plan: Begin) -> None:
    shown: list[LoadedRun] = []
    a_command(db)
    taken = take(db, plan, note_in(shown))
    (handled,) = taken.handled
    assert handled.ownership is not None
    assert taken.begun == frozenset()
    assert shown == [load(db, handled.ownership)]


def test_a_sub_process_is_shown_as_it_would_be_loaded_too(db: Tables) -> None:
    parent = a_run(db)
    child = a_begin(child_of=child_of(db, parent, call_child(db, parent)))
    shown: list[LoadedRun] = []
    taken = take(db, child, note_in(shown))
    (handled,) = taken.handled
    assert handled.ownership is not None
    assert shown == [load(db, handled.ownership)]


def test_a_first_step_is_written_with_its_run(db: Tables) -> None:
    a_command(db)
    taken = take(db, a_begin(priority=Priority.HIGH), deciding(a_submit("a"), a_submit("b")))
    (handled,) = taken.handled
    assert taken.begun == {handled.ownership}
    assert handled.ownership is not None
    tasks = load(db, handled.ownership).tasks
    assert [(task.name, task.state) for task in tasks] == [
        ("a", TaskState.SUBMITTED),
        ("b", TaskState.SUBMITTED),
    ]
    assert [
        (offer.task_instance_id, offer.process_instance_id, offer.process_priority)
        for offer in taken.saved.offers
    ] == [(task.id, handled.ownership.process_instance_id, Priority.HIGH) for task in tasks]
    assert db.rows(t.command) == []
    assert db.runs.load([replace(handled.ownership, epoch=2)]) == ()


def test_the_ids_of_runs_have_no_gaps_however_their_first_steps_are_written(db: Tables) -> None:
    ended = FinishTask(name="a", attempt=1, state=TaskState.SUCCESS, at=NOON)
    begun: list[int] = []
    for decisions in ([a_submit("a")], [a_submit("a"), ended], [a_submit("a")]):
        plans = {a_command(db): a_begin(), a_command(db): a_begin()}
        taken = take(db, plans, deciding(*decisions))
        begun += [each.ownership.process_instance_id for each in taken.handled if each.ownership]
    assert len(begun) == 6
    assert sorted(begun) == list(range(min(begun), min(begun) + 6))


def test_a_run_with_a_first_step_has_the_row_and_the_ledger_of_one_without(db: Tables) -> None:
    plan = a_begin(
        command_param='{"StartNodeNameList":"a"}',
        global_params='[{"prop":"day","value":"1"}]',
        schedule_time=LATER.astimezone(TOKYO),
        timezone_id="Asia/Tokyo",
        failure_strategy=FailureStrategy.END,
        priority=Priority.HIGHEST,
        warning_group_id=4,
        worker_group_id=7,
        executor_id=3,
        timeout_minutes=5,
        tenant_id=2,
        locations="somewhere",
        connects="nothing",
    )
    for first_step in (None, deciding(a_submit("a"))):
        a_command(db, start_time=NOON)
        take(db, plan, first_step)
    own = {"id", "command_id", "process_instance_id"}
    for table in (t.process_instance, t.command_ledger):
        without, with_one = (
            {name: value for name, value in row.items() if name not in own}
            for row in db.rows(table)
        )
        assert without == with_one
    assert [row["command_id"] for row in db.rows(t.process_instance)] == [
        row["command_id"] for row in db.rows(t.command_ledger)
    ]


def test_a_first_step_may_call_a_child(db: Tables) -> None:
    a_command(db)
    taken = take(db, a_begin(), deciding(a_sub_process("sub", child_definition=5)))
    assert len(taken.begun) == 1
    (command,) = db.rows(t.command)
    assert has(command, process_definition_id=5)


def test_runs_of_one_batch_get_the_steps_of_their_own(db: Tables) -> None:
    first, second, third = (a_command(db) for _ in range(3))
    plans = {each: a_begin(name=f"run of {each}") for each in (first, second, third)}

    def first_step(run: LoadedRun) -> Step | None:
        if run.process.name == f"run of {second}":
            return None
        submit = a_submit(f"task of {run.process.name}")
        return Step(ownership=run.ownership, decisions=(submit,), at=NOON)

    taken = take(db, plans, first_step)
    owned = {one.command_id: one.ownership for one in taken.handled}
    assert taken.begun == {owned[first], owned[third]}
    names = {
        command_id: [task.name for task in load(db, ownership).tasks]
        for command_id, ownership in owned.items()
        if ownership is not None
    }
    assert names == {
        first: [f"task of run of {first}"],
        second: [],
        third: [f"task of run of {third}"],
    }


@pytest.mark.parametrize(
    "refused", [a_submit("bad", task_json=UNSTORABLE), a_submit("good")], ids=["text", "twice"]
)
def test_if_one_first_step_is_refused_all_runs_are_left_to_be_opened(
    db: Tables, refused: Decision
) -> None:
    commands = [a_command(db), a_command(db)]
    plans = {each: a_begin(name=f"run of {each}") for each in commands}

    def first_step(run: LoadedRun) -> Step:
        is_bad = run.process.name == f"run of {commands[1]}"
        decisions = (a_submit("good"), refused) if is_bad else (a_submit("good"),)
        return Step(ownership=run.ownership, decisions=decisions, at=NOON)

    taken = take(db, plans, first_step)
    assert (taken.begun, taken.saved.offers) == (frozenset(), ())
    assert [one.command_id for one in taken.handled] == commands
    for one in taken.handled:
        assert one.ownership is not None
        run = load(db, one.ownership)
        assert (run.process.state, run.tasks) == (ProcessState.RUNNING, ())
    assert db.rows(t.command) == []


def test_what_does_not_begin_now_has_no_first_step(db: Tables) -> None:
    owned = a_run(db)
    waiting = a_begin(execution_type=ExecutionType.SERIAL_WAIT)
    taken_over = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    asked: list[LoadedRun] = []

    def first_step(run: LoadedRun) -> Step | None:
        asked.append(run)
        return None

    a_command(db)
    take(db, waiting, first_step)
    a_command(db, command_type=2)
    take(db, taken_over, first_step)
    assert asked == []


def a_failover(db: Tables) -> int:
    return take_over(db, a_run(db, node=OTHER_MASTER), node=OTHER_MASTER).process_instance_id


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (a_command, 0),
        (lambda db: a_command(db, command_type=9, command_param=about(a_failover(db))), 0),
        (lambda db: a_command(db, command_type=2, command_param=about(a_failover(db))), 1),
    ],
    ids=["begin", "stop", "failover"],
)
def test_only_a_failover_asks_who_is_alive(
    db: Tables, command: Callable[[Tables], int], asked: int
) -> None:
    command(db)
    questions: list[None] = []
    seen: list[object] = []

    def live_masters() -> frozenset[object]:
        questions.append(None)
        return frozenset([MASTER])

    def planner(_command: object, snapshot: object) -> Plan:
        seen.append(snapshot)
        return a_begin()

    db.commands.take(
        node=MASTER,
        limit=100,
        room=100,
        spare=100,
        live_masters=live_masters,  # type: ignore[arg-type]
        planner=planner,
        now=NOON,
    )
    assert len(questions) == asked
    (snapshot,) = seen
    assert snapshot.live_masters == (frozenset([MASTER]) if asked else frozenset())  # type: ignore[attr-defined]
