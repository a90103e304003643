"""Retention: what is old goes with all that is its own, and what something still needs stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.clock import SystemClock
from common.model.commands import CommandType
from common.model.complement_states import ComplementState
from common.model.instances import Ownership
from common.model.plans import Drop, Restart
from common.model.states import ProcessState, TaskState
from common.model.upstream import Question
from common.purging import Purge
from common.retention import Need, Pace, Step, needs_of
from common.store import tables as t
from common.store.retention import FIRST, History, Marked, Place
from common.store.worker.ports import LogTail
from tests.builders import NOON
from tests.conformance.complements import a_complement
from tests.conformance.store_tables import (
    LATER,
    MINUTE,
    Tables,
    a_child,
    a_command,
    a_definition,
    a_run,
    carry_out,
    end_run,
    has,
    run_to_end,
    the_process,
)

DAY = timedelta(days=1)
CUTOFF = NOON + DAY


def an_old_run(db: Tables, definition_id: int, *tasks: str, **changes: Any) -> Ownership:
    """A run that ended before the cutoff, with an attempt at each of these tasks."""
    owned = a_run(db, process_definition_id=definition_id, **changes)
    for name in tasks:
        run_to_end(db, owned, name, TaskState.SUCCESS)
    end_run(db, owned)
    return owned


def mark(db: Tables, limit: int = 100, **changes: Any) -> Marked:
    asked: dict[str, Any] = {"before": CUTOFF, "after": FIRST, "needs": (), **changes}
    return db.retention.mark(limit=limit, **asked)


def purge(db: Tables, *, before: datetime = CUTOFF, **changes: Any) -> Purge:
    asked: dict[str, Any] = {"histories": (), **changes}
    run = Purge(db.retention, clock=SystemClock(), before=before, **asked)
    while run.step():
        pass
    return run


def ids(db: Tables) -> list[int]:
    return [row["id"] for row in db.rows(t.process_instance)]


def test_an_old_run_goes_with_all_that_is_its_own_and_the_newest_of_its_definition_stays(
    db: Tables,
) -> None:
    definition = a_definition(db)
    old = an_old_run(db, definition, "a", "b")
    task_id = db.rows(t.task_instance)[0]["id"]
    db.insert(t.task_group_queue, task_id=task_id, group_id=1)
    newest = an_old_run(db, definition, "a")
    done = purge(db, paces=dict.fromkeys(Step, Pace(rows=1, most=1))).done
    assert done.rows == {"t_ds_task_instance": 2, "t_ds_process_instance": 1}
    assert done.instances == [(definition, old.process_instance_id)]
    assert ids(db) == [newest.process_instance_id]
    assert [row["process_instance_id"] for row in db.rows(t.task_instance)] == ids(db)
    assert db.rows(t.task_group_queue) == []
    assert has(the_process(db, newest), flag=1)


def test_what_ended_later_or_belongs_to_another_definition_stays(db: Tables) -> None:
    first, second = a_definition(db), a_definition(db)
    late = a_run(db, process_definition_id=first)
    end_run(db, late)
    db.update(t.process_instance, late.process_instance_id, end_time=CUTOFF)
    runs = [an_old_run(db, each) for each in (first, second, first, second)]
    purge(db, definition_id=first)
    gone = {runs[0].process_instance_id}
    assert set(ids(db)) == {late.process_instance_id, *(r.process_instance_id for r in runs)} - gone


def _paused(db: Tables, owned: Ownership) -> None:
    db.update(t.process_instance, owned.process_instance_id, state=int(ProcessState.PAUSE))


def _with_a_command(db: Tables, owned: Ownership) -> None:
    a_command(db, command_type=7, process_instance_id=owned.process_instance_id)


def _with_a_live_attempt(db: Tables, owned: Ownership) -> None:
    columns = {"name": "x", "task_type": "SHELL", "task_json": "{}", "process_definition_id": 1}
    db.insert(t.task_instance, process_instance_id=owned.process_instance_id, state=0, **columns)


def _with_processes_left(db: Tables, owned: Ownership) -> None:
    row = next(
        row
        for row in db.rows(t.task_instance)
        if row["process_instance_id"] == owned.process_instance_id
    )
    db.update(t.task_instance, row["id"], lost_at=NOON)


def _of_a_complement(state: ComplementState) -> Callable[[Tables, Ownership], None]:
    def make(db: Tables, owned: Ownership) -> None:
        complement = a_complement(db, 1)
        (date,) = db.rows(t.complement_date)
        db.update(t.complement_date, date["id"], process_instance_id=owned.process_instance_id)
        db.update(t.complement, complement, state=int(state), end_time=NOON)

    return make


@pytest.mark.parametrize(
    ("spoil", "stays"),
    [
        (_paused, True),
        (_with_a_command, True),
        (_with_a_live_attempt, True),
        (_with_processes_left, True),
        (_of_a_complement(ComplementState.RUNNING), True),
        (_of_a_complement(ComplementState.PAUSE), True),
        (_of_a_complement(ComplementState.FAILURE), False),
    ],
)
def test_a_run_that_something_needs_stays(
    db: Tables, spoil: Callable[[Tables, Ownership], None], stays: bool
) -> None:
    definition = a_definition(db)
    old = an_old_run(db, definition, "a")
    an_old_run(db, definition)
    spoil(db, old)
    assert (mark(db).ids == ()) is stays


def test_a_run_goes_with_its_sub_processes_once_all_of_them_are_old(db: Tables) -> None:
    definition = a_definition(db)
    parent = a_run(db, process_definition_id=definition)
    _, child = a_child(db, parent)
    end_run(db, child)
    end_run(db, parent)
    an_old_run(db, definition)
    both = (parent.process_instance_id, child.process_instance_id)
    db.update(t.process_instance, both[1], end_time=CUTOFF)
    assert mark(db).ids == ()
    db.update(t.process_instance, both[1], end_time=NOON)
    assert mark(db).ids == both
    # The parent alone is gone, when a master dies: the child goes with the next purge.
    db.retention.delete_attempts(both, limit=10)
    assert db.retention.delete_instances(both, limit=1) == [(definition, both[0])]
    assert [row["process_instance_id"] for row in db.rows(t.relation_process_instance)] == []
    purge(db)
    assert both[1] not in ids(db)


def test_a_run_that_is_being_deleted_is_not_restarted_and_counts_for_no_dependent(
    db: Tables,
) -> None:
    definition = a_definition(db)
    old = an_old_run(db, definition, "a")
    an_old_run(db, definition, schedule_time=NOON + 9 * DAY)
    number = old.process_instance_id
    question = Question(
        definition_id=definition,
        definition_name=None,
        task=None,
        start=NOON - DAY,
        end=NOON + DAY,
        apart_from=0,
    )
    (answer,) = db.dependents.look_up([question])
    assert answer is not None
    assert mark(db).ids == (number,)
    assert db.dependents.look_up([question]) == (None,)
    plan = Restart(
        process_instance_id=number,
        epoch=old.epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=(),
    )
    reason = f"process instance {number} is being deleted for its age; begin a new run"
    assert carry_out(db, plan).plan == Drop(reason=reason)
    # Whoever purges next goes on with it, however old it has to be.
    assert purge(db, before=NOON + MINUTE).done.instances == [(definition, number)]


def test_nothing_is_deleted_that_is_not_marked(db: Tables) -> None:
    definition = a_definition(db)
    old = an_old_run(db, definition, "a")
    number = old.process_instance_id
    assert db.retention.delete_attempts([number], limit=10) == 0
    assert db.retention.delete_instances([number], limit=10) == []
    an_old_run(db, definition)
    mark(db)
    assert db.retention.delete_instances([number], limit=10) == []
    assert db.retention.delete_attempts([number], limit=10) == 1


def test_a_page_ends_where_the_next_one_begins(db: Tables) -> None:
    definition = a_definition(db)
    runs = [an_old_run(db, definition).process_instance_id for _ in range(5)]
    _paused(db, Ownership(process_instance_id=runs[0], host="", epoch=0))
    first = mark(db, limit=2)
    assert first == Marked(ids=(runs[1], runs[2]), place=Place(NOON, runs[2]))
    assert first.place is not None
    second = mark(db, limit=3, after=first.place)
    assert second == Marked(ids=(runs[3],), place=None)


DEPENDENT = {
    "tasks": [
        {
            "name": "dep",
            "type": "DEPENDENT",
            "dependence": {
                "relation": "AND",
                "dependTaskList": [
                    {
                        "relation": "AND",
                        "dependItemList": [
                            {
                                "definitionId": 0,
                                "depTasks": "ALL",
                                "cycle": "day",
                                "dateValue": "last1Days",
                            }
                        ],
                    }
                ],
            },
        }
    ]
}


def asking(definition_id: int) -> str:
    """A definition whose only task waits for the day before of another one."""
    text = json.dumps(DEPENDENT)
    return text.replace('"definitionId": 0', f'"definitionId": {definition_id}')


def test_the_runs_that_a_live_run_or_a_complement_may_ask_about_stay(db: Tables) -> None:
    upstream = a_definition(db)
    moments = [NOON + days * DAY for days in (0, 30, 60)]
    old = [an_old_run(db, upstream, schedule_time=moment) for moment in moments]
    downstream = a_definition(db, process_definition_json=asking(upstream))
    waiting = a_run(
        db,
        process_definition_id=downstream,
        process_instance_json=asking(upstream),
        schedule_time=moments[0] + DAY,
    )
    complement = a_complement(db, 1, process_definition_id=downstream)
    (date,) = db.rows(t.complement_date)
    db.update(t.complement_date, date["id"], schedule_time=moments[1] + DAY)
    an_old_run(db, upstream, schedule_time=moments[2] + DAY)

    def going() -> tuple[int, ...]:
        needs = needs_of(db.retention.waits(now=LATER))
        place = old[0].process_instance_id - 1
        return mark(db, needs=needs, after=Place(NOON - DAY, place)).ids

    numbers = [owned.process_instance_id for owned in old]
    assert going() == (numbers[2],)
    db.update(t.complement, complement, state=int(ComplementState.STOP), end_time=NOON)
    assert going() == (numbers[1], numbers[2])
    end_run(db, waiting)
    assert going() == tuple(numbers)


def test_a_need_keeps_the_runs_of_its_definition(db: Tables) -> None:
    definition = a_definition(db, name="nightly")
    an_old_run(db, definition)
    an_old_run(db, definition)
    need = Need(definition_id=definition, start=NOON - DAY, end=NOON + DAY)
    assert mark(db, needs=[need]).ids == ()
    assert len(mark(db).ids) == 1


def test_lines_of_history_go_by_their_own_age(db: Tables) -> None:
    for days in (0, 0, 2):
        when = NOON + days * DAY
        db.insert(t.alert, title="x", content="[]", create_time=when, alertgroup_id=None)
        db.insert(
            t.schedule_fire,
            schedule_id=1,
            fire_time=when + MINUTE * len(db.rows(t.schedule_fire)),
            outcome="fired",
            process_definition_id=7,
            create_time=when,
        )
        db.insert(
            t.command_ledger,
            command_id=1,
            command_type=0,
            process_definition_id=8,
            process_instance_id=None,
            outcome=1,
            reason=None,
            start_time=when,
            handled_at=when,
            host=None,
        )
    tables = {History.FIRES: 2, History.COMMANDS: 2, History.ALERTS: 2}
    # Alerts belong to no definition, and the ledger's lines to another one.
    every = tuple(History)
    assert purge(db, definition_id=7, histories=every).done.rows == {History.FIRES.value: 2}
    done = purge(db, paces=dict.fromkeys(Step, Pace(rows=1, most=1)), histories=every).done
    assert done.rows == {each.value: n for each, n in tables.items() if each is not History.FIRES}
    assert [len(db.rows(each)) for each in (t.alert, t.schedule_fire, t.command_ledger)] == [1] * 3


def test_a_complement_goes_with_its_dates_unless_another_one_waits_for_it(db: Tables) -> None:
    first, second, paused = (a_complement(db, 2) for _ in range(3))
    for number in (first, second, paused):
        db.update(t.complement, number, state=int(ComplementState.SUCCESS), end_time=NOON)
    db.update(t.complement, paused, state=int(ComplementState.PAUSE))
    db.update(t.complement, second, state=int(ComplementState.RUNNING), after_id=first)
    complements = (History.COMPLEMENTS,)
    assert purge(db, histories=complements).done.rows == {}
    db.update(t.complement, second, state=int(ComplementState.STOP))
    assert purge(db, histories=complements).done.rows == {History.COMPLEMENTS.value: 2}
    assert [row["id"] for row in db.rows(t.complement)] == [paused]
    assert {row["complement_id"] for row in db.rows(t.complement_date)} == {paused}


def test_a_worker_is_told_which_of_its_folders_have_rows(db: Tables) -> None:
    owned = a_run(db)
    good = run_to_end(db, owned, "a", TaskState.SUCCESS)
    bad = run_to_end(db, owned, "b", TaskState.FAILURE)
    asked = [owned.process_instance_id, 999_999, 2**40]
    assert db.tasks.existing(asked) == {owned.process_instance_id}
    assert db.tasks.succeeded([good, bad, 2**40]) == {good}


def test_the_last_words_of_an_attempt_are_kept_once_and_go_with_it(db: Tables) -> None:
    definition = a_definition(db)
    old = an_old_run(db, definition, "a")
    (task_id,) = (row["id"] for row in db.rows(t.task_instance))
    assert db.tasks.log_places([task_id, 999_999, 2**40]) == {task_id: old.process_instance_id}
    first, again, foreign = (
        LogTail(task_instance_id=number, size=20_000, tail=tail)
        for number, tail in ((task_id, b"\xff\x00last"), (task_id, b"other"), (999_999, b"x"))
    )
    assert [db.tasks.keep_tails([each]) for each in (first, again, foreign)] == [1, 0, 0]
    (row,) = db.rows(t.task_log_tail)
    assert (row["task_instance_id"], row["size"], bytes(row["tail"])) == (
        task_id,
        20_000,
        b"\xff\x00last",
    )
    an_old_run(db, definition)
    purge(db)
    assert db.rows(t.task_log_tail) == []
