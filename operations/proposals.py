"""Proposals: a definition as its author wants it, put in force once somebody else approves.

A proposal is frozen, and belongs to what was in force when it was made: it is approved on top of
that alone. Whoever has proposed it never decides about it, whatever role they have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.clock import SystemClock
from common.definition_diff import Difference, difference
from common.errors import NotAllowedError, NotFoundError
from common.model.proposals import ProposalState
from common.model.rights import Action, Principal
from common.store.people import drafts as draft_store
from common.store.people import proposals as store
from common.store.people.definitions import definition_by_name, lock_imports
from common.store.people.drafts import author_of
from common.store.people.proposals import ProposalRow
from common.store.people.rights import Thing, held
from operations.bindings import ForeignReference, foreign_references, with_bindings
from operations.definition_tags import check_tag, definition_tag
from operations.definition_versions import put_in_force, rebound_detail
from operations.drafts import (
    Target,
    base_document,
    begun,
    difference_since,
    in_force,
    since,
    sound,
    target_of,
    targeted,
    tell,
)
from operations.errors import ForbiddenError, NameTakenError, UsageError
from operations.granted_references import check_proposed_granted
from operations.importing import Imported
from operations.session import Session, operation

if TYPE_CHECKING:
    from datetime import datetime

    from common.store.connect import Connection

_LONGEST: Final = store.LONGEST_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposal with its document, and with its difference to what it was made from.

    `since` is what has changed in the definition meanwhile: with any of it the proposal can't be
    approved. `why_not` is the reason why the caller can't decide on it; None if the caller can.
    `references` lists the references to definitions of other projects, with current versions.
    """

    row: ProposalRow
    document: Mapping[str, Any]
    difference: Difference
    is_outdated: bool
    since: Difference | None
    why_not: str | None
    references: tuple[ForeignReference, ...] = ()


@operation
def propose(
    session: Session,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    document: Mapping[str, Any] | None = None,
    note: str | None = None,
    expected: str | None = None,
) -> ProposalRow:
    """Propose a document, or the principal's draft, in the place of what one proposed before.

    `expected` is the tag of the draft, or that of the definition. The same thing again is the
    proposal that waits already. Mistakes are found now (`InvalidFilesError`), and not at last.
    """
    _check_text("note", note)
    with targeted(session, "definition.propose", definition) as made:
        db, at = made.db, SystemClock().now()
        lock_imports(db)
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        tell(made, target)
        revision: int | None = None
        if document is None:
            known = begun(db, session.principal, target, expected)
            content, revision = known.content, known.revision
        else:
            _check_expected(db, target, expected)
            content = json.dumps(document)
        sound_document = sound(session, content, target)
        check_proposed_granted(db, sound_document, target.project_id)
        # The approval covers the bindings too.
        wanted = with_bindings(db, sound_document, project_id=target.project_id, row=target.row)
        name = str(wanted["name"])
        if target.row is None and definition_by_name(db, name, project_id=target.project_id):
            raise NameTakenError(f"there is a process definition {name!r} already")
        if target.row is not None and difference(in_force(db, target), wanted).is_none:
            raise NotAllowedError(f"{target.words} is in force as you propose it already")
        made.object_name = name
        number = _proposed(
            db, session, target, wanted, name=name, revision=revision, note=note, at=at
        )
        made.detail = f"proposal {number}"
        return _found(db, target, number)


def _proposed(
    db: Connection,
    session: Session,
    target: Target,
    document: dict[str, Any],
    *,
    name: str,
    revision: int | None,
    note: str | None,
    at: datetime,
) -> int:
    principal = session.principal
    base_tag = None if target.row is None else definition_tag(db, target.row)
    text = json.dumps(document)
    former = store.waiting_of(db, principal, project_id=target.project_id, name=name)
    if former is not None:
        # A second press of the button, or a second sending of the request.
        if (former.base_tag, former.note) == (base_tag, note or None) and store.document_of(
            db, former.id
        ) == text:
            return former.id
        if not store.decide(db, principal, former.id, ProposalState.REPLACED, at=at):
            raise NotAllowedError(f"proposal {former.id} has been decided just now; look at it")
    # Nothing of this stays: it is the whole import, with everything that the database can refuse.
    with db.begin_nested() as trial:
        _put(db, session, target, document, author=principal, name=name, at=at, note=None)
        trial.rollback()
    return store.add_proposal(
        db,
        principal,
        project_id=target.project_id,
        definition_id=target.definition_id,
        name=name,
        base_version=0 if target.row is None else target.row.version,
        base_tag=base_tag,
        draft_revision=revision,
        document=text,
        note=note or None,
        at=at,
    )


