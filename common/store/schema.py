"""Brings a database to the schema of this code, checks its revision, and prints the schema.

Adds the word *revision*: the number of a migration in `sql/migrations/versions`; the last of
`REVISIONS` is that of this code. Daemons call `check` and refuse to start on another, except on a
newer one that says that their code works with it (`OLDEST_CODE`), so that daemons of two versions
run beside each other during an upgrade. Only `orcaflow db upgrade` changes a schema. Never
downgrades, and never touches a database whose tables it has not made itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy import (
    Connection,
    Engine,
    String,
    Table,
    column,
    delete,
    insert,
    select,
    table,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from common.errors import ConfigurationError, SchedulerError
from common.model.command_param import ParamKey
from common.model.commands import RESTARTING_COMMANDS, CommandType
from common.model.grants import GrantKind
from common.model.states import FINISHED_TASK_CODES, TERMINAL_PROCESS_CODES
from common.store import tables
from common.store.reading import allow_reading, drop_views
from common.store.tables.columns import among

log = logging.getLogger(__name__)

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 42))
REVISION: Final = REVISIONS[-1]
OLDEST_CODE: Final = "0004"
"""The revision of the oldest code whose daemons may run on the schema of this one."""
REVISION_TABLE: Final = "t_ds_schema_revision"

# Any number will do that nobody else takes; it is held until the upgrade commits.
_UPGRADE_LOCK: Final = 0x0CAF_1035
# Whoever waits for a lock on a table keeps everybody else from that table meanwhile.
_LOCK_WAIT: Final = timedelta(seconds=1)
_PATIENCE: Final = timedelta(seconds=60)

_RECOVERIES: Final = ", ".join(
    str(int(kind))
    for kind in sorted(
        (
            *RESTARTING_COMMANDS,
            CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
            CommandType.RECOVER_WAITTING_THREAD,
            CommandType.RECOVER_SERIAL_WAIT,
        )
    )
)
_INSTANCE_KEYS: Final = f"{ParamKey.PROCESS_INSTANCE_ID}|{ParamKey.WAITING_INSTANCE_ID}"

# The payloads are documented in `common.store.listen`. An attempt that its owner ends and settles
# by the same statement is no news to anybody. Row-level triggers are the cheaper ones here: their
# WHEN keeps every other UPDATE of these busy tables free of charge, which a statement-level trigger
# with transition tables can't.
TRIGGERS: Final = (
    """\
CREATE FUNCTION orcaflow_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], '');
    RETURN NULL;
END $$""",
    """\
CREATE FUNCTION orcaflow_notify_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], NEW.id::text);
    RETURN NULL;
END $$""",
    """\
CREATE FUNCTION orcaflow_notify_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], json_build_array(
        NEW.process_instance_id, NEW.id, NEW.attempt, NEW.state,
        extract(epoch FROM NEW.end_time), NEW.name, NEW.var_pool IS NOT NULL,
        NEW.failure_reason)::text);
    RETURN NULL;
END $$""",
    # Nothing that anybody writes into `command_param` makes this fail: the row has to get in, so
    # that a master can say what is wrong with it.
    rf"""CREATE FUNCTION orcaflow_name_recovered() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named bigint := substring(left(NEW.command_param, 100000) FROM
        '"(?:{_INSTANCE_KEYS})"\s*:\s*"?\s*([0-9]{{1,10}})(?![0-9.eE])');
BEGIN
    IF named BETWEEN 1 AND 2147483647 THEN
        NEW.process_instance_id := named;
    END IF;
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_command_inserted
    AFTER INSERT ON t_ds_command
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_notify('orcaflow_command')""",
    f"""\
CREATE TRIGGER orcaflow_command_names_recovered
    BEFORE INSERT ON t_ds_command
    FOR EACH ROW
    WHEN (NEW.process_instance_id = 0 AND NEW.parent_task_instance_id = 0
        AND NEW.command_type IN ({_RECOVERIES}))
    EXECUTE FUNCTION orcaflow_name_recovered()""",
    # A child belongs to the project at the top of its tree, or to the project of the run that wants
    # it if the top was deleted. PostgreSQL runs this trigger after the one above, by the order of
    # their names. A role that may only insert gets project 0.
    """\
