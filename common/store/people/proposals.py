"""Proposals of definitions: made, read and decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, insert, or_, select, update

from common.model.proposals import ProposalState
from common.model.rights import Action, Principal
from common.store.people.drafts import author_of
from common.store.people.rights import actions_in
from common.store.tables import definition_proposal, process_definition_log
from common.store.transaction import storable

LONGEST_TEXT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRow:
    """A proposal. `definition_id` is None while it is of a new definition.

    `version` is the one that its approval has made, or has found to be the same already.
    """

    id: int
    project_id: int
    definition_id: int | None
    name: str
    user_id: int
    user_name: str
    base_version: int
    base_tag: str | None
    draft_revision: int | None
    note: str | None
    state: ProposalState
    decided_by: str | None
    reason: str | None
    decide_time: datetime | None
    version: int | None
    create_time: datetime


def is_unapproved(db: Connection, definition_id: int, version: int, *, since: datetime) -> bool:
    """Return True for a version that was saved since then, and that nobody has approved."""
    row, approved = process_definition_log.c, definition_proposal.c
    return bool(
        db.scalar(
            select(
                select(row.version)
                .where(row.process_definition_id == definition_id)
                .where(row.version == version)
                .where(row.create_time > since)
                .where(
                    ~select(approved.id)
                    .where(approved.process_definition_id == definition_id)
                    .where(approved.version == version)
                    .where(approved.state == ProposalState.APPROVED)
                    .exists()
                )
                .exists()
            )
        )
    )


def add_proposal(
    db: Connection,
    principal: Principal,
    *,
    project_id: int,
    definition_id: int | None,
    name: str,
    base_version: int,
    base_tag: str | None,
    draft_revision: int | None,
    document: str,
    note: str | None,
    at: datetime,
) -> int:
    """Insert a proposal that waits, and return its id.

    The caller holds the lock of imports, and has replaced what its author had proposed before.
    """
    made: int = db.execute(
        insert(definition_proposal)
        .values(
            project_id=project_id,
            process_definition_id=definition_id,
            name=name,
            user_id=author_of(principal),
            user_name=storable(principal.user_name, 64),
            base_version=base_version,
            base_tag=base_tag,
            draft_revision=draft_revision,
            document=document,
            note=None if note is None else storable(note, LONGEST_TEXT),
            create_time=at,
        )
        .returning(definition_proposal.c.id)
    ).scalar_one()
    return made


def find_proposal(db: Connection, proposal_id: int) -> ProposalRow | None:
    found = db.execute(_rows().where(definition_proposal.c.id == proposal_id)).first()
    return None if found is None else _row(found)


def document_of(db: Connection, proposal_id: int) -> str:
    """Read the document of a proposal that exists."""
    row = definition_proposal.c
    found: str = db.execute(select(row.document).where(row.id == proposal_id)).scalar_one()
    return found


def waiting_of(
    db: Connection, principal: Principal, *, project_id: int, name: str
) -> ProposalRow | None:
    """Read what the principal has proposed for a definition of this name, and what still waits."""
    row = definition_proposal.c
    found = db.execute(
        _rows()
        .where(row.project_id == project_id)
        .where(row.name == name)
        .where(row.user_id == author_of(principal))
        .where(row.state == ProposalState.WAITING)
    ).first()
    return None if found is None else _row(found)


def proposals_of(
    db: Connection,
    *,
    project_id: int,
    definition_id: int | None,
    before: int | None = None,
    limit: int,
) -> list[ProposalRow]:
    """List the newest proposals first: of a definition, or of new ones in the project."""
    row = definition_proposal.c
    statement = _rows().order_by(row.id.desc()).limit(limit)
    if definition_id is None:
        # One that was approved is of a definition by now, and is listed here all the same.
        statement = statement.where(row.project_id == project_id).where(
            or_(row.process_definition_id.is_(None), row.base_tag.is_(None))
        )
    else:
        statement = statement.where(row.process_definition_id == definition_id)
    if before is not None:
        statement = statement.where(row.id < before)
    return [_row(each) for each in db.execute(statement)]


def waiting_for(db: Connection, principal: Principal, *, limit: int) -> list[ProposalRow]:
    """List the proposals of others that the principal may decide, the oldest first."""
    row = definition_proposal.c
    allowed = actions_in(principal, row.project_id).op("&")(int(Action.ADMIN)) != 0
    found = db.execute(
        _rows()
        .where(row.state == ProposalState.WAITING)
        .where(row.user_id != author_of(principal))
        .where(allowed)
        .order_by(row.id)
        .limit(limit)
    )
    return [_row(each) for each in found]


def decide(
    db: Connection,
    principal: Principal,
    proposal_id: int,
    wanted: ProposalState,
    *,
    reason: str | None = None,
    at: datetime,
) -> bool:
    """End the waiting of a proposal; False if it waits no more, or does not exist."""
    row = definition_proposal.c
    changed = db.execute(
        update(definition_proposal)
        .where(row.id == proposal_id)
        .where(row.state == ProposalState.WAITING)
        .values(
            state=int(wanted),
            decided_by=author_of(principal),
            decided_by_name=storable(principal.user_name, 64),
            reason=None if reason is None else storable(reason, LONGEST_TEXT),
            decide_time=at,
        )
    )
    return changed.rowcount == 1


def keep_version(db: Connection, proposal_id: int, *, definition_id: int, version: int) -> bool:
    """Note the version that the approval of a proposal has put in force."""
    row = definition_proposal.c
    changed = db.execute(
        update(definition_proposal)
        .where(row.id == proposal_id)
        .where(row.state == ProposalState.APPROVED)
        .where(row.version.is_(None))
        .values(process_definition_id=definition_id, version=version)
    )
    return changed.rowcount == 1


def counted_waiting(db: Connection, definition_id: int) -> int:
    """Count the proposals of a definition that wait."""
    row = definition_proposal.c
    return (
        db.scalar(
            select(func.count())
            .where(row.process_definition_id == definition_id)
            .where(row.state == ProposalState.WAITING)
        )
        or 0
    )


def _rows() -> Select[Any]:
    # Without the document, which may be large.
    row = definition_proposal.c
    return select(
        row.id,
        row.project_id,
        row.process_definition_id,
        row.name,
        row.user_id,
        row.user_name,
        row.base_version,
        row.base_tag,
        row.draft_revision,
        row.note,
        row.state,
        row.decided_by_name,
        row.reason,
        row.decide_time,
        row.version,
        row.create_time,
    )


def _row(found: Any) -> ProposalRow:
    return ProposalRow(
        id=found.id,
        project_id=found.project_id,
        definition_id=found.process_definition_id,
        name=found.name,
        user_id=found.user_id,
        user_name=found.user_name,
        base_version=found.base_version,
        base_tag=found.base_tag,
        draft_revision=found.draft_revision,
        note=found.note,
        state=ProposalState(found.state),
        decided_by=found.decided_by_name,
        reason=found.reason,
        decide_time=found.decide_time,
        version=found.version,
        create_time=found.create_time,
    )
