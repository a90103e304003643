"""The reading role sees views without secrets, and can neither change nor block anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest
from psycopg2 import extensions
from sqlalchemy import create_engine, make_url, text

from common.embedded.addresses import READER, SUPERUSER, PostgresAddress
from common.masking import is_secret
from common.store import schema
from common.store.connect import answer_of, engine
from common.store.database_check import DatabaseUnfitError, refuse_unfit
from common.store.master.notify_queue import NotifyQueue
from common.store.reading import SCHEMA, allow_reading, columns_seen, reading_statements
from common.store.tables import metadata
from tests.conftest import Databases

PARAMETERS = {
    "assignment", "body", "code", "command_param", "config", "connection_params", "connects",
    "content", "document", "evidence", "files", "global_params", "graph", "input_pool",
    "locations", "orders", "process_definition_json", "process_instance_json", "receivers",
    "receivers_cc", "recent_errors", "report", "spec", "start_params", "status", "tail",
    "task_json", "var_pool", "wanted",
}  # fmt: skip
"""Columns that may hold parameter values, scripts or addresses of people, in any table."""
HIDDEN = (
    "t_ds_access_token",
    "t_ds_audit_log",
    "t_ds_definition_draft_save",
    "t_ds_login_failure",
    "t_ds_session",
    "t_ds_user_identity",
)
"""Tables that the role cannot see at all."""
NUMBERS = {"t_ds_process_definition.code", "t_ds_project.code", "t_ds_environment.code",
           "t_ds_task_group.status", "t_ds_task_group_queue.status"}  # fmt: skip
"""Columns of `PARAMETERS` that are numbers in these tables."""


REFUSED = (
    "CREATE TABLE theirs (id int)",
    f"CREATE TABLE {SCHEMA}.theirs (id int)",
    f"CREATE FUNCTION {SCHEMA}.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA theirs",
    "INSERT INTO t_ds_command (command_type) VALUES (0)",
    "UPDATE t_ds_process_instance SET state = 7",
    "DELETE FROM t_ds_process_instance",
    "TRUNCATE public.t_ds_process_instance",
    "SELECT 1 FROM t_ds_process_instance FOR UPDATE",
    "DO $$ BEGIN LOCK TABLE t_ds_process_instance IN ACCESS EXCLUSIVE MODE; END $$",
    f"DROP VIEW {SCHEMA}.t_ds_process_instance",
    f"ALTER VIEW {SCHEMA}.t_ds_process_instance RESET (security_barrier)",
    f"CREATE OR REPLACE VIEW {SCHEMA}.t_ds_project AS SELECT 1 AS id",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_stat_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_ls_logdir()",
    "SELECT current_setting('data_directory')",
    "SELECT * FROM pg_hba_file_rules",
    "COPY (SELECT 1) TO '/tmp/orcaflow-copied'",
    "COPY (SELECT 1) TO PROGRAM 'cat'",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_creat(-1)",
    "SELECT rolpassword FROM pg_authid",
    "SELECT passwd FROM pg_shadow",
    "SELECT stavalues1 FROM pg_statistic",
    "SELECT pg_reload_conf()",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_xact_lock_shared(1, 2)",
    "SELECT pg_logical_emit_message(false, 'x', 'y')",
    "SELECT pg_create_physical_replication_slot('theirs')",
    "SET temp_file_limit = -1",
    "SET log_statement = 'all'",
    "SET ROLE orcaflow",
    "SET SESSION AUTHORIZATION orcaflow",
    "ALTER ROLE orcaflow_reader CONNECTION LIMIT -1",
    "ALTER ROLE orcaflow PASSWORD 'x'",
    "GRANT SELECT ON public.t_ds_session TO orcaflow_reader",
)


@pytest.fixture
def reader_dsn(migrated_url: str, postgres: PostgresAddress) -> str:
    name = make_url(migrated_url).database or ""
    return replace(postgres.seen_by(READER), dbname=name).dsn


@pytest.fixture
def reader(reader_dsn: str) -> Iterator[extensions.connection]:
    """Yield a session of the role after it has lifted the limits that it can change."""
    with closing(psycopg2.connect(reader_dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute("SET statement_timeout = '30s'")
        yield connection


def test_the_views_list_no_column_that_may_hold_a_secret() -> None:
    shown = {
        f"{each.name}.{name}" for each in metadata.sorted_tables for name in columns_seen(each)
    }
    assert {each for each in shown if each.partition(".")[2] in PARAMETERS} <= NUMBERS
    assert not [each for each in shown if is_secret(each.partition(".")[2])]
    assert not [each for each in shown if each.partition(".")[0] in HIDDEN]


def test_the_reader_sees_the_views_by_the_names_of_the_tables(
    reader: extensions.connection,
) -> None:
    with reader.cursor() as cursor:
        for table in metadata.sorted_tables:
            if columns_seen(table):
                cursor.execute(f"SELECT * FROM {table.name}")  # From the metadata.
                found = tuple(each[0] for each in cursor.description or ())
                assert found == columns_seen(table), table.name
        cursor.execute(
            "SELECT count(*), min(d.name) FROM t_ds_process_instance i"
            " JOIN t_ds_process_definition d ON d.id = i.process_definition_id"
            " JOIN t_ds_task_instance t ON t.process_instance_id = i.id WHERE i.state = 7"
        )
        assert cursor.fetchone() == (0, None)


def test_the_reader_has_no_right_on_a_table(reader: extensions.connection) -> None:
    with reader.cursor() as cursor:
        for table in metadata.sorted_tables:
            name = f"public.{table.name}"
            for statement in (
                f"SELECT 1 FROM {name}",
                *(f'SELECT "{each.name}" FROM {name}' for each in table.columns),
                f"INSERT INTO {name} DEFAULT VALUES",
                f"DELETE FROM {name}",
                f"DO $$ BEGIN LOCK TABLE {name} IN ACCESS SHARE MODE; END $$",
            ):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)


def test_the_reader_is_refused_whatever_it_tries(reader: extensions.connection) -> None:
    with reader.cursor() as cursor:
        for statement in REFUSED:
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(statement)


def test_the_reader_sees_no_statement_and_no_statistic_of_others(
    reader: extensions.connection, migrated_url: str
) -> None:
    owner = create_engine(migrated_url)
    with owner.connect() as db, reader.cursor() as cursor:
        db.execute(text("SELECT 'planted in a statement'"))
        cursor.execute("SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert {each for (each,) in cursor.fetchall()} <= {"<insufficient privilege>", ""}
        db.execute(text("ANALYZE t_ds_user"))
        cursor.execute("SELECT count(*) FROM pg_stats WHERE tablename LIKE 't_ds_%'")
        assert cursor.fetchone() == (0,)
    owner.dispose()


def test_a_text_that_may_hold_a_secret_is_hidden_as_a_whole(
    reader: extensions.connection, migrated_url: str
) -> None:
    owner = create_engine(migrated_url)
    with owner.begin() as db:
        for reason in (
            "could not connect to postgresql://etl:planted@db/sales",
            "the driver says: Password=planted is wrong",
            "exit code 3",
        ):
            db.execute(
                text(
                    "INSERT INTO t_ds_command_ledger (command_id, outcome, reason)"
                    " VALUES (1, 3, :reason)"
                ),
                {"reason": reason},
            )
    with reader.cursor() as cursor:
        cursor.execute("SELECT reason FROM t_ds_command_ledger ORDER BY id")
        assert [each for (each,) in cursor.fetchall()] == ["******", "******", "exit code 3"]
    owner.dispose()


def test_rights_of_a_former_version_are_taken_away_by_an_upgrade(
    reader: extensions.connection, migrated_url: str
) -> None:
    owner = create_engine(migrated_url)
    with owner.begin() as db:
        db.execute(text(f"DROP SCHEMA {SCHEMA} CASCADE"))
        db.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}"))
        db.execute(text(f"GRANT SELECT (token) ON t_ds_access_token TO {READER}"))
    assert schema.upgrade(owner, os_user="tester") == []
    with reader.cursor() as cursor:
        cursor.execute("SELECT id FROM t_ds_process_instance")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("SELECT token FROM public.t_ds_access_token")
    owner.dispose()


def test_the_sql_for_a_server_of_ones_own_may_be_run_twice(migrated_url: str) -> None:
    owner = create_engine(migrated_url)
    name = make_url(migrated_url).database or ""
    with owner.begin() as db:
        for _ in range(2):
            for statement in reading_statements(database=name, schema="public"):
                db.exec_driver_sql(statement.replace("%", "%%"))
        assert allow_reading(db)
    owner.dispose()


def test_an_owner_who_may_not_create_a_schema_upgrades_without_the_views(
    migrated_url: str, databases: Databases, postgres: PostgresAddress
) -> None:
    name = make_url(migrated_url).database or ""
    owner = create_engine(migrated_url)
    with owner.begin() as db:
        db.execute(text(f"DROP SCHEMA {SCHEMA} CASCADE"))
        db.execute(text(f'REVOKE CREATE ON DATABASE "{name}" FROM orcaflow'))
        assert not allow_reading(db)
    owner.dispose()


def _use_until_ended(session: extensions.connection) -> None:
    while True:
        session.cursor().execute("SELECT 1")


def test_x91_a_reader_can_not_fill_the_queue_of_notifications(
    reader: extensions.connection, reader_dsn: str, migrated_url: str
) -> None:
    """The reader listens, stays in a transaction and notifies, so its notifications stay too."""
    probe = engine(migrated_url, pool_size=1, by_statement=True)
    few = 64 / 1_048_576
    with closing(psycopg2.connect(reader_dsn)) as writer:
        writer.autocommit = True
        with reader.cursor() as listens, writer.cursor() as notifies:
            listens.execute("LISTEN idle")
            listens.execute("BEGIN")
            notifies.execute("SET default_transaction_read_only = off")
            notifies.execute(
                "SELECT count(pg_notify('idle', repeat('x', 7000) || number))"
                " FROM generate_series(1, 200) number"
            )
        NotifyQueue(probe, most_usage=1.0).shorten()
        assert reader.closed == 0
        assert answer_of(probe, "SELECT pg_notification_queue_usage()") > few
        NotifyQueue(probe, most_usage=few).shorten()
    with pytest.raises(psycopg2.OperationalError):
        _use_until_ended(reader)
    probe.dispose()


def test_a_revoked_right_to_query_the_queue_is_logged_with_its_cure_and_refused_at_a_start(
    migrated_url: str, postgres: PostgresAddress, caplog: pytest.LogCaptureFixture
) -> None:
    probe = engine(migrated_url, pool_size=1, by_statement=True)
    queue = NotifyQueue(probe)
    right = "EXECUTE ON FUNCTION pg_notification_queue_usage()"
    dsn = replace(postgres.seen_by(SUPERUSER), dbname=make_url(migrated_url).database or "").dsn
    with closing(psycopg2.connect(dsn)) as administrator, administrator.cursor() as cursor:
        administrator.autocommit = True
        cursor.execute(f"REVOKE {right} FROM PUBLIC")
        try:
            for _ in range(2):
                queue.shorten()
            with pytest.raises(DatabaseUnfitError, match=r"pg_notification_queue_usage\(\)"):
                refuse_unfit(probe)
        finally:
            cursor.execute(f"GRANT {right} TO PUBLIC")
    (line,) = caplog.records
    assert line.__dict__["cure"] == f"GRANT {right} TO PUBLIC"
    queue.shorten()
    refuse_unfit(probe)
    probe.dispose()
