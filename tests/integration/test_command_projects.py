"""The project of a waiting command, which a trigger sets and migrations 0037 and 0039 fill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, text

from common.store import schema
from common.store.connect import engine
from tests.integration.former_databases import bring_to

_RUNS = """
INSERT INTO t_ds_process_definition (id, name, project_id, process_definition_json)
    VALUES (1, 'own', 1, '{}'), (2, 'shared', 2, '{}'), (3, 'third', 3, '{}');
INSERT INTO t_ds_process_instance (id, name, process_definition_id, state, command_type,
        process_instance_json, executor_id, root_id)
    VALUES (7, 'root', 1, 1, 0, '{}', 1, 0), (8, 'child', 2, 1, 0, '{}', 1, 7),
        (9, 'of a deleted root', 3, 1, 0, '{}', 1, 4711),
        (10, 'of a deleted definition', 4711, 1, 0, '{}', 1, 0),
        (11, 'its child', 3, 1, 0, '{}', 1, 10);
INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id, process_instance_id,
        task_json, state)
    VALUES (70, 'sub', 'SUB_PROCESS', 1, 7, '{}', 0), (80, 'sub', 'SUB_PROCESS', 2, 8, '{}', 0),
        (90, 'sub', 'SUB_PROCESS', 3, 9, '{}', 0), (110, 'sub', 'SUB_PROCESS', 3, 11, '{}', 0);
"""
_COMMANDS = """
INSERT INTO t_ds_command (id, command_type, process_definition_id, process_instance_id,
        parent_task_instance_id, complement_date_id)
    VALUES (1, 0, 2, 0, 0, 0), (2, 0, 2, 0, 70, 0), (3, 0, 2, 0, 80, 0), (4, 7, 2, 8, 0, 0),
        (5, 5, 1, 0, 0, 3), (6, 0, NULL, 0, 0, 0), (7, 0, 4711, 0, 4711, 0), (8, 7, 2, 4711, 0, 0),
        (10, 0, 2, 0, 90, 0), (11, 0, 2, 0, 110, 0), (12, 7, 4711, 9, 0, 0);
"""
PROJECTS = {1: 2, 2: 1, 3: 1, 4: 1, 5: 1, 6: 0, 7: 0, 8: 2, 10: 3, 11: 3, 12: 3}
"""Children and recoveries belong to the project at the top of the tree, or of the run itself."""


def projects(db: Connection) -> dict[int, int]:
    rows = db.execute(text("SELECT id, project_id FROM t_ds_command ORDER BY id"))
    return {row.id: row.project_id for row in rows}


@pytest.mark.parametrize("revision", ["0025", "0036", "0037"])
def test_commands_that_wait_during_the_upgrade_get_their_projects(
    new_database: Callable[..., str], revision: str
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, revision)
        db.exec_driver_sql(_RUNS + _COMMANDS)
    schema.upgrade(made, os_user="tester")
    with made.connect() as db:
        assert projects(db) == PROJECTS
    made.dispose()


def test_a_command_gets_its_project_whatever_the_insert_names(emptied_url: str) -> None:
    made = engine(emptied_url)
    with made.connect() as db:
        db.exec_driver_sql(_RUNS + _COMMANDS)
        assert projects(db) == PROJECTS
        forged = db.exec_driver_sql(
            "INSERT INTO t_ds_command (id, command_type, process_definition_id, project_id)"
            " VALUES (9, 0, 1, 99) RETURNING project_id"
        )
        assert forged.scalar_one() == 1
    made.dispose()


def test_a_role_that_may_only_insert_commands_can_still_do_so(emptied_url: str) -> None:
    made = engine(emptied_url)
    with made.connect() as db:
        db.exec_driver_sql(_RUNS)
        # Undone with the transaction, which nothing commits.
        for table in ("t_ds_process_definition", "t_ds_process_instance", "t_ds_task_instance"):
            db.exec_driver_sql(f"REVOKE SELECT ON {table} FROM CURRENT_USER")
        db.exec_driver_sql(_COMMANDS)
        assert set(projects(db).values()) == {0}
    made.dispose()
