"""The roles of the embedded PostgreSQL and their passwords, as statements for its single-user mode.

Daemons and the command line are `orcaflow`: owner of the database `orcaflow` and of all that is in
it, and no superuser, so that nobody who gets hold of their connection reads files or runs programs
of the server. `orcaflow_reader` may read the views that `common.store.reading` makes for it. The
superuser is for operators. Each role has a random password in a 0600 file of its own, and no other
way in.

Every statement may be repeated: an interrupted preparation is done again at the next start. Data of
former versions, whose superuser is `orcaflow` itself or whose rights are of an older `RIGHTS`, is
brought to the same.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from common.embedded.addresses import (
    OWNER,
    READER,
    SUPERUSER,
    password_file,
    stored_password,
)

DATABASE = "orcaflow"
ROLES = (OWNER, READER, SUPERUSER)

RIGHTS = "3"
"""The version of the rights below. Raise it when a statement changes for data that exists."""

_ORDINARY = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
_HELPER = "orcaflow_renaming"
_BOOTSTRAP_OID = 10
_MOST_READERS = 40
"""The connections of the reading role at one time."""

_RENAME = f"""
DO $$ BEGIN
    IF (SELECT rolname FROM pg_roles WHERE oid = {_BOOTSTRAP_OID}) = '{OWNER}' THEN
        ALTER ROLE {OWNER} RENAME TO {SUPERUSER};
    END IF;
END $$"""  # noqa: S608  # Names of our own.

_HAND_OVER = f"""
DO $$ DECLARE it text; BEGIN
    FOR it IN
        WITH ours AS (
            SELECT oid, nspowner FROM pg_namespace
            WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
        )
        SELECT 'SCHEMA ' || oid::regnamespace FROM ours WHERE nspowner = {_BOOTSTRAP_OID}
        UNION ALL
        SELECT 'TABLE ' || c.oid::regclass FROM pg_class c JOIN ours ON ours.oid = relnamespace
        WHERE relowner = {_BOOTSTRAP_OID} AND relkind IN ('r', 'p', 'v', 'm', 'f')
        UNION ALL
        SELECT 'SEQUENCE ' || c.oid::regclass FROM pg_class c JOIN ours ON ours.oid = relnamespace
        WHERE relowner = {_BOOTSTRAP_OID} AND relkind = 'S' AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.objid = c.oid
            AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_proc p JOIN ours ON ours.oid = pronamespace
        WHERE proowner = {_BOOTSTRAP_OID}
        UNION ALL
        SELECT 'TYPE ' || t.oid::regtype FROM pg_type t JOIN ours ON ours.oid = typnamespace
        WHERE typowner = {_BOOTSTRAP_OID} AND typtype IN ('e', 'd', 'r')
    LOOP EXECUTE 'ALTER ' || it || ' OWNER TO {OWNER}'; END LOOP;
