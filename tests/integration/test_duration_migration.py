"""Revision 0032: the duration of runs that were restarted leaves their idle time out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select, text

from common.store import schema, tables
from common.store.connect import engine
from tests.integration.former_databases import bring_to

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def at(minutes: float | None) -> datetime | None:
    return None if minutes is None else NOON + timedelta(minutes=minutes)


def a_run(db: Connection, number: int, *, restarted: float | None) -> None:
    db.execute(
        text(
            "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
            " command_type, process_instance_json, executor_id, start_time, restart_time, end_time)"
            " VALUES (:id, 'r', 3, 7, 4, '{}', 1, :start, :restart, :end)"
        ),
        {"id": number, "start": NOON, "restart": at(restarted), "end": at(60)},
    )


def an_attempt(
    db: Connection, run: int, number: int, start: float | None, end: float | None
) -> None:
    db.execute(
        text(
            "INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,"
            " process_instance_id, task_json, state, attempt, flag, start_time, end_time)"
            " VALUES ('a', 'SHELL', 3, :run, '{}', 7, :number, 0, :start, :end)"
        ),
        {"run": run, "number": number, "start": at(start), "end": at(end)},
    )


def test_runs_of_before_count_the_time_in_which_their_attempts_ran(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0025")
        a_run(db, 1, restarted=None)
        a_run(db, 2, restarted=50)
        # Two attempts overlap, the third is apart, the fourth follows the restart, the fifth did not
        # start, and the clock was set back before the last.
        spans = ((0, 2), (1, 3), (10, 11), (51, 55), (None, 20), (30, 29))
        for number, (start, end) in enumerate(spans, start=1):
            an_attempt(db, 2, number, start, end)
        a_run(db, 3, restarted=50)
        a_run(db, 4, restarted=0)
        an_attempt(db, 4, 1, 0, 60)
    schema.upgrade(made, os_user="tester")
    with made.connect() as db:
        run = tables.process_instance.c
        found = dict(db.execute(select(run.id, run.duration_from)).tuples().all())
    assert found == {1: None, 2: at(46), 3: at(50), 4: None}
    made.dispose()
