"""The three definitions of the schema (tables, migrations, `schema.sql`) agree."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, Table, text

import sql
from common.model import commands, states
from common.store import schema, tables
from common.store.connect import engine
from common.store.reading import VIEWS, digest_of, reading_statements

_SQL = Path(sql.__file__).parent

_SHAPE = {
    "columns": (
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, "
        "column_default, identity_generation FROM information_schema.columns "
        "WHERE table_schema = 'public'"
    ),
    "constraints": (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace"
    ),
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": (
        "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger "
        "WHERE NOT tgisinternal"
    ),
    "functions": (
        "SELECT '', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    ),
}


def _shape(made: Engine) -> dict[str, list[str]]:
    with made.connect() as db:
        return {
            part: sorted(
                str(tuple(row))
                for row in db.execute(text(query))
                if row[0] != schema.REVISION_TABLE
            )
            for part, query in _SHAPE.items()
        }


def _can_be_compared(item: Any, _name: str | None, kind: str, *_: object) -> bool:
    """True if Alembic can compare both; the shapes compare the others.

    PostgreSQL rewrites an index over an expression, and a drawn default has two values.
    """
    if kind == "index":
        return bool(len(item.columns) == len(item.expressions))
    default = getattr(item.server_default, "arg", None) if kind == "column" else None
    return "random" not in str(default)


def test_schema_sql_is_what_the_code_says() -> None:
    kept = (_SQL / "schema.sql").read_text(encoding="utf-8")
    assert kept == schema.schema_sql(), "write it anew: orcaflow db schema > sql/schema.sql"


def test_the_migrations_make_the_schema_that_the_code_says(
    new_database: Callable[..., str],
) -> None:
    migrated, described = engine(new_database()), engine(new_database())
    schema.upgrade(migrated, os_user="tester")
    with described.begin() as db:
        db.exec_driver_sql(schema.schema_sql())
    assert _shape(migrated) == _shape(described)
    with migrated.connect() as db:
        context = MigrationContext.configure(
            db,
            opts={
                "version_table": schema.REVISION_TABLE,
                "compare_type": True,
                "compare_server_default": True,
                "include_object": _can_be_compared,
            },
        )
        assert compare_metadata(context, tables.metadata) == []
    migrated.dispose()
    described.dispose()


def test_the_code_knows_every_revision_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(_SQL / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    newest_first = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(newest_first)) == schema.REVISIONS


def test_each_table_is_imported_from_the_package_by_the_name_that_its_module_has() -> None:
    of_modules = {
        name: value
        for subject in tables._SUBJECTS
        for name, value in vars(import_module(f"{tables.__name__}.{subject}")).items()
        if isinstance(value, Table)
    }
    assert set(of_modules.values()) == set(tables.metadata.tables.values())
    assert {name: getattr(tables, name) for name in of_modules} == of_modules
    # A module that is imported becomes an attribute of its package, in the place of any other.
    assert not tables._SUBJECTS.keys() & tables._PLACES.keys()
    with pytest.raises(AttributeError, match="no_such_table"):
        _ = tables.no_such_table


@pytest.mark.parametrize(
    ("allowed", "used"),
    [
        (tables.EXECUTION_STATES, states.ProcessState),
        (tables.EXECUTION_STATES, states.TaskState),
        (tables.COMMAND_TYPES, commands.CommandType),
        (states.FINISHED_TASK_CODES, states.FINISHED_TASK_STATES),
        (states.LIVE_PROCESS_CODES, states.LIVE_PROCESS_STATES),
        (states.TERMINAL_PROCESS_CODES, states.TERMINAL_PROCESS_STATES),
        (states.LIVE_TASK_CODES, states.LIVE_TASK_STATES),
    ],
)
def test_the_tables_allow_every_code_that_the_model_uses(
    allowed: tuple[int, ...], used: list[int]
) -> None:
    assert {int(code) for code in used} <= set(allowed)


def test_no_state_is_both_live_and_ended() -> None:
    assert not set(states.LIVE_PROCESS_CODES) & set(states.TERMINAL_PROCESS_CODES)
    assert not set(states.LIVE_TASK_CODES) & set(states.FINISHED_TASK_CODES)


def test_the_noted_digest_of_the_views_is_the_digest_of_their_statements() -> None:
    statements = reading_statements(database="database", schema="schema")
    assert digest_of(statements) == VIEWS, "set VIEWS in common/store/reading.py to the first value"