CREATE FUNCTION orcaflow_find_project() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run integer := NULLIF(NEW.process_instance_id, 0);
BEGIN
    NEW.project_id := 0;
    IF NEW.parent_task_instance_id <> 0 THEN
        run := (SELECT process_instance_id FROM t_ds_task_instance
            WHERE id = NEW.parent_task_instance_id);
    END IF;
    IF run IS NOT NULL THEN
        NEW.project_id := COALESCE((
            SELECT d.project_id FROM t_ds_process_instance i
            JOIN t_ds_process_instance root
                ON root.id = CASE i.root_id WHEN 0 THEN i.id ELSE i.root_id END
            JOIN t_ds_process_definition d ON d.id = root.process_definition_id
            WHERE i.id = run), (
            SELECT d.project_id FROM t_ds_process_instance i
            JOIN t_ds_process_definition d ON d.id = i.process_definition_id
            WHERE i.id = run), 0);
    END IF;
    IF NEW.project_id = 0 THEN
        NEW.project_id := COALESCE((
            SELECT d.project_id FROM t_ds_process_definition d
            WHERE d.id = NEW.process_definition_id), 0);
    END IF;
    RETURN NEW;
EXCEPTION WHEN insufficient_privilege THEN
    NEW.project_id := 0;
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_command_of_project
    BEFORE INSERT ON t_ds_command
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_find_project()""",
    """\
CREATE TRIGGER orcaflow_definition_released
    AFTER UPDATE OF release_state ON t_ds_process_definition
    FOR EACH ROW
    WHEN (NEW.release_state = 1 AND OLD.release_state <> 1)
    EXECUTE FUNCTION orcaflow_notify('orcaflow_command')""",
    f"""\
CREATE TRIGGER orcaflow_task_finished
    AFTER UPDATE OF state ON t_ds_task_instance
    FOR EACH ROW
    WHEN (NEW.state {among(FINISHED_TASK_CODES)} AND NEW.state <> OLD.state AND NOT NEW.settled)
    EXECUTE FUNCTION orcaflow_notify_task('orcaflow_task')""",
    """\
CREATE TRIGGER orcaflow_process_wanted
    AFTER UPDATE OF wanted_state ON t_ds_process_instance
    FOR EACH ROW
    WHEN (NEW.wanted_state IS NOT NULL AND NEW.wanted_state IS DISTINCT FROM OLD.wanted_state)
    EXECUTE FUNCTION orcaflow_notify_id('orcaflow_wanted')""",
    f"""\
CREATE TRIGGER orcaflow_process_ended
    AFTER UPDATE OF state ON t_ds_process_instance
    FOR EACH ROW
    WHEN (NEW.state {among(TERMINAL_PROCESS_CODES)} AND NEW.state <> OLD.state)
    EXECUTE FUNCTION orcaflow_notify_id('orcaflow_process')""",
    # A schedule that comes online, or whose fires become others, is counted from now on. If only
    # its window changes, what was due before stays due.
    """\
CREATE FUNCTION orcaflow_count_fires() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.counted_from := now();
    IF OLD.release_state = 1 AND
        (NEW.crontab, NEW.timezone_id, NEW.missing_time, NEW.repeated_time,
            NEW.process_definition_id) IS NOT DISTINCT FROM
        (OLD.crontab, OLD.timezone_id, OLD.missing_time, OLD.repeated_time,
            OLD.process_definition_id) THEN
        NEW.counted_from :=
            LEAST(now(), OLD.counted_from, OLD.next_fire_time - INTERVAL '1 second');
    END IF;
    NEW.next_fire_time := NULL;
    NEW.fault := NULL;
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_schedule_changed
    BEFORE UPDATE OF crontab, timezone_id, missing_time, repeated_time, start_time, end_time,
        release_state, process_definition_id ON t_ds_schedules
    FOR EACH ROW
    WHEN ((NEW.release_state = 1 AND OLD.release_state <> 1)
        OR NEW.process_definition_id <> OLD.process_definition_id
        OR (NEW.crontab, NEW.timezone_id, NEW.missing_time, NEW.repeated_time, NEW.start_time,
            NEW.end_time) IS DISTINCT FROM (OLD.crontab, OLD.timezone_id, OLD.missing_time,
            OLD.repeated_time, OLD.start_time, OLD.end_time))
    EXECUTE FUNCTION orcaflow_count_fires()""",
    # Its `start_params` may be its fault too; when they are corrected, it goes on where it was.
    """\
