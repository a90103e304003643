"""Brings the database to the schema of this version, checks it, and gives the schema as SQL."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from functools import partial

from common.config import Config, cluster_zone
from common.store import schema
from common.store.connect import Engine, place_of
from common.store.reading import READER, reading_statements
from common.store.schema import REVISION, REVISIONS, FormerRules
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
    applied = bring_up(session.config, session.engine)
    return DatabaseRevision(database=place_of(session.url), applied=tuple(applied))


def bring_up(config: Config, engine: Engine) -> list[str]:
    """Apply the revisions that are missing, and return them; a new database gets its key."""
    applied = schema.upgrade(engine, os_user=getpass.getuser(), former=partial(_former, config))
    if REVISIONS[0] in applied:
        # Imported here, because every start of a cluster calls this function.
        from operations.secret_keys import make_key_of_new

        make_key_of_new(config, engine)
    return applied


def _former(config: Config) -> FormerRules:
    # Imported here for the same reason.

    return FormerRules(
        complement_uses_chosen_date=config.complement_uses_chosen_date, zone=cluster_zone(config)
    )


def check_database(session: Session) -> DatabaseRevision:
    """Return the revision if daemons can use the database. The session is unchecked.

    Raises `ConfigurationError` for an unfit database, or for the schema of another version.
    """
    # Imported here for the same reason.
    from common.store.database_check import refuse_unfit

    refuse_unfit(session.engine)
    schema.check(session.engine)
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
