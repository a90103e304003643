"""Databases that many tests share, one after the other: one with the schema, and one without.

To empty them takes a tenth of the time of a new one.
"""

from __future__ import annotations

from typing import Any

import psycopg2

from common.embedded.addresses import SUPERUSER, PostgresAddress

_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname
"""
_NUMBERS = """
SELECT format('setval(%L, %s, %L)', sequencename, coalesce(last_value, start_value),
              last_value IS NOT NULL)
  FROM pg_sequences WHERE schemaname = 'public'
"""
_NEW = """
DROP SCHEMA public CASCADE;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC
"""
_SCHEMA = "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), count(*) FROM pg_trigger"


class _Shared:
    """A database, seen by a superuser."""

    def __init__(self, address: PostgresAddress) -> None:
        self.url = address.url
        self._connection = psycopg2.connect(address.seen_by(SUPERUSER).dsn)
        self._connection.autocommit = True

    def close(self) -> None:
        self._connection.close()

    def _leave_alone(self) -> None:
        """End what other connections still do."""
        self._rows(_OTHERS)

    def _do(self, statements: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statements)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


class PlainDatabase(_Shared):
    """An empty database. Tests make what they like in its schema `public`, and nothing outside."""

    def empty(self) -> None:
        self._leave_alone()
        self._do(_NEW)


class MigratedDatabase(_Shared):
    """A database with the schema. The rows and the numbers that the migrations left come back.

    A test that changes the schema takes `migrated_url`, which is its own, or takes back what it made.
    """

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(address)
        # Rows are not followed along foreign keys: all tables are restored at once.
        self._do("SET session_replication_role = replica")
        restored = []
        for (table,) in self._rows(_TABLES):
            restored.append(f"DELETE FROM public.{table}")
            if self._rows(f"SELECT FROM public.{table} LIMIT 1"):
                self._do(f"CREATE TEMPORARY TABLE kept_{table} AS TABLE public.{table}")
                restored.append(
                    f"INSERT INTO public.{table} OVERRIDING SYSTEM VALUE"
                    f" SELECT * FROM pg_temp.kept_{table}"
                )
        numbers = [call for (call,) in self._rows(_NUMBERS)]
        self._restore = "; ".join([*restored, f"SELECT {', '.join(numbers)}"])
        self._schema = self._rows(_SCHEMA)

    def empty(self) -> None:
        self._leave_alone()
        assert self._rows(_SCHEMA) == self._schema, "a test left another schema behind"
        self._do(self._restore)