CREATE FUNCTION orcaflow_forget_fault() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.fault := NULL;
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_schedule_mended
    BEFORE UPDATE OF start_params ON t_ds_schedules
    FOR EACH ROW
    WHEN (NEW.start_params IS DISTINCT FROM OLD.start_params)
    EXECUTE FUNCTION orcaflow_forget_fault()""",
    """\
CREATE TRIGGER orcaflow_schedule_came
    AFTER INSERT OR UPDATE OF release_state, crontab, timezone_id, missing_time, repeated_time,
        start_time, end_time, start_params, process_definition_id ON t_ds_schedules
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_notify('orcaflow_schedule')""",
    """\
CREATE TRIGGER orcaflow_complement_came
    AFTER INSERT OR UPDATE OF state ON t_ds_complement
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_notify('orcaflow_complement')""",
    """\
CREATE TRIGGER orcaflow_pool_resized
    AFTER UPDATE OF group_size ON t_ds_task_group
    FOR EACH ROW
    WHEN (NEW.group_size <> OLD.group_size)
    EXECUTE FUNCTION orcaflow_notify('orcaflow_hold')""",
    """\
CREATE TRIGGER orcaflow_worker_mode_changed
    AFTER INSERT OR UPDATE OR DELETE ON t_ds_worker_mode
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_notify('orcaflow_worker')""",
    # Whoever writes offsets, of whatever version, says when. Equal notifications of a transaction
    # are delivered once, so that a publication of many partitions is one.
    """\
CREATE FUNCTION orcaflow_offsets_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.update_time := now();
    PERFORM pg_notify('orcaflow_dataset', NEW.dataset);
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_dataset_published
    BEFORE INSERT OR UPDATE ON t_ds_dataset_offsets
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_offsets_moved()""",
    """\
CREATE TRIGGER orcaflow_dataset_topic_published
    BEFORE INSERT OR UPDATE ON t_ds_dataset_topic_offsets
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_offsets_moved()""",
    """\
CREATE FUNCTION orcaflow_notify_supervisor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], NEW.supervisor);
    RETURN NULL;
END $$""",
    """\
CREATE TRIGGER orcaflow_stream_task_came
    AFTER INSERT ON t_ds_stream_task
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_notify_supervisor('orcaflow_dataset')""",
    # Rows that are written without a code, by hand too, have their id as one, also if that changes.
    """\
CREATE FUNCTION orcaflow_own_code() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.code := NEW.id;
    RETURN NEW;
END $$""",
    """\
CREATE TRIGGER orcaflow_definition_coded
    BEFORE INSERT ON t_ds_process_definition
    FOR EACH ROW
    WHEN (NEW.code IS NULL)
    EXECUTE FUNCTION orcaflow_own_code()""",
    """\
CREATE TRIGGER orcaflow_definition_renumbered
    BEFORE UPDATE OF id ON t_ds_process_definition
    FOR EACH ROW
    WHEN (NEW.id <> OLD.id AND NEW.code = OLD.id)
    EXECUTE FUNCTION orcaflow_own_code()""",
    """\
CREATE TRIGGER orcaflow_project_coded
    BEFORE INSERT ON t_ds_project
    FOR EACH ROW
    WHEN (NEW.code IS NULL)
    EXECUTE FUNCTION orcaflow_own_code()""",
    """\
CREATE TRIGGER orcaflow_environment_coded
    BEFORE INSERT ON t_ds_environment
    FOR EACH ROW
    WHEN (NEW.code IS NULL)
    EXECUTE FUNCTION orcaflow_own_code()""",
    # A trigger, so that grants are deleted with their object in any case: a later object with the
    # same number must not inherit them.
    """\
CREATE FUNCTION orcaflow_revoke_grants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM t_ds_grant
        WHERE object_type = TG_ARGV[0]::smallint
        AND object_id = (to_jsonb(OLD) ->> TG_ARGV[1])::bigint;
    RETURN NULL;
END $$""",
    *(
        f"""\
