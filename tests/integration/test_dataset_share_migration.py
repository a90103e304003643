"""The migration that creates a share for each use of a dataset by another project."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from common.store import schema
from common.store.connect import engine
from tests.builders import NOON
from tests.integration.former_databases import bring_to


def test_uses_of_datasets_by_other_projects_get_their_shares(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())

    def stored(*tasks: dict[str, Any]) -> str:
        return json.dumps({"tasks": list(tasks)})

    def locks(*names: str) -> dict[str, Any]:
        return {"name": "l", "type": "SHELL", "locks": [{"dataset": name} for name in names]}

    waits = {
        "name": "w",
        "type": "DEPENDENT",
        # DolphinScheduler stores parts of a node as JSON text.
        "dependence": json.dumps({"dependTaskList": [{"dependItemList": [{"dataset": "waited"}]}]}),
    }
    compacts = {"name": "c", "type": "COMPACT", "params": {"dataset": "compacted"}}
    reads = {"name": "r", "type": "SPARK_SQL", "params": {"datasets": [{"dataset": "viewed"}]}}
    echoes = {"name": "e", "type": "SHELL", "params": {"dataset": "unused"}}
    definitions = [
        (10, 1, "own", stored(locks("locked"))),
        (20, 2, "locks", stored(locks("locked", "nowhere", "orphan"), echoes)),
        (21, 2, "others", stored(waits, compacts)),
        (22, 2, "broken", '{"tasks": [{"locks": [{"dataset": "unused"'),
        (30, 3, "reads", stored(reads, locks("orphan"))),
        (40, 77, "homeless", stored(locks("locked"))),
    ]
    with made.begin() as db:
        bring_to(db, "0025")
        db.execute(text("INSERT INTO t_ds_project (id, name) VALUES (2, 'two'), (3, 'three')"))
        for name in ("locked", "waited", "compacted", "viewed", "unused", "live"):
            db.execute(
                text("INSERT INTO t_ds_dataset (name, project_id) VALUES (:name, 1)"),
                {"name": name},
            )
        db.exec_driver_sql(
            "INSERT INTO t_ds_segment (dataset, interval, version, partition_num, files, rows,"
            " bytes, origin_version, origin_num)"
            " VALUES ('orphan', '[2026-11-20, 2026-11-21)', 'v', 0, '[]', 0, 0, 'v', 0)"
        )
        for number, project, name, document in definitions:
            db.execute(
                text(
                    "INSERT INTO t_ds_process_definition (id, project_id, name,"
                    " process_definition_json) VALUES (:id, :project, :name, :document)"
                ),
                {"id": number, "project": project, "name": name, "document": document},
            )
        for run_id, end, used in ((7, None, "live"), (8, NOON, "unused")):
            db.execute(
                text(
                    "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                    " start_time, end_time, command_type, process_instance_json, executor_id)"
                    " VALUES (:id, 'locks-1', 20, 1, :now, :end, 0, :document, 1)"
                ),
                {"id": run_id, "now": NOON, "end": end, "document": stored(locks(used))},
            )
    schema.upgrade(made, os_user="tester")
    with made.connect() as db:
        shares = db.execute(
            text(
                "SELECT dataset.name, share.project_id FROM t_ds_share AS share"
                " JOIN t_ds_dataset AS dataset ON dataset.id = share.object_id"
                " WHERE share.object_type = 'dataset'"
            )
        ).all()
        owner = text("SELECT project_id FROM t_ds_dataset WHERE name = 'orphan'")
        assert db.scalar(owner) == 2
    assert sorted(tuple(each) for each in shares) == [
        ("compacted", 2),
        ("live", 2),
        ("locked", 2),
        ("orphan", 3),
        ("viewed", 3),
        ("waited", 2),
    ]
    made.dispose()