@operation
def approve(
    session: Session,
    proposal: int,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
) -> ProposalRow:
    """Put what somebody else has proposed in force as a new version, with the role `admin`.

    `NotAllowedError` if it waits no more, or if the definition has changed since.
    """
    with targeted(session, "definition.approve", definition) as made:
        db, at, principal = made.db, SystemClock().now(), session.principal
        # Before the row of the proposal, as everybody takes them.
        lock_imports(db)
        target = target_of(db, principal, Action.ADMIN, definition, project)
        tell(made, target)
        row = _found(db, target, proposal)
        made.object_name, made.detail = row.name, f"proposal {row.id}"
        _check_other(principal, row)
        if not store.decide(db, principal, row.id, ProposalState.APPROVED, at=at):
            raise _decided(_found(db, target, proposal))
        if target.row is not None and definition_tag(db, target.row) != row.base_tag:
            raise NotAllowedError(
                f"{target.words} has changed since proposal {row.id} was made:"
                f" {since(db, target, row.base_version)}; its author has to merge that, and to"
                " propose it again"
            )
        if target.row is None and definition_by_name(db, row.name, project_id=row.project_id):
            raise NameTakenError(f"there is a process definition {row.name!r} by now")
        document = json.loads(store.document_of(db, row.id))
        if with_bindings(db, document, project_id=row.project_id, row=target.row) != document:
            raise NotAllowedError(
                f"names in proposal {row.id} now mean other definitions; its author has to propose"
                " it again"
            )
        author = Principal(
            user_id=row.user_id or 1, user_name=row.user_name, owns_database=row.user_id == 0
        )
        said = f": {row.note}" if row.note else ""
        imported = _put(
            db,
            session,
            target,
            document,
            author=author,
            name=row.name,
            at=at,
            note=f"proposal {row.id}, approved by {principal.user_name}{said}",
            number=row.id,
        )
        if not store.keep_version(db, row.id, definition_id=imported.id, version=imported.version):
            raise _decided(_found(db, target, proposal))
        if row.draft_revision is not None:
            draft_store.delete_proposed(
                db,
                project_id=row.project_id,
                definition_id=target.definition_id,
                user_id=row.user_id,
                revision=row.draft_revision,
            )
        made.object_id = imported.id
        made.detail = rebound_detail(
            f"proposal {row.id} of {row.user_name}, version {imported.version}", [imported]
        )
        return store.find_proposal(db, row.id) or row


@operation
def reject(
    session: Session,
    proposal: int,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    reason: str,
) -> ProposalRow:
    """Refuse what somebody else has proposed, and say why, with the role `admin`."""
    if not reason.strip():
        raise UsageError("reason", "is missing: the author has to know it")
    _check_text("reason", reason)
    with targeted(session, "definition.reject", definition) as made:
        db = made.db
        target = target_of(db, session.principal, Action.ADMIN, definition, project)
        tell(made, target)
        row = _found(db, target, proposal)
        made.object_name, made.detail = row.name, f"proposal {row.id}: {reason}"
        _check_other(session.principal, row)
        return _ended(db, session, target, row, ProposalState.REJECTED, reason=reason)


@operation
def withdraw(
    session: Session,
    proposal: int,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
) -> ProposalRow:
    """Take a proposal back: one's own, or with the role `admin` anybody's."""
    with targeted(session, "definition.withdraw", definition) as made:
        db = made.db
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        tell(made, target)
        row = _found(db, target, proposal)
        made.object_name, made.detail = row.name, f"proposal {row.id}"
        if row.user_id != author_of(session.principal):
            target_of(db, session.principal, Action.ADMIN, definition, project)
        return _ended(db, session, target, row, ProposalState.WITHDRAWN)


@operation
def proposals(
    session: Session,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    before: int | None = None,
    limit: int,
) -> list[ProposalRow]:
    """The newest proposals of a definition first, or those of new definitions in a project."""
    with session.engine.connect() as db:
        target = target_of(db, session.principal, Action.VIEW, definition, project)
        return store.proposals_of(
            db,
            project_id=target.project_id,
            definition_id=target.definition_id,
            before=before,
            limit=limit,
        )


