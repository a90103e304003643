"""The views through which the reading role sees the database, and its rights.

The role `orcaflow_reader` has no right on any table. It reads views, one for each table that lists
columns for it (`seen_by_reader`, next to the table). They are in a schema with the name of the
role. PostgreSQL searches this schema first for that role, so a query can use the names of the
tables. The embedded PostgreSQL creates the role (`common.embedded.postgres_roles`); for other
servers it is optional, and an administrator creates it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, Table, text

from common.masking import MASK
from common.store import tables
from common.store.tables.columns import READER_COLUMNS

log = logging.getLogger(__name__)

READER: Final = "orcaflow_reader"
SCHEMA: Final = READER
"""The schema of the views. PostgreSQL's default search path starts with `"$user"`."""

_OURS: Final = "Views of Orcaflow, made for "
"""The prefix of the comment on a schema that this module created."""

VIEWS: Final = "8ca4c5bb099fad31"
"""The digest of the statements of the views. `tests/house/test_schema_sql.py` keeps it current.

Each start compares it, because the statements themselves need all tables, which take long to make.
"""

_SUSPICIOUS: Final = (
    "passw|pwd|pass.?phrase|secret|token|credential|psk|authorization|cookie|digest|signature"
    "|(access|account|api|encryption|private|shared|signing|ssh).?key|//[^/[:space:]]*@|aes256gcm"
)
"""A pattern of texts that are hidden as a whole, because SQL can't mask a part of a text."""

_STATE: Final = text("""
    SELECT
        EXISTS (SELECT FROM pg_roles WHERE rolname = :role) AS has_role,
        (SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :schema)
            AS made_for,
        EXISTS (SELECT FROM pg_namespace WHERE nspname = :schema)
            OR has_database_privilege(current_database(), 'CREATE') AS may_make,
        current_schema() AS tables_in,
        current_database() AS database
""")


def allow_reading(db: Connection) -> bool:
    """Create the views of the reading role, unless they are current, and revoke its other rights.

    Return False if the role does not exist, or if this account may not create the schema.
    """
    found = db.execute(_STATE, {"role": READER, "schema": SCHEMA}).one()
    if not found.has_role:
        return False
    description = _description(database=found.database, schema=found.tables_in)
    if found.made_for == description:
        return True
    if not found.may_make:
        log.warning(
            "views of the reading role were not made, since this account may not create a schema",
            extra={"role": READER, "cure": "run the output of `orcaflow db reader-sql`"},
        )
        return False
    for each in reading_statements(database=found.database, schema=found.tables_in):
        db.exec_driver_sql(each.replace("%", "%%"))
    db.exec_driver_sql(f"COMMENT ON SCHEMA {SCHEMA} IS '{description}'")
    return True


def drop_views(db: Connection) -> None:
    """Drop the views, so that a migration may change the type of a column that they show."""
    found = db.execute(_STATE, {"role": READER, "schema": SCHEMA}).one()
    if (found.made_for or "").startswith(_OURS):
        db.exec_driver_sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def reading_statements(*, database: str, schema: str) -> list[str]:
    """Return the statements that give the reading role its views and revoke all other rights.

    `schema` is the schema of the tables. The statements can be run again.
    """
    of_tables = _quoted(schema)
    described = list(tables.metadata.sorted_tables)
    statements = [
        # Former versions granted these rights. Revoking from a table includes its columns.
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {of_tables} FROM {READER}",
        f"REVOKE ALL ON SCHEMA {of_tables} FROM {READER}",
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
        f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC, {READER}",
    ]
    for each in described:
        statements.append(f"DROP VIEW IF EXISTS {SCHEMA}.{each.name}")
        if view := _view(each, of_tables):
            statements += [view, f"GRANT SELECT ON {SCHEMA}.{each.name} TO {READER}"]
    return [
        *statements,
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {READER}",
        f"GRANT CONNECT ON DATABASE {_quoted(database)} TO {READER}",
    ]


def columns_seen(table: Table) -> tuple[str, ...]:
    """Return the columns of a table that the reading role sees, in the table's order."""
    plain, masked = table.info.get(READER_COLUMNS, ((), ()))
    return tuple(each.name for each in table.columns if each.name in {*plain, *masked})


def _view(table: Table, schema: str) -> str | None:
    """Return the statement for the view of a table; None if the role sees no column."""
    seen = columns_seen(table)
    if not seen:
        return None
    _, masked = table.info[READER_COLUMNS]
    columns = [_masked(_quoted(each)) if each in masked else _quoted(each) for each in seen]
    made = f"CREATE VIEW {SCHEMA}.{table.name} WITH (security_barrier) AS"
    return f"{made} SELECT {', '.join(columns)} FROM {schema}.{table.name}"  # noqa: S608  # Our names.


def _masked(column: str) -> str:
    return f"CASE WHEN {column} ~* '{_SUSPICIOUS}' THEN '{MASK}' ELSE {column} END AS {column}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def digest_of(texts: Iterable[str]) -> str:
    """Return a short digest of texts, such as the statements of the views."""
    return sha256(";".join(texts).encode()).hexdigest()[:16]


def _description(*, database: str, schema: str) -> str:
    """Return the comment of the schema; later starts compare it to detect changes."""
    return f"{_OURS}{digest_of((VIEWS, database, schema))}"
