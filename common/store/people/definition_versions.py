"""The versions of definitions: each as it was when the next one took its place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import JSON, Connection, cast, delete, select
from sqlalchemy.dialects.postgresql import Insert, insert

from common.model.rights import Principal
from common.store.tables import process_definition_log
from common.store.transaction import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A version, by whom it was saved and when; `user_name` None: nobody is known."""

    version: int
    user_name: str | None
    note: str | None
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The parts of a version's document that say what it is, without its tasks."""

    description: str | None
    global_params: str | None
    timeout_minutes: int
    execution_type: str | None


def keep_version(
    db: Connection,
    principal: Principal,
    definition_id: int,
    version: int,
    document: str,
    *,
    note: str | None,
    at: datetime,
) -> None:
    """Keep a version with its author.

    One of that number that somebody has left behind by typing a smaller one into the row is
    replaced.
    """
    made = insert(process_definition_log).values(
        process_definition_id=definition_id,
        version=version,
        document=document,
        user_id=None if principal.owns_database else principal.user_id,
        user_name=storable(principal.user_name, 64),
        note=None if note is None else storable(note, 255),
        create_time=at,
    )
    columns = ("document", "user_id", "user_name", "note", "create_time")
    db.execute(_in_place(made, *columns))


def keep_former(
    db: Connection, definition_id: int, version: int, document: str, *, at: datetime
) -> None:
    """Keep a version as it was at its end, `at` if it is not known yet; its author stays."""
    made = insert(process_definition_log).values(
        process_definition_id=definition_id, version=version, document=document, create_time=at
    )
    db.execute(_in_place(made, "document"))


def _in_place(made: Insert, *columns: str) -> Insert:
    return made.on_conflict_do_update(
        index_elements=["process_definition_id", "version"],
        set_={each: made.excluded[each] for each in columns},
    )


def versions_of(
    db: Connection, definition_id: int, *, before: int | None = None, limit: int
) -> list[VersionRow]:
    """List the newest versions first, at most `limit`; `before`: only smaller ones."""
    row = process_definition_log.c
    statement = (
        select(row.version, row.user_name, row.note, row.create_time)
        .where(row.process_definition_id == definition_id)
        .order_by(row.version.desc())
        .limit(limit)
    )
    if before is not None:
        statement = statement.where(row.version < before)
    return [
        VersionRow(
            version=each.version,
            user_name=each.user_name,
            note=each.note,
            create_time=each.create_time,
        )
        for each in db.execute(statement)
    ]


def document_of(db: Connection, definition_id: int, version: int) -> str | None:
    """Read the document of a version; None if it is not known."""
    row = process_definition_log.c
    found: str | None = db.scalar(
        select(row.document)
        .where(row.process_definition_id == definition_id)
        .where(row.version == version)
    )
    return found


def headings(db: Connection, definition_id: int, versions: Collection[int]) -> dict[int, Heading]:
    """Read the headings of versions; those that are not known are missing."""
    row = process_definition_log.c
    document = cast(row.document, JSON)
    found = db.execute(
        select(
            row.version,
            document["description"].as_string().label("description"),
            document["globalParams"].as_string().label("global_params"),
            document["timeout"].as_integer().label("timeout"),
            document["executionType"].as_string().label("execution_type"),
        )
        .where(row.process_definition_id == definition_id)
        .where(row.version.in_(versions))
    )
    return {
        each.version: Heading(
            description=each.description,
            global_params=each.global_params,
            timeout_minutes=each.timeout or 0,
            execution_type=each.execution_type,
        )
        for each in found
    }


def delete_version(db: Connection, definition_id: int, version: int) -> bool:
    """Delete a version; False if it is not known."""
    row = process_definition_log.c
    gone = db.execute(
        delete(process_definition_log)
        .where(row.process_definition_id == definition_id)
        .where(row.version == version)
    )
    return gone.rowcount == 1