CREATE TRIGGER orcaflow_grants_revoked
    AFTER DELETE ON {name}
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_revoke_grants('{kind:d}', '{key}')"""
        for kind, name, key in (
            (GrantKind.TENANT, "t_ds_tenant", "id"),
            (GrantKind.DATASOURCE, "t_ds_datasource", "id"),
            (GrantKind.ENVIRONMENT, "t_ds_environment", "code"),
            (GrantKind.POOL, "t_ds_task_group", "id"),
            (GrantKind.WORKER_GROUP, "t_ds_worker_group", "id"),
        )
    ),
    # Only retention may delete, and says so in its transaction; nobody corrects a line.
    """\
CREATE FUNCTION orcaflow_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('orcaflow.retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = 't_ds_audit_log is only added to: ' || TG_OP || ' is refused';
END $$""",
    """\
CREATE TRIGGER orcaflow_audit_kept
    BEFORE UPDATE OR DELETE OR TRUNCATE ON t_ds_audit_log
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_keep_audit()""",
)


class SchemaMismatchError(ConfigurationError):
    """The database has another schema than this code. Its text says which, and what to do."""

    def __init__(self, *, found: str | None, cure: str) -> None:
        has = f"has schema revision {found}" if found else "has no Orcaflow schema"
        super().__init__(f"the database {has}, this Orcaflow needs revision {REVISION}: {cure}")
        self.found = found


class SchemaBusyError(SchedulerError):
    """The tables were in use for too long to be changed. Nothing has been changed; try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRules:
    """The settings that decided the dates of runs before revision 0031 stored them."""

    complement_uses_chosen_date: bool = True
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))