@operation
def proposal_detail(
    session: Session,
    proposal: int,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
) -> Proposal:
    """A proposal with its document, its difference, and what keeps it from being approved."""
    with session.engine.connect() as db:
        target = target_of(db, session.principal, Action.VIEW, definition, project)
        row = _found(db, target, proposal)
        document = json.loads(store.document_of(db, row.id))
        # One of a new definition that was approved is of a definition by now.
        of_new = row.base_tag is None
        base = base_document(
            db, Target(project_id=row.project_id, row=None) if of_new else target, row.base_version
        )
        waits = row.state is ProposalState.WAITING
        is_outdated = (
            waits and target.row is not None and definition_tag(db, target.row) != row.base_tag
        )
        return Proposal(
            row=row,
            document=document,
            difference=difference(base, document),
            is_outdated=is_outdated,
            since=difference_since(db, target, row.base_version) if is_outdated else None,
            why_not=_why_not(db, session.principal, target, row, is_outdated=is_outdated),
            references=foreign_references(db, document, project_id=row.project_id, row=target.row),
        )


def waiting_for_me(session: Session, *, limit: int) -> list[ProposalRow]:
    """The proposals of others that the principal may decide about, the oldest first."""
    with session.engine.connect() as db:
        return store.waiting_for(db, session.principal, limit=limit)


def _why_not(
    db: Connection, principal: Principal, target: Target, row: ProposalRow, *, is_outdated: bool
) -> str | None:
    if row.state is not ProposalState.WAITING:
        return str(_decided(row))
    if row.user_id == author_of(principal):
        return f"needs somebody else than {row.user_name}"
    if not principal.owns_database:
        thing, number = (
            (Thing.PROJECT, row.project_id)
            if target.row is None
            else (Thing.DEFINITION, target.row.id)
        )
        rights = held(db, principal, thing, number)
        if rights is None or not rights.actions & Action.ADMIN:
            return "needs somebody with the role admin in the project"
    if is_outdated:
        return (
            f"the definition has changed since ({since(db, target, row.base_version)}): its author"
            " has to merge that, and to propose it again"
        )
    return None


def _put(
    db: Connection,
    session: Session,
    target: Target,
    document: Mapping[str, Any],
    *,
    author: Principal,
    name: str,
    at: datetime,
    note: str | None,
    number: int | None = None,
) -> Imported:
    return put_in_force(
        db,
        session,
        author,
        {**document, "name": name if target.row is None else target.row.name},
        project_id=target.project_id,
        definition_id=target.definition_id,
        place=Path("proposal" if number is None else f"proposal {number}"),
        at=at,
        note=note,
    )


def _ended(
    db: Connection,
    session: Session,
    target: Target,
    row: ProposalRow,
    wanted: ProposalState,
    *,
    reason: str | None = None,
) -> ProposalRow:
    at = SystemClock().now()
    if not store.decide(db, session.principal, row.id, wanted, reason=reason, at=at):
        raise _decided(_found(db, target, row.id))
    return _found(db, target, row.id)


def _found(db: Connection, target: Target, proposal: int) -> ProposalRow:
    """The proposal of this target; of a project it may be that of a definition made since."""
    row = store.find_proposal(db, proposal) if 0 < proposal < 2**31 else None
    if (
        row is None
        or row.project_id != target.project_id
        or (target.row is not None and row.definition_id != target.row.id)
        or (target.row is None and row.base_tag is not None)
    ):
        raise NotFoundError(f"there is no proposal {proposal} of {target.words}")
    return row


def _check_other(principal: Principal, row: ProposalRow) -> None:
    if row.user_id == author_of(principal):
        raise ForbiddenError(
            f"proposal {row.id} needs somebody else than {row.user_name}, who has made it"
        )


def _decided(row: ProposalRow) -> NotAllowedError:
    by = "" if row.decided_by is None else f" by {row.decided_by}"
    why = f": {row.reason}" if row.reason else ""
    return NotAllowedError(f"proposal {row.id} was {row.state.name.lower()}{by}{why}")


def _check_expected(db: Connection, target: Target, expected: str | None) -> None:
    if expected is not None and target.row is not None:
        check_tag(db, target.row, expected)


def _check_text(field: str, text: str | None) -> None:
    if text is not None and (len(text) > _LONGEST or "\0" in text):
        raise UsageError(field, f"is at most {_LONGEST} characters, without NUL")
