"""Checks that a database is fit for Orcaflow: version, encoding, pooler, settings and rights.

One statement reads the facts, and `common.model.database_needs` decides. Daemons check at their
start. `db check`, `db upgrade` and the doctor check it too. Nothing is changed.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

from sqlalchemy import Connection, Engine, text

from common.errors import ConfigurationError, ServiceUnreachableError
from common.model.database_needs import (
    NEEDED_FUNCTIONS,
    NEEDED_RIGHTS,
    UNUSED_RIGHTS,
    DatabaseFacts,
    DatabaseFault,
    asked_settings,
    faults_of,
)
from common.store.connect import SESSION_SETTINGS, connect, place_of

_ROUNDS: Final = 5
"""The number of comparisons. One is enough unless other clients use the pooler meanwhile."""

_BACKEND: Final = "SELECT pg_backend_pid()"
_FACTS: Final = text("""
    WITH ours AS (
        SELECT oid, relname, relkind, relowner FROM pg_class
        WHERE relkind IN ('r', 'p', 'S') AND starts_with(CAST(relname AS text), 't_ds_')
        AND relnamespace = (
            SELECT relnamespace FROM pg_class WHERE oid = to_regclass('t_ds_schema_revision'))
    )
    SELECT
        current_setting('server_version') AS version,
        CAST(current_setting('server_version_num') AS int) AS version_number,
        current_setting('server_encoding') AS encoding,
        current_database() AS database,
        current_user AS role,
        current_schema() AS schema,
        pg_backend_pid() AS backend,
        pg_is_in_recovery() AS is_standby,
        coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
        NOT EXISTS (SELECT FROM ours WHERE NOT pg_has_role(relowner, 'USAGE')) AS is_owner,
        ARRAY(
            SELECT current_setting(name, true)
            FROM unnest(CAST(:settings AS text[])) WITH ORDINALITY AS needed (name, place)
            ORDER BY place
        ) AS settings,
        ARRAY(
            SELECT CASE relkind WHEN 'S' THEN 'USAGE' ELSE needed END || ' ' || relname
            FROM ours CROSS JOIN unnest(CAST(:rights AS text[])) AS needed
            -- A CASE, since either function fails for the other kind.
            WHERE CASE
                WHEN relkind <> 'S' THEN NOT has_table_privilege(oid, needed)
                ELSE needed = 'SELECT' AND NOT has_sequence_privilege(oid, 'USAGE')
            END
            UNION ALL
            SELECT 'EXECUTE ' || needed FROM unnest(CAST(:functions AS text[])) AS needed
            WHERE NOT has_function_privilege(needed, 'EXECUTE')
            ORDER BY 1
        ) AS lacking
""")


class DatabaseUnfitError(ConfigurationError):
    """Daemons can't use the database; `mistakes` lists each fault with the fix."""

    def __init__(self, place: str, faults: tuple[DatabaseFault, ...]) -> None:
        self.mistakes = tuple(f"the database {place} can't be used: {each}" for each in faults)
        super().__init__("; ".join(self.mistakes))


def refuse_unfit(engine: Engine, *, upgrading: bool = False) -> None:
    """Raise `DatabaseUnfitError` with all faults; `ServiceUnreachableError` if they may pass.

    `upgrading`: the schema is about to be changed, which needs other rights.
    """
    faults = faults_of(facts_of(engine), upgrading=upgrading)
    if not faults:
        return
    place = place_of(_whole(engine))
    if all(each.passes for each in faults):
        raise ServiceUnreachableError(f"PostgreSQL at {place}: {'; '.join(map(str, faults))}")
    raise DatabaseUnfitError(place, faults)


def facts_of(engine: Engine) -> DatabaseFacts:
    """Read the facts of a database by one statement, and a few more if there is a pooler."""
    names = asked_settings(SESSION_SETTINGS)
    options = " ".join(engine.url.normalized_query.get("options", ())).lower()
    with engine.connect() as db:
        asked = {
            "settings": list(names),
            "rights": list(NEEDED_RIGHTS),
            "functions": list(NEEDED_FUNCTIONS),
        }
        row = db.execute(_FACTS, asked).one()
        db.rollback()
        changes_backends = _is_pooled(db, row.backend) and _changes_backends(engine, db)
    return DatabaseFacts(
        version=row.version,
        version_number=row.version_number,
        encoding=row.encoding,
        database=row.database,
        role=row.role,
        schema=row.schema,
        changes_backends=changes_backends,
        is_standby=row.is_standby,
        may_create=row.may_create,
        is_owner=row.is_owner,
        settings=dict(zip(names, row.settings, strict=True)),
        given=SESSION_SETTINGS,
        overridden=frozenset(name for name in names if f"{name}=" in options),
        lacking=_lacking(row.lacking),
    )


def _is_pooled(db: Connection, backend: int) -> bool:
    """Return True if something other than the server's own process answers this connection.

    A pooler invents the process number that a client needs to cancel a statement.
    """
    driver: Any = db.connection.driver_connection
    return bool(driver.info.backend_pid != backend)


def _changes_backends(engine: Engine, db: Connection) -> bool:
    """Return True if two open connections use one backend, or if one changes its backend.

    Two clients of a pooler in transaction mode share a server connection while both are idle.
    """
    with closing(connect(_whole(engine))) as other, other.cursor() as cursor:
        first = None
        for _ in range(_ROUNDS):
            here = db.exec_driver_sql(_BACKEND).scalar_one()
            db.rollback()
            cursor.execute(_BACKEND)
            there = cursor.fetchone()[0]
            first = first or (here, there)
            if here == there or (here, there) != first:
                return True
    return False


def _lacking(listed: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in listed:
        right, _, name = each.partition(" ")
        if right not in UNUSED_RIGHTS.get(name, ()):
            found[right] = (*found.get(right, ()), name)
    return found


def _whole(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)
