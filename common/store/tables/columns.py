"""The parts that tables are made of: their metadata, and the columns and checks that many have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    String,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

COMMAND_TYPES: Final = tuple(range(14))
EXECUTION_STATES: Final = tuple(range(18))


READER_COLUMNS: Final = "reader_columns"
"""The key of `Table.info` that holds what `seen_by_reader` returns."""


def seen_by_reader(columns: str, *, masked: str = "") -> dict[str, Any]:
    """List the columns that the reading role sees; it does not see a table without a list.

    `masked` columns contain texts of programs; the view hides a text that may contain a secret. Do
    not list columns that may contain parameter values, scripts, addresses of people or credentials.
    """
    return {READER_COLUMNS: (tuple(columns.split()), tuple(masked.split()))}


def listed(codes: Iterable[int]) -> str:
    return ", ".join(str(int(code)) for code in codes)


def quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def known(column: str, codes: Iterable[int]) -> CheckConstraint:
    """The column holds one of the codes of its enum (or NULL, where the column allows that)."""
    return CheckConstraint(f"{column} IN ({listed(codes)})", name=column)


def among(codes: Iterable[int]) -> str:
    """Return the condition `= ANY …` on codes for rows that change all the time.

    PostgreSQL parses the tree of each CHECK and of each trigger's condition for each statement that
    writes, in which this is one constant and a list is one for each code.
    """
    return f"= ANY ('{{{','.join(str(int(code)) for code in codes)}}}'::smallint[])"


def known_often(column: str, codes: Iterable[int]) -> CheckConstraint:
    """The same as `known`, for tables whose rows change all the time."""
    return CheckConstraint(f"{column} {among(codes)}", name=column)


def not_empty(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} <> ''", name=f"{column}_not_empty")


def own_id() -> Column[int]:
    return Column("id", Integer, Identity(), primary_key=True)


def code(name: str, default: int | None = None, *, nullable: bool = False) -> Column[int]:
    return Column(name, SmallInteger, server_default=_default(default), nullable=nullable)


def own_code() -> Column[int]:
    """The number by which DolphinScheduler's clients name the row: its id, set by a trigger."""
    return Column("code", BigInteger, nullable=False)


def code_is_no_other_id() -> CheckConstraint:
    """A code that was kept at an import is greater than any id, so that it is never one's."""
    return CheckConstraint("code = id OR code > 2147483647", name="code")


def environment_code() -> Column[int]:
    """The environment of tasks that name none; -1 is none."""
    return Column("environment_code", BigInteger, server_default=text("'-1'"), nullable=False)


def number(name: str, default: int | None = None, *, nullable: bool = False) -> Column[int]:
    return Column(name, Integer, server_default=_default(default), nullable=nullable)


def _default(value: int | None) -> Any:
    return None if value is None else text(str(value) if value >= 0 else f"'{value}'")


def time(name: str, *, nullable: bool = True) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def time_now(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), server_default=text("now()"), nullable=False)


def time_now_nullable(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), server_default=text("now()"))


def word(name: str, default: str | None = None) -> Column[str]:
    """One of a few words, which people read and type."""
    return Column(
        name,
        String(16),
        server_default=None if default is None else text(f"'{default}'"),
        nullable=False,
    )


def known_words(column: str, words: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({quoted(words)})", name=column)


def times() -> tuple[Column[Any], Column[Any]]:
    return time_now("create_time"), time_now("update_time")
