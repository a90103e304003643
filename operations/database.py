"""Brings the database to the schema of this version, checks it, and gives the schema as SQL."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from common.store import schema
from common.store.connect import place_of
from common.store.reading import READER, reading_statements
from common.store.schema import REVISION
from operations.secret_keys import make_key_of_new
from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRevision:
    """A database, named without its password, and the revision of its schema.

    `applied` holds the revisions that an upgrade has added.
    """

    database: str
    revision: str = REVISION
    applied: tuple[str, ...] = ()


def upgrade_database(session: Session) -> DatabaseRevision:
    """Apply all missing revisions, or none of them. The session is unchecked.

    For a new database, this also creates the key that encrypts its secrets.
    """
    applied = schema.upgrade(session.engine, os_user=getpass.getuser())
    make_key_of_new(session.config, session.engine, applied)
    return DatabaseRevision(database=place_of(session.url), applied=tuple(applied))


def check_database(session: Session) -> DatabaseRevision:
    """Return if the schema is that of this version; the session raises if it is another."""
    _ = session.engine  # Connecting checks it.
    return DatabaseRevision(database=place_of(session.url))


def schema_text() -> str:
    """The whole schema as SQL, for reading."""
    return schema.schema_sql().rstrip("\n")


def reader_sql(*, database: str, schema_name: str) -> str:
    """Return the SQL that creates the views of the reading role and grants its rights."""
    statements = reading_statements(database=database, schema=schema_name)
    return "\n".join(
        [
            f"-- Make the role first: CREATE ROLE {READER} LOGIN PASSWORD '…' CONNECTION LIMIT 40;",
            f'-- As a superuser: REVOKE TEMPORARY ON DATABASE "{database}" FROM PUBLIC;',
            "-- Run this as the owner of the tables. It may be repeated.",
            "BEGIN;",
            *(f"{each};" for each in statements),
            "COMMIT;",
        ]
    )
