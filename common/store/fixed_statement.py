"""Statements whose SQL is written out once, for those that run for every attempt.

SQLAlchemy finds the text of a statement anew at each execution, and processes each value and column
by its type. For a long statement on few rows that takes longer than the driver needs for all else.
Transactions, errors and rows are those of any other statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ClauseElement, Connection, CursorResult
from sqlalchemy.dialects.postgresql import psycopg2
from sqlalchemy.sql.compiler import SQLCompiler


class FixedStatement:
    """A statement for PostgreSQL whose parameters are values that the driver knows by itself.

    It can't have a list for `IN` among them, whose length would change the text.
    """

    def __init__(self, statement: ClauseElement) -> None:
        dialect = psycopg2.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy gives it no types.
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self._parameters = frozenset(
            name for name, parameter in compiled.binds.items() if parameter.required
        )
        written = compiled.construct_expanded_state(dict.fromkeys(self._parameters))
        self._text = written.statement
        self._constants = {
            name: value
            for name, value in written.parameters.items()
            if name not in self._parameters
        }

    def execute(self, db: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        """Execute it with a value for each of its parameters."""
        missing = self._parameters.difference(values)
        if missing:
            raise ValueError(f"no value for {', '.join(sorted(missing))}")
        return db.exec_driver_sql(self._text, {**self._constants, **values})