END $$"""  # noqa: S608  # As above.
"""Sequences of columns go with their tables."""


def is_prepared(home: Path) -> bool:
    """True if every role has its password and the rights of this version."""
    try:
        has_rights = _rights_file(home).read_text(encoding="ascii").strip() == RIGHTS
    except (OSError, ValueError):
        has_rights = False
    return has_rights and all(password_file(home, role).exists() for role in ROLES)


def passwords(home: Path) -> dict[str, str]:
    """The password of each role: the one in its file, else a new one."""
    found = {}
    for role in ROLES:
        try:
            stored = stored_password(password_file(home, role))
        except (OSError, ValueError):
            stored = ""
        found[role] = stored or secrets.token_urlsafe(24)
    return found


def keep(home: Path, chosen: Mapping[str, str]) -> None:
    """Write the passwords that have no file yet into theirs. A file appears whole.

    The version of the rights is written last.
    """
    for role, password in chosen.items():
        file = password_file(home, role)
        if file.exists():
            continue
        draft = file.with_name(f".{file.name}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as output:
            output.write(f"*:*:*:{role}:{password}\n")
        draft.replace(file)
    _rights_file(home).write_text(f"{RIGHTS}\n", encoding="ascii")


def making(chosen: Mapping[str, str]) -> list[str]:
    """Statements for `template1` of new data: the roles, and the database."""
    return [
        *_without_large_objects(),
        *_roles(chosen),
        *_without_advisory_locks(),
        f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
        *_rights_on_database(),
    ]


def mending(chosen: Mapping[str, str]) -> list[str]:
    """Statements for `template1` of data that was made before: the same roles and passwords."""
    return [
        f"DROP ROLE IF EXISTS {_HELPER}",
        f"CREATE ROLE {_HELPER} SUPERUSER",
        # Nobody may rename the role of the own session.
        f"SET SESSION AUTHORIZATION {_HELPER}",
        _line(_RENAME),
        f"SET SESSION AUTHORIZATION {SUPERUSER}",
        f"DROP ROLE {_HELPER}",
        *_without_large_objects(),
        *_roles(chosen),
        *_without_advisory_locks(),
        f"ALTER DATABASE {DATABASE} OWNER TO {OWNER}",
        *_rights_on_database(),
    ]


def handing_over() -> list[str]:
    """Statements for the database itself: what the superuser has in it becomes the owner's.

    PostgreSQL reassigns nothing of its first role by itself.
    """
    return [
        *_without_large_objects(),
        *_without_advisory_locks(),
        _line(_HAND_OVER),
    ]


def _roles(chosen: Mapping[str, str]) -> list[str]:
    made = [
        _line(f"""
            DO $$ BEGIN
                IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
                    CREATE ROLE {role};
                END IF;
            END $$""")
        for role in (OWNER, READER)
    ]
    return [
        *made,
        f"ALTER ROLE {OWNER} {_ORDINARY} PASSWORD {_quoted(chosen[OWNER])}",
        # Masters end sessions of the reading role that fill the queue of notifications.
        f"GRANT pg_signal_backend TO {OWNER}",
        *_reader(chosen[READER]),
        f"ALTER ROLE {SUPERUSER} PASSWORD {_quoted(chosen[SUPERUSER])}",
    ]


def restoring_reader(password: str) -> list[str]:
    """Return statements of the superuser that undo what the reading role changed of itself.

    PostgreSQL lets every role set its password and the defaults of its sessions.
    """
    return [*_reader(password), f"ALTER ROLE {READER} IN DATABASE {DATABASE} RESET ALL"]


def _reader(password: str) -> list[str]:
    return [
        f"ALTER ROLE {READER} {_ORDINARY} PASSWORD {_quoted(password)}",
        f"ALTER ROLE {READER} RESET ALL",
        # Without a limit, tasks that read could take all connections of the daemons.
        f"ALTER ROLE {READER} CONNECTION LIMIT {_MOST_READERS}",
        # A session may not change this one.
        f"ALTER ROLE {READER} SET temp_file_limit = '1GB'",
        # Guards against mistakes, which a session may change; the rights hold against intent.
        f"ALTER ROLE {READER} SET default_transaction_read_only = on",
        f"ALTER ROLE {READER} SET statement_timeout = '5min'",
        f"ALTER ROLE {READER} SET idle_in_transaction_session_timeout = '5min'",
    ]


def _rights_on_database() -> list[str]:
    return [
        f"REVOKE ALL ON DATABASE {DATABASE}, postgres, template1 FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {DATABASE} TO {READER}",
    ]


def _without_large_objects() -> list[str]:
    """Statements that take from everybody what every role may write by default."""
    makers = "lo_creat(int), lo_create(oid), lo_from_bytea(oid, bytea)"
    return [f"REVOKE EXECUTE ON FUNCTION {makers} FROM PUBLIC"]


def _without_advisory_locks() -> list[str]:
    """Return statements that leave advisory locks to the daemons.

    Daemons wait for each other by them: a reader that took one would stop imports and upgrades.
    """
    return [
        _line(f"""
            DO $$ DECLARE it text; BEGIN
                FOR it IN
                    SELECT oid::regprocedure FROM pg_proc
                    WHERE pronamespace = 'pg_catalog'::regnamespace
                    AND (proname LIKE 'pg_%advisory%' OR proname = 'pg_logical_emit_message')
                LOOP
                    EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || it || ' FROM PUBLIC';
                    EXECUTE 'GRANT EXECUTE ON FUNCTION ' || it || ' TO {OWNER}';
                END LOOP;
            END $$""")  # noqa: S608  # As above.
    ]


def _rights_file(home: Path) -> Path:
    return home / "postgres.rights"


def _quoted(password: str) -> str:
    escaped = password.replace("'", "''")
    return f"'{escaped}'"


def _line(statement: str) -> str:
    """The statement on one line, as the single-user mode reads it."""
    return " ".join(statement.split())
