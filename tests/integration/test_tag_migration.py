"""Revision 0040 gives each database a key for the seals in tags of Spark applications."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlalchemy import text

from common.store import schema
from common.store.cluster import cluster_identity
from common.store.connect import engine
from tests.integration.former_databases import bring_to


def test_attempts_of_before_may_have_tags_without_a_seal(new_database: Callable[..., str]) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0025")
        db.execute(
            text(
                "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                " start_time, command_type, command_param, process_instance_json, executor_id)"
                " VALUES (7, 'nightly', 3, 1, now(), 0, '{}', '{}', 1)"
            )
        )
        db.execute(
            text(
                "INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id,"
                " process_instance_id, task_json, state) VALUES (9, 'load', 'SPARK', 3, 7, '{}', 0)"
            )
        )
    schema.upgrade(made, os_user="tester")
    found = cluster_identity(made)
    assert re.fullmatch("[0-9a-f]{64}", found.tag_key)
    assert found.unsealed_until == 9
    made.dispose()


def test_databases_have_keys_of_their_own(new_database: Callable[..., str]) -> None:
    keys = set()
    for _ in range(2):
        made = engine(new_database())
        schema.upgrade(made, os_user="tester")
        found = cluster_identity(made)
        assert found.unsealed_until == 0
        keys.add(found.tag_key)
        made.dispose()
    assert len(keys) == 2
