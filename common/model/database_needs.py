"""The needs of Orcaflow of a PostgreSQL database, and the faults of a given database. Pure.

`common.store.database_check` reads the facts. Daemons, `db check`, `db upgrade` and the doctor show
the faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

OLDEST_POSTGRESQL: Final = 15
"""The oldest major version of PostgreSQL that Orcaflow runs on."""
ENCODING: Final = "UTF8"
NEEDED_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""The rights that daemons need on each table of Orcaflow, apart from `UNUSED_RIGHTS`."""
UNUSED_RIGHTS: Final[Mapping[str, frozenset[str]]] = {
    # A trigger refuses it anyway.
    "t_ds_audit_log": frozenset({"UPDATE"}),
    # Only the owner of the tables upgrades the schema.
    "t_ds_schema_revision": frozenset({"INSERT", "UPDATE", "DELETE"}),
    "t_ds_version": frozenset({"INSERT", "UPDATE", "DELETE"}),
}
NEEDED_FUNCTIONS: Final = (
    "pg_advisory_xact_lock(bigint)",
    "pg_advisory_xact_lock(integer,integer)",
    "pg_advisory_xact_lock_shared(bigint)",
    "pg_advisory_xact_lock_shared(integer,integer)",
    "pg_try_advisory_xact_lock(integer,integer)",
    "pg_notification_queue_usage()",
)
"""The functions that some servers, the embedded one too, let only certain roles execute."""
_EXECUTE: Final = "EXECUTE"
_BY_ROLE: Final[Mapping[str, str]] = {
    "client_encoding": ENCODING,
    "standard_conforming_strings": "on",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
}
"""The settings that a role or a database may change, with the values that Orcaflow needs."""
_LIMITS: Final = ("statement_timeout", "lock_timeout")
_NONE: Final = "0"
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A database as a session of Orcaflow finds it."""

    version: str
    version_number: int
    encoding: str
    database: str
    role: str
    schema: str | None
    """The first schema of the search path that the role may use."""
    changes_backends: bool
    """True if two transactions of one connection may run in different processes of the server."""
    is_standby: bool
    may_create: bool
    """True if the role may create tables in `schema`."""
    is_owner: bool
    """True if the role owns the tables of Orcaflow, or if the schema is missing."""
    settings: Mapping[str, str | None]
    """The values of `asked_settings` in force."""
    given: Mapping[str, str]
    """The values that the session requested."""
    overridden: frozenset[str] = frozenset()
    """The names of settings that the URL sets."""
    lacking: Mapping[str, tuple[str, ...]]
    """The rights that the role lacks, each with the tables, sequences or functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFault:
    """A reason why daemons can't use a database, and the fix."""

    problem: str
    cure: str
    passes: bool = False
    """True if it may pass without a fix. A daemon waits then."""

    def __str__(self) -> str:
        """The problem and the fix as one sentence."""
        return f"{self.problem}: {self.cure}"


