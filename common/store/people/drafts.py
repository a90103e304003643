"""The drafts of definitions: each of one author, with its last saves.

A *save* is the text of one revision. The owner of the database, who is no user, is author 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from common.model.rights import Principal
from common.parameter_keys import Whole
from common.store.tables import definition_draft, definition_draft_save
from common.store.transaction import storable

_KEPT: Final = 20
"""The newest saves of a draft, by which that of a second window is merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """A draft as it was last saved; `base_tag` None: its author began with nothing."""

    id: int
    project_id: int
    definition_id: int | None
    user_name: str
    base_version: int
    base_tag: str | None
    revision: int
    content: str
    create_time: datetime
    update_time: datetime


def author_of(principal: Principal) -> int:
    """The number of an author; 0 is the owner of the database."""
    return 0 if principal.owns_database else principal.user_id


def find_draft(
    db: Connection, principal: Principal, *, project_id: int, definition_id: int | None
) -> DraftRow | None:
    """Read the principal's draft of a definition, or of a new one in the project."""
    row, save = definition_draft.c, definition_draft_save.c
    found = db.execute(
        select(definition_draft, save.content)
        .join_from(
            definition_draft,
            definition_draft_save,
            (save.draft_id == row.id) & (save.revision == row.revision),
        )
        .where(*_whose(author_of(principal), project_id, definition_id))
    ).first()
    if found is None:
        return None
    return DraftRow(
        id=found.id,
        project_id=found.project_id,
        definition_id=found.process_definition_id,
        user_name=found.user_name,
        base_version=found.base_version,
        base_tag=found.base_tag,
        revision=found.revision,
        content=found.content,
        create_time=found.create_time,
        update_time=found.update_time,
    )


def lock_draft(
    db: Connection, principal: Principal, *, project_id: int, definition_id: int | None
) -> None:
    """Let no other save of the principal's draft go on before the end of the transaction."""
    db.execute(
        select(definition_draft.c.id)
        .where(*_whose(author_of(principal), project_id, definition_id))
        .with_for_update()
    )


def save_of(db: Connection, draft_id: int, revision: int) -> str | None:
    """Read the text of a revision; None if it is not kept any more."""
    row = definition_draft_save.c
    found: str | None = db.scalar(
        select(row.content).where(row.draft_id == draft_id).where(row.revision == revision)
    )
    return found


def add_draft(
    db: Connection,
    principal: Principal,
    *,
    project_id: int,
    definition_id: int | None,
    base_version: int,
    base_tag: str | None,
    content: str,
    at: datetime,
) -> bool:
    """Begin a draft; False if the principal has one already."""
    made = db.scalar(
        insert(definition_draft)
        .values(
            project_id=project_id,
            process_definition_id=definition_id,
            user_id=author_of(principal),
            user_name=storable(principal.user_name, 64),
            base_version=base_version,
            base_tag=base_tag,
            create_time=at,
            update_time=at,
        )
        .on_conflict_do_nothing()
        .returning(definition_draft.c.id)
    )
    if made is None:
        return False
    db.execute(
        insert(definition_draft_save).values(draft_id=made, revision=1, content=Whole(content))
    )
    return True


def save_draft(
    db: Connection,
    draft: DraftRow,
    *,
    base_version: int,
    base_tag: str | None,
    content: str,
    at: datetime,
) -> bool:
    """Save the next revision of a draft; False if it is another one by now, or gone."""
    row = definition_draft.c
    saved = db.execute(
        update(definition_draft)
        .where(row.id == draft.id)
        .where(row.revision == draft.revision)
        .values(
            revision=draft.revision + 1,
            base_version=base_version,
            base_tag=base_tag,
            update_time=at,
        )
    )
    if saved.rowcount != 1:
        return False
    save = definition_draft_save
    _add_content(db, draft.id, draft.revision + 1, content)
    db.execute(
        delete(save)
        .where(save.c.draft_id == draft.id)
        .where(save.c.revision <= draft.revision + 1 - _KEPT)
    )
    return True


def delete_draft(db: Connection, draft: DraftRow) -> bool:
    """Delete a draft as it was read; False if it is another one by now, or gone."""
    row = definition_draft.c
    gone = db.execute(
        delete(definition_draft).where(row.id == draft.id).where(row.revision == draft.revision)
    )
    return gone.rowcount == 1


def delete_proposed(
    db: Connection, *, project_id: int, definition_id: int | None, user_id: int, revision: int
) -> bool:
    """Delete an author's draft if nothing was written in it since it was proposed."""
    gone = db.execute(
        delete(definition_draft)
        .where(*_whose(user_id, project_id, definition_id))
        .where(definition_draft.c.revision == revision)
    )
    return gone.rowcount == 1


def _whose(
    author: int, project_id: int, definition_id: int | None
) -> tuple[ColumnElement[bool], ...]:
    row = definition_draft.c
    of_definition = (
        row.process_definition_id.is_(None)
        if definition_id is None
        else row.process_definition_id == definition_id
    )
    return row.user_id == author, row.project_id == project_id, of_definition


def _add_content(db: Connection, draft_id: int, revision: int, content: str) -> None:
    # Encrypted as a whole, because an unfinished draft may be invalid JSON.
    kept = {"draft_id": draft_id, "revision": revision, "content": Whole(content)}
    db.execute(insert(definition_draft_save).values(**kept))
