"""Statements whose SQL is written out once, for those that run for every attempt.

SQLAlchemy finds the text of a statement anew at each execution, and processes each value and column
by its type. For a long statement on few rows that takes longer than the driver needs for all else.
Transactions, errors and rows are those of any other statement.

A *prepared* one is planned once for each connection too, which takes PostgreSQL several times as
long as to carry it out. Its plan has to suit any size of the tables: one that was empty then may
have a million rows when the plan is used. So it is made, and made again after an ANALYZE, while all
is switched off that reads whole tables; and the statement must not name the condition of an index
that holds many rows besides its own. Such a plan is not the best for long lists, which are planned.

The name of a prepared statement is a hash of its text and of a random token of the process. Behind
a pooler that shares server connections, a process can therefore not execute another's text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from psycopg2.extensions import adapt
from sqlalchemy import ClauseElement, Connection, CursorResult, Select
from sqlalchemy.dialects.postgresql import psycopg2
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import ReturnsRows

from common.store.connect import is_by_statement, rows_alone

_TYPED: Final = re.compile(r"CAST\(%\((\w+)\)s AS ([A-Z ]+(?:\[\])?)\)")
_WHOLE_TABLES: Final = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
# Until the end of the transaction.
_BY_INDEX: Final = ";".join(f"SET LOCAL {way}=off" for way in _WHOLE_TABLES)
_AS_BEFORE: Final = "; ".join(f"SET LOCAL {way} TO DEFAULT" for way in _WHOLE_TABLES)
_LONG: Final = 100
_NAME_CHARS: Final = 10


class FixedStatement:
    """A statement for PostgreSQL whose parameters are values that the driver knows by itself.

    It can't have a list for `IN` among them, whose length would change the text. Only one that
    finds its rows by indexes may be `prepared`: it is executed as a transaction of its own, or by
    `rows_within` in a longer one. One that reads no table, `by_index=False`, is planned with the
    settings that are there, and is executed anywhere.
    """

    def __init__(
        self, statement: ClauseElement, *, prepared: bool = False, by_index: bool = True
    ) -> None:
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
        self._prepared = _Prepared(self, by_index=by_index) if prepared else None
        self._columns = _names(statement) if prepared else ()

    def execute(self, db: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        """Execute it with a value for each of its parameters."""
        missing = self._parameters.difference(values)
        if missing:
            raise ValueError(f"no value for {', '.join(sorted(missing))}")
        if self._prepared is not None and not any(map(_is_long, values.values())):
            return self._prepared.execute(db, values)
        return db.exec_driver_sql(self._text, {**self._constants, **values})

    def rows(self, db: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Execute a prepared one that writes; return its rows, with their columns by their names.

        It has to be a transaction of its own. A result of SQLAlchemy's costs a fourth of all that
        the client does for it.
        """
        assert self._prepared is not None
        if any(map(_is_long, values.values())):
            return list(self.execute(db, values))
        found = rows_alone(db, self._prepared.call_on(db), values, writes=True)
        return list(map(self.row, found))

    def rows_within(self, db: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Execute a prepared one in a transaction with others; return its rows.

        The settings of its plan end with it, which takes another way to the server and back.
        """
        assert self._prepared is not None
        found = self.execute(db, values).all()
        db.exec_driver_sql(_AS_BEFORE)
        return list(found)

    @cached_property
    def row(self) -> Callable[[Iterable[Any]], Any]:
        """Makes a row, with its columns by their names, of what the driver has read."""
        row: Any = namedtuple("row", self._columns)  # type: ignore[misc]  # noqa: PYI024  # Named by it.
        made: Callable[[Iterable[Any]], Any] = row._make
        return made

    def rows_alone(self, db: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Read its rows as the driver has them, where it is a transaction of its own."""
        assert self._prepared is not None
        return rows_alone(db, self._prepared.call_on(db), values)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, in an order of their own."""
        return tuple(sorted(self._parameters))

    def written(self, values: Mapping[str, str]) -> str:
        """Return its text with these values, which are SQL, and its constants in their places."""
        constants = {
            name: adapt(value).getquoted().decode() for name, value in self._constants.items()
        }
        return self._text % {**constants, **values}

    def types(self) -> dict[str, str]:
        """Return the types of those parameters that its text names with one."""
        return dict(_TYPED.findall(self._text))


class FixedRead:
    """A statement that reads few rows by indexes, for every request.

    It is prepared where each statement is a transaction of its own; where it is a part of one, the
    settings of its plan would go on for what follows.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement

    @cached_property
    def _alone(self) -> FixedStatement:
        return FixedStatement(self._statement, prepared=True)

    @cached_property
    def _within(self) -> FixedStatement:
        return FixedStatement(self._statement)

    def rows(self, db: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Read its rows, each with its columns by their names."""
        if is_by_statement(db):
            # A page of rows takes SQLAlchemy longer than the driver and the server together.
            return list(map(self._alone.row, self._alone.rows_alone(db, values)))
        return list(self._within.execute(db, values))


class _Process:
    """A random word for the names of this process's statements; a fork gets another word."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.word = secrets.token_hex(6)


_PROCESS: Final = _Process()


class _Prepared:
    """The texts with which a statement is prepared, and then executed."""

    def __init__(self, statement: FixedStatement, *, by_index: bool) -> None:
        names = statement.parameters
        places = {name: f"${place}" for place, name in enumerate(names, start=1)}
        self._written = statement.written(places)
        self._name = ""
        self._word = ""
        types = statement.types()
        given = ", ".join(
            f"CAST(%({name})s AS {types[name]})" if name in types else f"%({name})s"
            for name in names
        )
        # Empty parentheses are a mistake there.
        self._values = f" ({given})" if given else ""
        self._before = f"{_BY_INDEX};" if by_index else ""
        self._call = ""

    def execute(self, db: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        return db.exec_driver_sql(self.call_on(db), dict(values))

    def call_on(self, db: Connection) -> str:
        """Return the text that calls it on this connection, which has it from then on."""
        # Kept with the connection to the server, whoever borrows that from the pool.
        known = db.info
        if self._word != _PROCESS.word:
            self._name_anew(_PROCESS.word)
        if self._name not in known:
            # Its text has percent signs, which the driver leaves alone if it is given no values.
            db.exec_driver_sql(
                f"PREPARE {self._name} AS {self._written}",
                execution_options={"no_parameters": True},
            )
            known[self._name] = True
        return self._call

    def _name_anew(self, word: str) -> None:
        """Set the name that the statement has in this process, and the text that calls it."""
        whole = hashlib.blake2b(f"{word} {self._written}".encode(), digest_size=10).digest()
        # The name is sent with each call, so it is short.
        self._name = f"f{base64.b32encode(whole).decode().lower()[:_NAME_CHARS]}"
        self._call = f"{self._before}EXECUTE {self._name}{self._values}"
        # Last: another thread that sees the word also sees the name and the call.
        self._word = word


def _names(statement: ClauseElement) -> tuple[str, ...]:
    assert isinstance(statement, ReturnsRows)
    return tuple(statement.exported_columns.keys())


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _LONG
