"""The migration that creates a share for each reference between projects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import select, text

from common.model.reach import ShareKind
from common.model.rights import DATABASE
from common.store import schema, tables
from common.store.connect import engine
from common.store.people.shares import shares_of
from tests.builders import NOON
from tests.integration.former_databases import bring_to


def test_references_between_projects_of_before_get_their_shares(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())

    def stored(*tasks: dict[str, Any]) -> str:
        return json.dumps({"tasks": list(tasks)})

    def child(**params: Any) -> dict[str, Any]:
        return {"name": "c", "type": "SUB_PROCESS", "params": params}

    def waits(**item: Any) -> dict[str, Any]:
        # DolphinScheduler stores parts of a node as JSON text.
        group = {"dependItemList": [item]}
        return {
            "name": "w",
            "type": "DEPENDENT",
            "dependence": json.dumps({"dependTaskList": [group]}),
        }

    definitions = [
        (10, 1, "load", stored()),
        (11, 1, "raw", stored()),
        (12, 1, "clean", stored()),
        (13, 1, "unused", stored()),
        (14, 1, "live", stored()),
        (20, 2, "clean", stored()),
        (21, 2, "ids", stored(child(processDefinitionId=10), waits(definitionId="11"))),
        (22, 2, "names", stored(child(processDefinitionName="clean"), waits(definitionName="raw"))),
        (23, 2, "own", stored(child(processDefinitionId=20), waits(definitionId=99))),
        (24, 2, "broken", '{"tasks": [{"type": "SUB_PROCESS", "params": {'),
        (30, 3, "third", stored(waits(definitionName="clean"))),
        (40, 77, "homeless", stored(child(processDefinitionId=13))),
    ]
    with made.begin() as db:
        bring_to(db, "0025")
        db.execute(text("INSERT INTO t_ds_project (id, name) VALUES (2, 'two'), (3, 'three')"))
        for number, project, name, document in definitions:
            db.execute(
                text(
                    "INSERT INTO t_ds_process_definition (id, project_id, name,"
                    " process_definition_json) VALUES (:id, :project, :name, :document)"
                ),
                {"id": number, "project": project, "name": name, "document": document},
            )
        for run_id, end, document in (
            (7, None, stored(child(processDefinitionId=14))),
            (8, NOON, stored(child(processDefinitionId=13))),
        ):
            db.execute(
                text(
                    "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                    " start_time, end_time, command_type, process_instance_json, executor_id)"
                    " VALUES (:id, 'ids-1', 21, 1, :now, :end, 0, :document, 1)"
                ),
                {"id": run_id, "now": NOON, "end": end, "document": document},
            )
    schema.upgrade(made, os_user="tester")
    with made.connect() as db:
        found = db.execute(
            select(tables.share.c.object_id, tables.share.c.project_id, tables.share.c.user_id)
        )
        # References by id, by name, and of live runs. A name that the project lacks means the
        # cluster's first definition of that name.
        assert sorted(tuple(each) for each in found) == [
            (10, 2, 0),
            (11, 2, 0),
            (12, 3, 0),
            (14, 2, 0),
        ]
        assert shares_of(db, DATABASE, ShareKind.DEFINITION, 10)[0].project_name == "two"
    made.dispose()
