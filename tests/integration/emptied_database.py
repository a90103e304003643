"""A database with the schema that many tests share, one after the other.

To empty it takes a tenth of the time of a copy. The rows and the numbers that the migrations left come
back; a test that changes the schema takes `migrated_url`, which is its own.
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
_SCHEMA = "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), count(*) FROM pg_trigger"


class EmptiedDatabase:
    """A migrated database, brought back to that state by `empty`."""

    def __init__(self, address: PostgresAddress) -> None:
        self.url = address.url
        self._connection = psycopg2.connect(address.seen_by(SUPERUSER).dsn)
        self._connection.autocommit = True
        # Rows are not followed along foreign keys: all tables are restored at once.
        self._rows("SET session_replication_role = replica; SELECT")
        restored = []
        for (table,) in self._rows(_TABLES):
            restored.append(f"DELETE FROM public.{table}")
            if self._rows(f"SELECT FROM public.{table} LIMIT 1"):
                self._rows(f"CREATE TEMPORARY TABLE kept_{table} AS TABLE public.{table}; SELECT")
                restored.append(
                    f"INSERT INTO public.{table} OVERRIDING SYSTEM VALUE"
                    f" SELECT * FROM pg_temp.kept_{table}"
                )
        numbers = [call for (call,) in self._rows(_NUMBERS)]
        self._restore = "; ".join([*restored, f"SELECT {', '.join(numbers)}"])
        self._schema = self._rows(_SCHEMA)

    def empty(self) -> None:
        """End what other connections still do, and restore the rows that the migrations made."""
        self._rows(_OTHERS)
        assert self._rows(_SCHEMA) == self._schema, "a test left another schema behind"
        self._rows(self._restore)

    def close(self) -> None:
        self._connection.close()

    def _rows(self, statements: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statements)
            return list(cursor.fetchall())
