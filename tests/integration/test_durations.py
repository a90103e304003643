"""Durations and peaks of past runs, queried from a real database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from common.schedule_simulator import Peak
from common.store.connect import engine
from common.store.people.complement_views import dates_of_complement
from common.store.people.durations import recent_durations, recent_peaks
from common.store.people.views import process_instances
from common.store.tables import (
    complement,
    complement_date,
    process_instance,
    relation_process_instance,
    task_group,
    task_group_queue,
    task_instance,
)
from operations.documents.instances import instance_row

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
FLIGHTS, OTHER, NEVER_RUN = 11, 12, 13


@pytest.fixture
def db(emptied_url: str) -> Iterator[Connection]:
    """A connection whose changes are all rolled back."""
    made = engine(emptied_url, pool_size=1)
    with made.connect() as connection:
        yield connection
        connection.rollback()
    made.dispose()


def minutes(*numbers: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=number) for number in numbers)


def a_run(db: Connection, *, took: float = 1, **columns: Any) -> int:
    """A successful run of this many minutes; `columns` override its values."""
    row = {
        "name": "run",
        "process_definition_id": FLIGHTS,
        "state": 7,
        "start_time": NOON,
        "end_time": NOON + timedelta(minutes=took),
        "command_type": 6,
        "process_instance_json": "{}",
        "executor_id": 1,
    }
    statement = insert(process_instance).values(row | columns).returning(process_instance.c.id)
    return int(db.execute(statement).scalar_one())


def a_task(db: Connection, run: int, name: str, span: tuple[int, int], **columns: Any) -> int:
    """A successful attempt, from one minute of the run to another."""
    row = {
        "name": name,
        "task_type": "SHELL",
        "process_definition_id": FLIGHTS,
        "process_instance_id": run,
        "task_json": "{}",
        "state": 7,
        "start_time": NOON + timedelta(minutes=span[0]),
        "end_time": NOON + timedelta(minutes=span[1]),
    }
    statement = insert(task_instance).values(row | columns).returning(task_instance.c.id)
    return int(db.execute(statement).scalar_one())


def test_durations_come_newest_first_and_no_more_than_asked_for(db: Connection) -> None:
    for took in (1, 2, 3):
        a_run(db, took=took)
    a_run(db, took=9, process_definition_id=OTHER)
    ids = [FLIGHTS, OTHER, NEVER_RUN]
    assert recent_durations(db, ids) == {
        FLIGHTS: minutes(3, 2, 1),
        OTHER: minutes(9),
        NEVER_RUN: (),
    }
    assert recent_durations(db, [FLIGHTS], limit=2) == {FLIGHTS: minutes(3, 2)}


def test_only_a_whole_success_in_one_go_tells_how_long_a_run_takes(db: Connection) -> None:
    a_run(db, took=5)
    a_run(db, state=6)
    a_run(db, state=1, end_time=None)
    a_run(db, is_sub_process=1)
    a_run(db, task_depend_type=0)
    a_run(db, run_scope='["a"]')
    a_run(db, command_param='{"StartNodeNameList":"a"}')
    a_run(db, restart_time=NOON + timedelta(seconds=30))
    # The turn of a serial run: it starts when it begins, not when it was put.
    a_run(db, took=7, restart_time=NOON)
    assert recent_durations(db, [FLIGHTS]) == {FLIGHTS: minutes(7, 5)}


def test_a_clock_that_was_set_back_gives_no_negative_span(db: Connection) -> None:
    a_run(db, took=-3)
    assert recent_durations(db, [FLIGHTS]) == {FLIGHTS: minutes(0)}


def test_every_view_of_a_restarted_run_leaves_its_idle_time_out(db: Connection) -> None:
    run = a_run(
        db,
        took=20,
        restart_time=NOON + timedelta(minutes=18),
        duration_from=NOON + timedelta(minutes=15),
        command_type=4,
        history_cmd="SCHEDULER,START_FAILURE_TASK_PROCESS",
    )
    (view,) = process_instances(db, definition_id=FLIGHTS)
    row = instance_row(view, now=NOON + timedelta(days=1))
    assert (row["start_time"], row["duration"]) == (NOON, timedelta(minutes=5))
    assert row["command_type"] == "START_FAILURE_TASK_PROCESS"
    assert row["first_command_type"] == "SCHEDULER"
    number = db.scalars(
        insert(complement)
        .values(process_definition_id=FLIGHTS, timezone_id="UTC")
        .returning(complement.c.id)
    ).one()
    db.execute(
        insert(complement_date).values(
            complement_id=number,
            position=1,
            schedule_time=NOON,
            state="success",
            process_instance_id=run,
        )
    )
    (date,) = dates_of_complement(db, number)
    assert date.duration(NOON + timedelta(days=1)) == timedelta(minutes=5)


def test_a_run_that_waits_for_its_turn_has_no_duration(db: Connection) -> None:
    a_run(db, state=14, end_time=None, history_cmd=None)
    (view,) = process_instances(db, definition_id=FLIGHTS)
    row = instance_row(view, now=NOON + timedelta(days=1))
    assert (row["duration"], row["first_command_type"]) == (None, "SCHEDULER")


def test_a_run_that_a_former_version_restarted_afresh_counts_from_its_start(db: Connection) -> None:
    a_run(db, took=4, restart_time=NOON, duration_from=NOON - timedelta(minutes=3))
    assert recent_durations(db, [FLIGHTS]) == {FLIGHTS: minutes(4)}


def test_a_peak_is_the_most_tasks_at_one_time(db: Connection) -> None:
    run = a_run(db)
    a_task(db, run, "a", (0, 3))
    a_task(db, run, "b", (1, 4))
    a_task(db, run, "c", (3, 5))  # It begins as `a` ends.
    a_task(db, run, "d", (5, 6))
    assert recent_peaks(db, [FLIGHTS, NEVER_RUN]) == {FLIGHTS: (Peak(slots=2),), NEVER_RUN: ()}


def test_tasks_of_sub_processes_count_and_those_of_masters_do_not(db: Connection) -> None:
    run = a_run(db)
    child = a_run(db, is_sub_process=1, root_id=run, process_definition_id=OTHER)
    grandchild = a_run(db, is_sub_process=1, root_id=run, process_definition_id=OTHER)
    caller = a_task(db, run, "sub", (0, 9), task_type="SUB_PROCESS")
    a_task(db, run, "depends", (0, 9), task_type="DEPENDENT")
    inner = a_task(db, child, "inner", (0, 9), task_type="SUB_PROCESS")
    a_task(db, run, "own", (0, 9))
    a_task(db, child, "a", (0, 9))
    a_task(db, grandchild, "a", (0, 9))
    for parent, task, of in ((run, caller, child), (child, inner, grandchild)):
        db.execute(
            insert(relation_process_instance).values(
                parent_process_instance_id=parent,
                parent_task_instance_id=task,
                process_instance_id=of,
            )
        )
    assert recent_peaks(db, [FLIGHTS]) == {FLIGHTS: (Peak(slots=3),)}


def test_a_peak_knows_the_slots_of_pools(db: Connection) -> None:
    pool = db.execute(
        insert(task_group).values(name="db", group_size=9).returning(task_group.c.id)
    ).scalar_one()
    run = a_run(db)
    for name, span, weight in (("a", (0, 2), 2), ("b", (1, 3), 3), ("c", (2, 4), 1)):
        task = a_task(db, run, name, span)
        db.execute(
            insert(task_group_queue).values(task_id=task, group_id=pool, weight=weight, status=2)
        )
    assert recent_peaks(db, [FLIGHTS]) == {FLIGHTS: (Peak(slots=2, pools={"db": 5}),)}


def test_a_run_without_tasks_on_workers_takes_no_slot_and_newer_runs_come_first(
    db: Connection,
) -> None:
    a_task(db, a_run(db), "a", (0, 1))
    a_run(db)
    assert recent_peaks(db, [FLIGHTS]) == {FLIGHTS: (Peak(slots=0), Peak(slots=1))}
    assert recent_peaks(db, [FLIGHTS], limit=1) == {FLIGHTS: (Peak(slots=0),)}
