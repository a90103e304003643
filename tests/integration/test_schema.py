"""`common.store.schema` on a real database, and the constraints of the schema itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, insert, inspect, select, text, update
from sqlalchemy.exc import DataError, IntegrityError

from common.errors import ConfigurationError
from common.store import schema, tables
from common.store.connect import engine


@pytest.fixture
def empty(database_url: str) -> Iterator[Engine]:
    """A new database without any table."""
    made = engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def upgraded(empty: Engine) -> Engine:
    """A database with the schema."""
    schema.upgrade(empty, os_user="tester")
    return empty


def test_an_upgrade_makes_every_table_and_a_second_one_has_nothing_to_do(empty: Engine) -> None:
    assert schema.upgrade(empty, os_user="tester") == list(schema.REVISIONS)
    assert schema.upgrade(empty, os_user="tester") == []
    schema.check(empty)
    assert set(tables.metadata.tables) <= set(inspect(empty).get_table_names())
    with empty.connect() as db:
        assert db.scalars(select(tables.version.c.version)).all() == [schema.REVISION]


def test_of_two_upgrades_at_once_one_upgrades_and_the_other_finds_it_done(empty: Engine) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(schema.upgrade, empty, os_user="tester") for _ in range(2)]
        assert sorted(one.result() for one in both) == [[], list(schema.REVISIONS)]


def test_an_upgrade_that_fails_on_the_way_leaves_nothing_behind(empty: Engine) -> None:
    too_long_for_its_column = "u" * 65
    with pytest.raises(DataError):
        schema.upgrade(empty, os_user=too_long_for_its_column)
    assert inspect(empty).get_table_names() == []


def test_a_fresh_database_holds_what_typed_rows_refer_to_and_counts_on_from_there(
    empty: Engine,
) -> None:
    schema.upgrade(empty, os_user="tester")
    with empty.begin() as db:
        user = db.execute(select(tables.user)).one()
        assert (user.id, user.user_name, user.user_password) == (1, "admin", None)
        tenant = db.execute(select(tables.tenant)).one()
        assert (user.tenant_id, tenant.id, tenant.tenant_code) == (1, 1, "tester")
        assert db.scalars(select(tables.queue.c.queue)).all() == ["default"]
        assert db.scalars(select(tables.alertgroup.c.id)).all() == [1]
        assert db.scalars(select(tables.project.c.name)).all() == ["default"]
        next_tenant = insert(tables.tenant).values(tenant_code="second")
        assert db.scalar(next_tenant.returning(tables.tenant.c.id)) == 2


def test_a_database_without_the_schema_is_refused_with_the_cure(empty: Engine) -> None:
    with pytest.raises(schema.SchemaMismatchError, match="orcaflow db upgrade"):
        schema.check(empty)


def test_a_newer_schema_is_neither_used_nor_upgraded(empty: Engine) -> None:
    schema.upgrade(empty, os_user="tester")
    with empty.begin() as db:
        db.execute(text(f"UPDATE {schema.REVISION_TABLE} SET version_num = '9999'"))
        db.execute(update(tables.version).values(version="9999", oldest_code="9998"))
    for refuse in (schema.check, lambda e: schema.upgrade(e, os_user="tester")):
        with pytest.raises(schema.SchemaMismatchError, match=r"9999.*newer Orcaflow"):
            refuse(empty)


def test_a_newer_schema_that_this_code_works_with_is_used_and_not_upgraded(
    empty: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    schema.upgrade(empty, os_user="tester")
    with empty.begin() as db:
        db.execute(text(f"UPDATE {schema.REVISION_TABLE} SET version_num = '9999'"))
        db.execute(update(tables.version).values(version="9999", oldest_code=schema.REVISION))
    assert schema.check(empty) == "9999"
    assert not caplog.records
    schema.check_as_daemon(empty)
    assert "newer version" in caplog.text
    assert schema.upgrade(empty, os_user="tester") == []


def test_a_schema_names_the_oldest_code_that_works_with_it(empty: Engine) -> None:
    schema.upgrade(empty, os_user="tester")
    with empty.connect() as db:
        assert db.scalar(select(tables.version.c.oldest_code)) == schema.OLDEST_CODE
    assert schema.OLDEST_CODE in schema.REVISIONS


def test_tables_of_somebody_else_are_not_touched(empty: Engine) -> None:
    with empty.begin() as db:
        db.execute(text("CREATE TABLE t_ds_command (id int)"))
    with pytest.raises(ConfigurationError, match="a database of its own"):
        schema.upgrade(empty, os_user="tester")
    assert inspect(empty).get_table_names() == ["t_ds_command"]


def test_a_command_typed_by_hand_needs_four_columns(upgraded: Engine) -> None:
    with upgraded.connect() as db:
        row = db.execute(
            text(
                "INSERT INTO t_ds_command "
                "(command_type, process_definition_id, command_param, executor_id) "
                "VALUES (0, (SELECT id FROM t_ds_process_definition WHERE name = 'none such'), "
                "'{}', 1) RETURNING *, start_time = now() AND update_time = now() AS is_new"
            )
        ).one()
        db.rollback()
    assert row.process_definition_id is None
    assert (row.task_depend_type, row.failure_strategy, row.warning_type) == (2, 1, 0)
    assert (row.process_instance_priority, row.worker_group_id, row.warning_group_id) == (2, -1, 0)
    assert row.process_instance_id == 0
    assert row.is_new


def test_a_definition_typed_by_hand_needs_a_name_and_its_json(upgraded: Engine) -> None:
    with upgraded.connect() as db:
        row = db.execute(
            text(
                "INSERT INTO t_ds_process_definition (name, process_definition_json) "
                "VALUES ('typed', '{}') RETURNING *"
            )
        ).one()
        db.rollback()
    assert (row.version, row.release_state, row.project_id, row.user_id) == (1, 0, 1, 1)
    assert (row.flag, row.timeout, row.tenant_id, row.global_params) == (1, 0, -1, None)


_PROCESS = (
    "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state, command_type, "
    "process_instance_json, executor_id, end_time) VALUES "
)
_TASK = (
    "INSERT INTO t_ds_task_instance (process_definition_id, process_instance_id, task_type, "
    "task_json, name, state, flag, attempt, settled, host, worker_incarnation, end_time) VALUES "
    "(1, 900001, "
)
_ALLOWED = (
    f"{_PROCESS} (900001, 'p', 1, 1, 0, '{{}}', 1, NULL)",
    f"{_TASK} 'SHELL', '{{}}', 'a', 6, 0, 1, true, 'h', 7, now())",
    f"{_TASK} 'SHELL', '{{}}', 'a', 0, 1, 2, false, NULL, NULL, NULL)",
    f"{_TASK} 'SHELL', '{{}}', 'b', 1, 1, 1, false, 'h', 7, NULL)",
    "INSERT INTO t_ds_command (command_type, process_instance_id) VALUES (2, 900001)",
    "INSERT INTO t_ds_command (command_type) VALUES (0), (0)",
    # An unknown type is accepted all the same: a master reports the reason.
    "INSERT INTO t_ds_command (command_type) VALUES (99), (-70000), (NULL)",
    "INSERT INTO t_ds_command (command_type, process_instance_priority) VALUES (0, 5)",
    "INSERT INTO t_ds_command (command_type, failure_strategy) VALUES (0, NULL)",
    "INSERT INTO t_ds_process_definition (name) VALUES ('only one')",
    # A task that a master carries out itself has no worker.
    f"{_TASK} 'SUB_PROCESS', '{{}}', 'sub', 1, 1, 1, false, NULL, NULL, NULL)",
    f"{_TASK} 'DEPENDENT', '{{}}', 'dep', 1, 1, 1, false, NULL, NULL, NULL)",
    f"{_TASK} 'SHELL', '{{}}', 'held', 11, 1, 1, false, NULL, NULL, NULL)",
    f"{_TASK} 'SHELL', '{{}}', 'late', 12, 1, 1, false, NULL, NULL, NULL)",
    f"{_TASK} 'SHELL', '{{}}', 'forced', 13, 1, 1, true, 'h', 7, now())",
    f"{_PROCESS} (900003, 'in line', 1, 14, 0, '{{}}', 1, NULL)",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('db', 1)",
    (
        "INSERT INTO t_ds_task_group_queue (task_id, task_name, group_id) "
        "SELECT id, name, 1 FROM t_ds_task_instance WHERE name = 'held'"
    ),
)
_FORBIDDEN = (
    f"{_PROCESS} (900002, 'ended without an end', 1, 7, 0, '{{}}', 1, NULL)",
    f"{_PROCESS} (900002, 'unknown state', 1, 99, 0, '{{}}', 1, NULL)",
    f"{_PROCESS} (900002, '', 1, 1, 0, '{{}}', 1, NULL)",
    f"{_PROCESS} (900002, 'unknown command type', 1, 1, 77, '{{}}', 1, NULL)",
    "UPDATE t_ds_process_instance SET owner_epoch = -1",
    "UPDATE t_ds_process_instance SET wanted_state = 7",
    f"{_TASK} 'SHELL', '{{}}', 'a', 7, 0, 1, true, 'h', 7, now())",  # The same attempt twice.
    f"{_TASK} 'SHELL', '{{}}', 'a', 0, 1, 3, false, NULL, NULL, NULL)",  # A second valid attempt.
    f"{_TASK} 'SHELL', '{{}}', 'c', 1, 1, 1, false, NULL, NULL, NULL)",  # Running nowhere.
    f"{_TASK} 'SHELL', '{{}}', 'c', 1, 1, 1, false, 'h', NULL, NULL)",  # On no known incarnation.
    f"{_TASK} 'SHELL', '{{}}', 'c', 7, 1, 1, false, 'h', 7, NULL)",  # Finished without an end.
    f"{_TASK} 'SHELL', '{{}}', 'c', 0, 0, 1, false, NULL, NULL, NULL)",  # Superseded, yet waiting.
    f"{_TASK} 'SHELL', '{{}}', 'c', 0, 1, 1, true, NULL, NULL, NULL)",  # Settled, yet waiting.
    f"{_TASK} 'SHELL', '{{}}', 'c', 0, 1, 0, false, NULL, NULL, NULL)",  # An attempt before the first.
    f"{_TASK} 'SHELL', '{{}}', '', 0, 1, 1, false, NULL, NULL, NULL)",
    f"{_TASK} '', '{{}}', 'c', 0, 1, 1, false, NULL, NULL, NULL)",
    "UPDATE t_ds_task_instance SET wanted_state = 7",
    "UPDATE t_ds_task_instance SET process_instance_id = 900009",  # Of no process instance.
    "INSERT INTO t_ds_command (command_type, process_instance_id) VALUES (2, 900001)",
    "INSERT INTO t_ds_process_definition (name) VALUES ('only one')",
    "INSERT INTO t_ds_process_definition (name) VALUES ('')",
    "INSERT INTO t_ds_process_definition (name, release_state) VALUES ('x', 2)",
    "INSERT INTO t_ds_process_definition (name, execution_type) VALUES ('x', 4)",
    f"{_TASK} 'SHELL', '{{}}', 'c', 11, 1, 1, true, NULL, NULL, NULL)",  # Settled, yet held.
    f"{_TASK} 'SHELL', '{{}}', 'c', 12, 0, 1, false, NULL, NULL, NULL)",  # Superseded, yet held.
    "UPDATE t_ds_process_instance SET timeout_strategy = 3",
    "UPDATE t_ds_task_instance SET timeout_strategy = 3",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('db', 2)",  # A second one of that name.
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('none', 0)",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('absurd', 1000001)",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('', 1)",
    "UPDATE t_ds_task_group_queue SET weight = 0",
    "UPDATE t_ds_task_group_queue SET status = 3",
    (
        "INSERT INTO t_ds_task_group_queue (task_id, group_id) SELECT task_id, group_id "
        "FROM t_ds_task_group_queue"
    ),  # The same pool twice.
    "INSERT INTO t_ds_task_group_queue (task_id, group_id) VALUES (-1, 1)",  # Of no attempt.
)


def test_what_must_never_be_is_refused_whoever_writes_it(upgraded: Engine) -> None:
    accepted = []
    with upgraded.connect() as db:
        for statement in _ALLOWED:
            db.execute(text(statement))
        for statement in _FORBIDDEN:
            savepoint = db.begin_nested()
            try:
                db.execute(text(statement))
            except IntegrityError:
                savepoint.rollback()
            else:
                accepted.append(statement)
                savepoint.rollback()
        db.rollback()
    assert accepted == []


def test_the_attempts_of_a_deleted_process_instance_go_with_it(upgraded: Engine) -> None:
    with upgraded.connect() as db:
        for statement in _ALLOWED[:4]:
            db.execute(text(statement))
        db.execute(text("DELETE FROM t_ds_process_instance WHERE id = 900001"))
        left = db.execute(
            select(tables.task_instance.c.id).where(
                tables.task_instance.c.process_instance_id == 900001
            )
        ).all()
        db.rollback()
    assert left == []


def _recovery(upgraded: Engine, kind: int, param: str | None, **columns: int) -> int:
    with upgraded.begin() as db:
        named: int = db.scalars(
            insert(tables.command)
            .values(command_type=kind, command_param=param, **columns)
            .returning(tables.command.c.process_instance_id)
        ).one()
    return named


def test_t14_a_second_recovery_of_an_instance_is_refused_however_it_is_written(
    upgraded: Engine,
) -> None:
    for number, (kind, again) in enumerate(
        ((2, 11), (3, 3), (4, 3), (7, 3), (11, 2), (12, 3)), start=1
    ):
        assert _recovery(upgraded, kind, f'{{"ProcessInstanceId": {number}}}') == number
        with pytest.raises(IntegrityError):
            _recovery(upgraded, again, f'{{"other":1,"ProcessInstanceId" : "{number}"}}')
    assert _recovery(upgraded, 3, '{"ProcessInstanceId":13}') == 13
    # The two intents may wait beside a recovery, and a new run names no instance.
    assert _recovery(upgraded, 9, '{"ProcessInstanceId":13}') == 0
    assert _recovery(upgraded, 0, '{"ProcessInstanceId":13}') == 0
    # A restarted parent's request for its child is no recovery of the child by itself.
    param = '{"processInstanceId":13,"ProcessInstanceId":13}'
    for task_id in (1, 2):
        assert _recovery(upgraded, 4, param, parent_task_instance_id=task_id) == 0


_PARAMS = (
    (None, 0),
    ("", 0),
    ("no JSON", 0),
    ('{"ProcessInstanceId":0}', 0),
    ('{"ProcessInstanceId":-5}', 0),
    ('{"ProcessInstanceId":1.5}', 0),
    ('{"ProcessInstanceId":2147483648}', 0),
    ('{"ProcessInstanceId":99999999999999999999999}', 0),
    ('{"WaittingThreadInstanceId":"15"}', 15),
    ("{" * 200_000, 0),
)


def test_a_recovery_gets_in_whatever_it_says(upgraded: Engine) -> None:
    assert [_recovery(upgraded, 10, param) for param, _ in _PARAMS] == [
        named for _, named in _PARAMS
    ]