def upgrade(
    engine: Engine,
    *,
    os_user: str,
    patience: timedelta = _PATIENCE,
    pause: Callable[[float], object] = sleep,
    former: Callable[[], FormerRules] = FormerRules,
) -> list[str]:
    """Apply what is missing, all of it or nothing; returns the revisions applied, none if current.

    `os_user` becomes the first tenant's code when the schema is new: the account that runs the
    tasks of a fresh installation. `former` returns the rules of dates for existing rows. Two
    simultaneous upgrades are safe: the second waits and changes nothing. Raises `SchemaBusyError`
    if a table stays in use for `patience`; the upgrade waits one second at a time, so daemons
    continue.
    Raises `DatabaseUnfitError` for a database that Orcaflow can't use.
    """
    tries = max(1, patience // _LOCK_WAIT)
    for left in reversed(range(tries)):
        try:
            return _upgrade(engine, os_user, former)
        except DBAPIError as error:
            # Imported here, because it imports metrics, and few upgrades find a table in use.
            from common.store.transaction import LOCK_NOT_AVAILABLE, refusal

            if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
                raise
            if not left:
                raise SchemaBusyError(
                    "the schema could not be upgraded, since somebody holds a lock on one of its"
                    f" tables ({refusal(error)}); look for long transactions in pg_stat_activity,"
                    " end them, and run `orcaflow db upgrade` again"
                ) from error
        pause(_LOCK_WAIT.total_seconds())
    raise AssertionError("the last try has returned or raised")


def _upgrade(engine: Engine, os_user: str, former: Callable[[], FormerRules]) -> list[str]:
    if not os_user:
        raise ConfigurationError("the operating-system user for the first tenant is not known")
    with engine.connect() as db:
        is_current = revision(db) == REVISION
    if not is_current:
        # Imported here, because most commands only compare the revision.
        from common.store.database_check import refuse_unfit

        refuse_unfit(engine, upgrading=True)
    with engine.begin() as db:
        # The limits of the pool suit short statements; a migration may rightly take its time.
        db.execute(text("SET LOCAL lock_timeout = '60s'"))
        db.execute(text("SET LOCAL statement_timeout = 0"))
        db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        db.execute(text(f"SET LOCAL lock_timeout = {_LOCK_WAIT // timedelta(milliseconds=1)}"))
        # The backend caches that a table does not exist, and drops that only when it locks a table:
        # another upgrade may have created ours while this one waited.
        db.execute(text("SELECT 1 FROM pg_class LIMIT 1"))
        found = revision(db)
        if found == REVISION:
            # The role may be newer than the schema, or the views may be older than this code.
            allow_reading(db)
            return []
        if found is None:
            _refuse_foreign_tables(db)
        elif found not in REVISIONS:
            if _works_with_newer(db):
                return []
            raise _newer(found)
        # Here, because a start that finds nothing to do shouldn't pay for importing Alembic.
        from alembic import command as alembic
        from alembic.config import Config

        config = Config()
        # The Alembic options are read by configparser, to which a percent sign is special.
        config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
        config.attributes["connection"] = db
        config.attributes["os_user"] = os_user
        rules = former()
        config.attributes["complement_uses_chosen_date"] = rules.complement_uses_chosen_date
        config.attributes["time_zone"] = rules.zone
        drop_views(db)
        alembic.upgrade(config, REVISION)
        db.execute(delete(tables.version))
        db.execute(insert(tables.version).values(version=REVISION, oldest_code=OLDEST_CODE))
        allow_reading(db)
    applied_before = 0 if found is None else REVISIONS.index(found) + 1
    return list(REVISIONS[applied_before:])


def check(engine: Engine) -> str:
    """Return the revision of the database if this code works with it; otherwise say what to do."""
    with engine.connect() as db:
        found = revision(db)
        is_newer = found is not None and found not in REVISIONS
        works = _works_with_newer(db) if is_newer else found == REVISION
    if found is None or (not is_newer and not works):
        raise SchemaMismatchError(found=found, cure="run `orcaflow db upgrade`")
    if not works:
        raise _newer(found)
    return found


def check_as_daemon(engine: Engine) -> None:
    """Check the database at the start of a daemon, and log if the daemon is behind its schema."""
    # Imported here for the same reason as in `_upgrade`.
    from common.store.database_check import refuse_unfit

    refuse_unfit(engine)
    found = check(engine)
    if found != REVISION:
        log.warning(
            "database was upgraded by a newer version, to which this daemon should be updated too",
            extra={"found": found, "revision": REVISION},
        )


def _works_with_newer(db: Connection) -> bool:
    """Return whether a newer schema says that this code works with it."""
    oldest: str | None = db.scalar(select(tables.version.c.oldest_code))
    # That of a newer code is none of ours.
    return oldest in REVISIONS


def revision(db: Connection) -> str | None:
    """Return the revision of the database; None where Orcaflow's tables are not there."""
    exists = db.scalar(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": REVISION_TABLE})
    if not exists:
        return None
    found: str | None = db.scalar(
        select(column("version_num", String)).select_from(table(REVISION_TABLE))
    )
    return found


def schema_sql() -> str:
    """Return the whole schema as one readable, deterministic script; kept in `sql/schema.sql`.

    It is for reading and comparing. `upgrade` makes a database, from the migrations.
    """
    parts = [_HEADER]
    for described in tables.metadata.sorted_tables:
        parts.append(_tidy(str(CreateTable(described).compile(dialect=_DIALECT))))
        parts.extend(_indexes(described))
    parts.extend(f"{trigger};\n" for trigger in TRIGGERS)
    return "\n".join(parts)


_HEADER: Final = f"""\
-- The schema of Orcaflow at revision {REVISION}. Generated by `orcaflow db schema` from
-- common/store/tables/ and common/store/schema.py: change those, not this file.
"""

_DIALECT: Final = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped.


def _indexes(described: Table) -> list[str]:
    # `indexes` is a set: only sorting makes the text the same every time.
    ordered = sorted(described.indexes, key=lambda index: str(index.name))
    return [_tidy(str(CreateIndex(index).compile(dialect=_DIALECT))) for index in ordered]


def _tidy(ddl: str) -> str:
    lines = (line.rstrip().replace("\t", "    ") for line in ddl.strip().splitlines())
    return "\n".join(lines) + ";\n"


def _migrations() -> Path:
    # A package beside this one, in a checkout as in an installation.
    import sql

    return Path(sql.__file__).parent / "migrations"


def _refuse_foreign_tables(db: Connection) -> None:
    if db.scalar(text("SELECT to_regclass('t_ds_command') IS NOT NULL")):
        raise ConfigurationError(
            "the database already holds tables of that name which Orcaflow has not made (there is "
            f"no {REVISION_TABLE}); give it a database of its own"
        )


def _newer(found: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        found=found,
        cure="a newer Orcaflow has upgraded this database; install that version here too",
    )
