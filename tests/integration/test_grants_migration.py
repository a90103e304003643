"""The migration that grants objects to the projects that use them, on a database with rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, select, text

from common.store import schema, tables
from common.store.connect import engine
from tests.integration.former_databases import bring_to


def test_what_projects_use_is_granted_to_them_and_nothing_else(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    nodes = (
        {"name": "a", "workerGroupId": 21, "environmentCode": 31, "taskGroups": [{"name": "db"}]},
        {"name": "b", "type": "SQL", "params": {"datasource": "41"}, "taskGroupId": 52},
        {"name": "c", "params": {"datasources": {"x": 42, "y": "dw"}}, "taskGroups": '["api"]'},
        {"name": "d", "workerGroupId": -1, "environmentCode": None, "params": None},
        {"name": "e", "workerGroupId": 999, "params": {"datasource": True}},
    )
    live = {"tenantId": 12, "tasks": [{"name": "a", "params": {"datasourceName": "former"}}]}
    rows = """
        INSERT INTO t_ds_project (id, name)
            VALUES (2, 'sales'), (3, 'idle');
        INSERT INTO t_ds_tenant (id, tenant_code)
            VALUES (11, 'etl'), (12, 'ops'), (13, 'ada'), (14, 'unused');
        INSERT INTO t_ds_user (id, user_name, tenant_id)
            VALUES (7, 'ada', 13);
        INSERT INTO t_ds_worker_group (id, name)
            VALUES (21, 'big'), (22, 'run'), (23, 'night'), (24, 'unused');
        INSERT INTO t_ds_environment (id, code, name, config)
            VALUES (31, 31, 'java', ''), (32, 32, 'night', ''), (33, 33, 'once', '');
        INSERT INTO t_ds_datasource (id, name, type, connection_params)
            VALUES (41, 'one', 1, '{}'), (42, 'two', 1, '{}'),
            (43, 'dw', 1, '{}'), (44, 'former', 1, '{}'),
            (45, 'given', 1, '{}'), (46, 'unused', 1, '{}');
        INSERT INTO t_ds_task_group (id, name, group_size)
            VALUES (51, 'db', 1), (52, 'slots', 1), (53, 'api', 1), (54, 'unused', 1);
        INSERT INTO t_ds_process_definition (id, name, project_id, user_id, tenant_id)
            VALUES (3, 'nightly', 2, 1, 11), (4, 'broken', 1, 7, -1);
        UPDATE t_ds_process_definition SET process_definition_json = '{' WHERE id = 4;
        INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,
            worker_group_id, command_type, executor_id, process_instance_json, end_time)
            VALUES (5, 'a', 4, 1, 22, 0, 1, '', NULL), (6, 'b', 4, 7, 24, 0, 1, '', now());
        INSERT INTO t_ds_schedules (process_definition_id, start_time, end_time, crontab,
            worker_group_id, environment_code, user_id)
            VALUES (3, '2026-01-01', '2027-01-01', '0 0 4 * * ? *', 23, 32, 1);
        INSERT INTO t_ds_command (command_type, process_definition_id, command_param,
            executor_id)
            VALUES (0, 4, '{"environmentCode": "33"}', 1);
        INSERT INTO t_ds_relation_datasource_user (user_id, datasource_id)
            VALUES (7, 45);
        INSERT INTO t_ds_relation_project_user (user_id, project_id, perm)
            VALUES (7, 1, 7), (7, 3, 1);
    """
    with made.begin() as db:
        bring_to(db, "0025")
        db.exec_driver_sql(rows)
        for run, document in ((3, {"tasks": nodes}), (5, live)):
            table, column = (
                ("t_ds_process_definition", "process_definition_json")
                if run == 3
                else ("t_ds_process_instance", "process_instance_json")
            )
            db.execute(
                text(f"UPDATE {table} SET {column} = :document WHERE id = :id"),
                {"document": json.dumps(document), "id": run},
            )
    schema.upgrade(made, os_user="tester")
    with made.begin() as db:
        found = {(row.object_type, row.object_id, row.project_id) for row in granted(db)}
        assert found == {
            *((1, 1, 1), (1, 11, 2), (1, 13, 1)),
            *((2, 41, 2), (2, 42, 2), (2, 43, 2), (2, 44, 1), (2, 45, 1)),
            *((3, 31, 2), (3, 32, 2), (3, 33, 1)),
            *((4, 51, 2), (4, 52, 2), (4, 53, 2)),
            *((5, 21, 2), (5, 22, 1), (5, 23, 2)),
            (1, 12, 1),
        }
        db.exec_driver_sql("DELETE FROM t_ds_environment WHERE id = 31")
        db.exec_driver_sql("DELETE FROM t_ds_project WHERE id = 1")
        assert {(row.object_type, row.project_id) for row in granted(db)} == {
            (kind, 2) for kind in range(1, 6)
        }
    made.dispose()


def granted(db: Connection) -> list[Any]:
    return list(db.execute(select(tables.grant)))