def asked_settings(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the settings that are compared."""
    return (*given, *_BY_ROLE, *_LIMITS)


def faults_of(facts: DatabaseFacts, *, upgrading: bool = False) -> tuple[DatabaseFault, ...]:
    """Return the faults of a database, causes first; `upgrading`: tables are to be created."""
    return tuple(_faults(facts, upgrading=upgrading))


def _faults(facts: DatabaseFacts, *, upgrading: bool) -> Iterator[DatabaseFault]:
    if facts.version_number < OLDEST_POSTGRESQL * 10_000:
        yield DatabaseFault(
            problem=f"the server is PostgreSQL {facts.version}",
            cure=f"use PostgreSQL {OLDEST_POSTGRESQL} or newer",
        )
    if facts.encoding != ENCODING:
        yield DatabaseFault(
            problem=f"the database {facts.database} has the encoding {facts.encoding}, which can't"
            " store every letter",
            cure=f"create another one by `createdb -E {ENCODING} -T template0`, and move the rows"
            " by pg_dump",
        )
    if facts.is_standby:
        yield DatabaseFault(
            problem="the server is a standby, which is read-only",
            cure="connect to the primary, or name all servers and target_session_attrs=read-write"
            " in database.url",
            passes=True,
        )
    if facts.changes_backends:
        yield DatabaseFault(
            problem="a connection pooler gives each transaction another server connection, so that"
            " notifications, settings and prepared statements are lost",
            cure="connect to PostgreSQL itself, or use pool_mode = session",
        )
    yield from _setting_faults(facts)
    yield from _right_faults(facts, upgrading=upgrading)


def _setting_faults(facts: DatabaseFacts) -> Iterator[DatabaseFault]:
    wanted = {**facts.given, **dict.fromkeys(_LIMITS, "")}
    lost = [
        name
        for name, value in wanted.items()
        if name not in facts.overridden and not _is_in_force(facts.settings.get(name), value)
    ]
    if lost:
        found = ", ".join(f"{name} is {facts.settings.get(name)}" for name in lost[:_SHOWN])
        examples = "; ".join(
            f"ALTER ROLE {_quoted(facts.role)} SET {name} = '{wanted[name] or '30s'}'"
            for name in lost
        )
        yield DatabaseFault(
            problem=f"settings of the session are not in force ({found})",
            cure="connect without a pooler that drops the startup parameter `options`, and unset"
            f" PGTZ; or set them for the role: {examples}",
        )
    for name, value in _BY_ROLE.items():
        found = facts.settings.get(name) or ""
        is_standbys = name == "transaction_read_only" and facts.is_standby
        if found.lower() == value.lower() or is_standbys or name in facts.overridden:
            continue
        setting = name.replace("transaction_", "default_transaction_")
        yield DatabaseFault(
            problem=f"{name} is {found}, where Orcaflow needs {value}",
            cure=f"remove {name} from database.url and from the environment, or run"
            f" ALTER ROLE {_quoted(facts.role)} SET {setting} = '{value}'",
        )


def _is_in_force(found: str | None, wanted: str) -> bool:
    """Return True if a setting has the value, or any limit if the value is empty."""
    if not wanted:
        return found != _NONE
    return (found or "").lower() == wanted.lower()


def _right_faults(facts: DatabaseFacts, *, upgrading: bool) -> Iterator[DatabaseFault]:
    role, database = _quoted(facts.role), _quoted(facts.database)
    if facts.schema is None:
        yield DatabaseFault(
            problem=f"the role {facts.role} may use no schema of its search path",
            cure=f"as an administrator run ALTER DATABASE {database} OWNER TO {role}, or"
            f" GRANT USAGE, CREATE ON SCHEMA public TO {role}",
        )
        return
    schema = _quoted(facts.schema)
    if upgrading and not facts.may_create:
        yield DatabaseFault(
            problem=f"the role {facts.role} may not create tables in the schema {facts.schema}",
            cure=f"as an administrator run ALTER DATABASE {database} OWNER TO {role}, or"
            f" GRANT CREATE ON SCHEMA {schema} TO {role}",
        )
    if upgrading and not facts.is_owner:
        yield DatabaseFault(
            problem=f"the role {facts.role} does not own the tables, which an upgrade changes",
            cure="run the upgrade as their owner",
        )
    functions = facts.lacking.get(_EXECUTE, ())
    if functions:
        yield DatabaseFault(
            problem=f"the role {facts.role} may not execute {_listed(functions)}",
            cure=f"as an administrator run GRANT EXECUTE ON FUNCTION {', '.join(functions)}"
            f" TO {role}",
        )
    of_tables = {right: names for right, names in facts.lacking.items() if right != _EXECUTE}
    if of_tables and not upgrading:
        lacking = "; ".join(f"{right} on {_listed(names)}" for right, names in of_tables.items())
        yield DatabaseFault(
            problem=f"the role {facts.role} lacks rights ({lacking})",
            cure=f"as the owner of the tables run GRANT {', '.join(NEEDED_RIGHTS)} ON ALL TABLES"
            f" IN SCHEMA {schema} TO {role} and GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema}"
            f" TO {role}",
        )


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return name if name.isascii() and name.isidentifier() and name.islower() else f'"{escaped}"'
