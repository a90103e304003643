"""Claims by a worker in mode `single`, which checks only the grants of named objects."""

from __future__ import annotations

from common.model.grants import GrantKind
from common.store import tables as t
from common.store.worker.claims import WITHOUT_QUEUE
from common.store.worker.ports import TaskStore
from common.store.worker.tasks import PostgresTaskStore
from common.task_types import task_type_spec
from tests.builders import NOON
from tests.conformance.store_tables import (
    FOLDERS,
    WORKER,
    PostgresTables,
    a_definition,
    a_run,
    submit,
)


def claimed(tasks: TaskStore, ids: list[int]) -> dict[str, tuple[tuple[int, int], ...]]:
    """The names of the attempts that a claim wins, with the objects that they lack."""
    return {each.name: each.lacks for each in tasks.claim(WORKER, ids, folders=FOLDERS, now=NOON)}


def test_a_revoked_grant_holds_for_attempts_that_name_the_object(
    postgres_tables: PostgresTables,
) -> None:
    db = postgres_tables
    db.empty()
    tasks = PostgresTaskStore(db.engine, checks_creators=False)
    tenant = db.insert(t.tenant, tenant_code="etl")
    group = db.insert(t.worker_group, name="big")
    definition = a_definition(db)
    of_tenant = a_run(db, process_definition_id=definition, tenant_id=tenant)
    of_group = a_run(db, process_definition_id=definition, worker_group_id=group)
    plain = a_run(db, process_definition_id=definition)

    def submitted(number: int) -> list[int]:
        return [
            *submit(db, of_tenant, f"tenant{number}"),
            *submit(db, plain, f"plain{number}"),
            *submit(db, of_group, f"run{number}"),
            *submit(db, plain, f"task{number}", worker_group_id=group),
        ]

    assert claimed(tasks, submitted(1)) == {"tenant1": (), "plain1": (), "run1": (), "task1": ()}
    db.revoke(GrantKind.TENANT, tenant)
    db.revoke(GrantKind.WORKER_GROUP, group)
    # The first store has claimed such attempts before, and the second store has not.
    for number, store in (
        (2, tasks),
        (3, PostgresTaskStore(db.engine, checks_creators=False)),
    ):
        assert claimed(store, submitted(number)) == {
            f"tenant{number}": ((GrantKind.TENANT, tenant),),
            f"plain{number}": (),
            f"run{number}": ((GrantKind.WORKER_GROUP, group),),
            f"task{number}": ((GrantKind.WORKER_GROUP, group),),
        }


def test_the_tenant_of_the_creator_is_checked_only_where_tasks_run_as_tenants(
    postgres_tables: PostgresTables,
) -> None:
    db = postgres_tables
    db.empty()
    db.revoke(GrantKind.TENANT, 1)
    owned = a_run(db, process_definition_id=a_definition(db))
    for name, checks, lacks in (
        ("a", False, ()),
        ("b", True, ((GrantKind.TENANT, 1),)),
    ):
        tasks = PostgresTaskStore(db.engine, checks_creators=checks)
        assert claimed(tasks, list(submit(db, owned, name))) == {name: lacks}


def test_an_attempt_of_a_cluster_with_queues_gets_the_queue_of_its_run(
    postgres_tables: PostgresTables,
) -> None:
    db = postgres_tables
    db.empty()
    owned = a_run(db, process_definition_id=a_definition(db))
    tasks = PostgresTaskStore(db.engine, checks_creators=False)
    submitted = {name: submit(db, owned, name, task_type=name)[0] for name in ("SHELL", "SPARK")}
    found = tasks.claim(WORKER, list(submitted.values()), folders=FOLDERS, now=NOON)
    assert {each.task_type for each in found} == set(submitted)
    assert next(each.queue for each in found if each.task_type == "SPARK") == "default"


def test_a_type_that_is_claimed_without_a_queue_has_no_key_for_one() -> None:
    of_queues = {
        name: any(key.name == "queue" for key in task_type_spec(name).keys)
        for name in ("SPARK", *WITHOUT_QUEUE)
    }
    assert of_queues == {"SPARK": True, **dict.fromkeys(WITHOUT_QUEUE, False)}
