"""Columns that may hold secrets, to encrypt secrets that are stored in clear.

A row is updated only if it has not changed since it was read. The connection must have no keys
(`common.store.connect:engine`), so that it returns the stored text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, Text, cast, literal, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB

from common.sealed_tokens import HINTS, MARK
from common.store import tables
from common.store.tables import definition_draft_save, process_definition, schedule, supervisor

_NEVER_CHANGED: Final = ("t_ds_audit_log",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedColumn:
    """A column of documents. `is_whole`: its texts are encrypted as a whole."""

    table: Table
    column: Column[Any]
    is_whole: bool

    @property
    def name(self) -> str:
        """The table and the column, for messages."""
        return f"{self.table.name}.{self.column.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """A text as it is stored, and the key of its row."""

    key: tuple[Any, ...]
    text: str


def sealed_columns() -> Iterator[SealedColumn]:
    """Yield the text and JSON columns by table, without keys and without the audit log."""
    for table in tables.metadata.sorted_tables:
        if table.name in _NEVER_CHANGED or not table.primary_key.columns:
            continue
        for column in table.columns:
            if isinstance(column.type, Text | JSONB) and not column.primary_key:
                is_whole = column is definition_draft_save.c.content
                yield SealedColumn(table=table, column=column, is_whole=is_whole)


def stored_texts(
    db: Connection, where: SealedColumn, *, after: tuple[Any, ...] | None, limit: int
) -> list[StoredText]:
    """Return texts that may hold a secret, in order of their keys, starting after a key."""
    keys = list(where.table.primary_key.columns)
    text = cast(where.column, Text)
    found = select(*keys, text).order_by(*keys).limit(limit)
    if where.is_whole:
        found = found.where(where.column.is_not(None))
    else:
        found = found.where(or_(*(text.icontains(each) for each in (*HINTS, MARK))))
    if after is not None:
        found = found.where(tuple_(*keys) > tuple_(*after))
    return [StoredText(key=tuple(row[:-1]), text=row[-1]) for row in db.execute(found)]


def replace_texts(
    db: Connection, where: SealedColumn, texts: Sequence[tuple[StoredText, str]]
) -> int:
    """Replace texts that have not changed since they were read; return the number of rows."""
    changed = 0
    for before, after in texts:
        key = zip(where.table.primary_key.columns, before.key, strict=True)
        statement = (
            update(where.table)
            .where(*(column == value for column, value in key))
            .where(cast(where.column, Text) == before.text)
            .values({where.column: cast(literal(after, Text), where.column.type)})
        )
        changed += db.execute(statement).rowcount
    return changed


def has_encrypted_parameters(db: Connection) -> bool:
    """Return whether a definition, a schedule or a stream has an encrypted secret."""
    return bool(
        db.scalar(
            select(
                or_(
                    *(
                        select(1).where(cast(column, Text).contains(MARK)).exists()
                        for column in (
                            process_definition.c.process_definition_json,
                            process_definition.c.global_params,
                            schedule.c.start_params,
                            supervisor.c.spec,
                        )
                    )
                )
            )
        )
    )
