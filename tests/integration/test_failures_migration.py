"""Failures of attempts by project, in a database of a former revision."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import insert, select

from common.store import schema
from common.store import tables as t
from common.store.connect import engine
from tests.integration.former_databases import bring_to


def test_masters_of_the_former_version_count_failures_beside_those_by_project(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0025")
        db.exec_driver_sql("INSERT INTO t_ds_worker_failures (worker, failures) VALUES ('a:1', 2)")
    schema.upgrade(made, os_user="tester")
    with made.begin() as db:
        # The statement of the former version, whose daemons may still run.
        db.exec_driver_sql(
            "INSERT INTO t_ds_worker_failures (worker, failures) VALUES ('a:1', 3)"
            " ON CONFLICT (worker) DO UPDATE SET failures = excluded.failures"
        )
        assert db.scalars(select(t.worker_failures.c.failures)).all() == [3]
        assert db.scalars(select(t.project_failures.c.failures)).all() == []
        for project in (1, 2):
            db.execute(insert(t.project_failures).values(project_id=project, worker="a:1"))
    made.dispose()
