"""Drafts of definitions: one for each author, saved as typed, merged, discarded and published.

A draft is text, JSON or YAML, and may be wrong: its mistakes are told, and nothing is lost. One
that nobody has begun is the version in force, at revision 0. Secrets in it give way to references,
as in versions; in a text that can't be read they can't be found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from common.clock import SystemClock
from common.definition_diff import Difference, difference
from common.definition_merge import Merged, merged
from common.errors import InvalidDefinitionError, NotAllowedError
from common.model.rights import Action
from common.store.people import drafts as store
from common.store.people.definitions import lock_imports
from common.store.people.drafts import DraftRow
from operations.bindings import with_bindings
from operations.definition_files import InvalidFilesError
from operations.definition_tags import definition_tag
from operations.definition_versions import document_in, put_in_force, rebound_detail
from operations.draft_texts import (
    JSON_KEY,
    PLACE,
    Looked,
    look_at,
    mergeable,
    named,
    parsed,
    summary,
    text_of,
    versioned,
    written,
)
from operations.errors import ChangedMeanwhileError, UsageError
from operations.exporting import exported
from operations.findings import Finding, Severity
from operations.importing import Imported
from operations.lookup import definition_given
from operations.projects import project_given
from operations.reviewing import check_unreviewed
from operations.rights import Change, change
from operations.secret_references import with_references
from operations.session import Session, operation
from operations.tags import names

if TYPE_CHECKING:
    from datetime import datetime

    from common.model.rights import Principal
    from common.store.connect import Connection
    from common.store.people.definitions import DefinitionRow

_NOTHING: Final[Mapping[str, Any]] = {"name": "", JSON_KEY: {"tasks": []}}
_NO_DRAFT: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The definition that is to be changed; `row` None: one that is to be made in the project."""

    project_id: int
    row: DefinitionRow | None

    @property
    def definition_id(self) -> int | None:
        return None if self.row is None else self.row.id

    @property
    def name(self) -> str | None:
        return None if self.row is None else self.row.name

    @property
    def words(self) -> str:
        return "the new definition" if self.row is None else repr(self.row.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft; `update_time` None: nobody has begun it. `tag` is what to change it by.

    It is outdated if the definition has changed since its base. `merged` names the parts that came
    in from a save that its author had not seen, or from the definition.
    """

    target: Target
    revision: int
    base_version: int
    content: str
    looked: Looked
    difference: Difference | None
    is_outdated: bool
    update_time: datetime | None
    tag: str
    merged: tuple[str, ...] = ()


@operation
def draft(
    session: Session, definition: str | int | None = None, *, project: str | int | None = None
) -> Draft:
    """The principal's draft of a definition, or of a new one in a project."""
    with session.engine.connect() as db:
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        return _shown(db, session, target, find(db, session.principal, target))


def text_as_read(
    session: Session,
    tag: str,
    *,
    definition: str | int | None = None,
    project: str | int | None = None,
) -> str:
    """The text that somebody has read under a tag, so that a part of it can be changed.

    The newest one, if that is not kept any more; what is saved with the tag is then refused.
    """
    with session.engine.connect() as db:
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        known = find(db, session.principal, target)
        now = written(in_force(db, target), like="{") if known is None else known.content
        if names(tag, _tag(db, target, known)):
            return now
        return _as_read(db, target, known, tag) or now


@operation
def save_draft(
    session: Session,
    content: bytes,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    expected: str,
) -> Draft:
    """Save a draft whose tag was this one, with whatever text it has.

    What was saved since is merged if it is about other tasks and settings, and refused with its
    parts (`ChangedMeanwhileError`) if it is not.
    """
    given = text_of(content)
    with targeted(session, "definition.draft", definition) as made:
        db, at = made.db, SystemClock().now()
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        tell(made, target)
        store.lock_draft(
            db,
            session.principal,
            project_id=target.project_id,
            definition_id=target.definition_id,
        )
        known = find(db, session.principal, target)
        text, lost = _without_secrets(db, target, given)
        found: Merged | None = None
        if not names(expected, _tag(db, target, known)):
            found = _merged(db, target, known, text, expected)
            text = written(found.document, like=text)
        if known is None:
            saved = store.add_draft(
                db,
                session.principal,
                project_id=target.project_id,
                definition_id=target.definition_id,
                base_version=0 if target.row is None else target.row.version,
                base_tag=_base_tag(db, target),
                content=text,
                at=at,
            )
        else:
            # A line for each save would fill the audit with pauses between words.
            made.is_told = False
            saved = known.content == text or store.save_draft(
                db,
                known,
                base_version=known.base_version,
                base_tag=known.base_tag,
                content=text,
                at=at,
            )
        now = find(db, session.principal, target)
        if not saved or now is None:
            raise _changed(db, target, now, "it was saved or discarded just now")
        shown = _shown(db, session, target, now)
        looked = replace(shown.looked, findings=(*lost, *shown.looked.findings))
        return replace(shown, looked=looked, merged=() if found is None else found.theirs)


@operation
def discard_draft(
    session: Session,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    expected: str,
) -> Draft:
    """Throw a draft away that has this tag, if there is one; what is in force takes its place."""
    with targeted(session, "definition.discard", definition) as made:
        db = made.db
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        tell(made, target)
        known = find(db, session.principal, target)
        is_left = known is None or (
            names(expected, _tag(db, target, known)) and store.delete_draft(db, known)
        )
        if not is_left:
            raise _changed(db, target, known, "it was saved meanwhile")
        return _shown(db, session, target, None)


@operation
def rebase_draft(session: Session, definition: str | int, *, expected: str | None = None) -> Draft:
    """Bring what has changed in a definition since a draft was begun into the draft.

    `NotAllowedError` names the parts that both have changed.
    """
    with targeted(session, "definition.rebase", definition) as made:
        db, at = made.db, SystemClock().now()
        target = target_of(db, session.principal, Action.AUTHOR, definition, None)
        tell(made, target)
        known = _begun(db, session.principal, target, expected)
        assert target.row is not None
        theirs = document_in(db, target.row, target.row.version)
        base = document_in(db, target.row, known.base_version)
        mine = mergeable(known.content)
        if base is None or theirs is None or mine is None:
            raise NotAllowedError(
                f"your draft of {target.words} can't be merged as it stands; mend it, or discard it"
            )
        found = merged(base, mine, theirs)
        if found.document is None:
            raise NotAllowedError(
                f"you and somebody else have changed {named(found.conflicts)} of {target.words};"
                " put it in your draft as it is in force now, or discard the draft"
            )
        text = written(found.document, like=known.content)
        if not store.save_draft(
            db,
            known,
            base_version=target.row.version,
            base_tag=_base_tag(db, target),
            content=text,
            at=at,
        ):
            raise _changed(db, target, known, "it was saved meanwhile")
        now = find(db, session.principal, target)
        return replace(_shown(db, session, target, now), merged=found.theirs)


@operation
def publish_draft(
    session: Session,
    definition: str | int | None = None,
    *,
    project: str | int | None = None,
    note: str | None = None,
    expected: str | None = None,
) -> Imported:
    """Put a draft in force as the newest version, where the project asks for no review."""
    with targeted(session, "definition.publish", definition) as made:
        db, at = made.db, SystemClock().now()
        lock_imports(db)
        target = target_of(db, session.principal, Action.AUTHOR, definition, project)
        tell(made, target)
        check_unreviewed(db, session.principal, target.project_id)
        known = _begun(db, session.principal, target, expected)
        check_base(db, target, known)
        document = sound(session, known.content, target)
        if not store.delete_draft(db, known):
            raise _changed(db, target, known, "it was saved meanwhile")
        imported = put_in_force(
            db,
            session,
            session.principal,
            document,
            project_id=target.project_id,
            definition_id=target.definition_id,
            place=PLACE,
            at=at,
            note=note,
        )
        made.object_id = imported.id
        made.detail = rebound_detail(f"version {imported.version}", [imported])
        return imported


def targeted(
    session: Session, action: str, definition: str | int | None
) -> AbstractContextManager[Change]:
    """Open the transaction of an order about a definition, or about one that is to be made."""
    return change(
        session,
        action,
        "definition",
        object_id=definition if isinstance(definition, int) else None,
        object_name=definition if isinstance(definition, str) else None,
    )


def tell(made: Change, target: Target) -> None:
    """Fill in what the order has learnt of its target."""
    made.project_id = target.project_id
    if target.row is not None:
        made.object_id, made.object_name = target.row.id, target.row.name


def target_of(
    db: Connection,
    principal: Principal,
    action: Action,
    definition: str | int | None,
    project: str | int | None,
) -> Target:
    """The definition that the principal may do this to, or a new one in a project."""
    if definition is not None:
        row = definition_given(db, principal, action, definition)
        return Target(project_id=row.project_id, row=row)
    if project is None:
        raise UsageError(None, "neither a definition nor a project is named")
    return Target(project_id=project_given(db, principal, action, project), row=None)


def find(db: Connection, principal: Principal, target: Target) -> DraftRow | None:
    """The principal's draft, if it has begun one."""
    return store.find_draft(
        db, principal, project_id=target.project_id, definition_id=target.definition_id
    )


def begun(db: Connection, principal: Principal, target: Target, expected: str | None) -> DraftRow:
    """The principal's draft, which has this tag and was made from what is in force."""
    known = _begun(db, principal, target, expected)
    check_base(db, target, known)
    return known


def _begun(db: Connection, principal: Principal, target: Target, expected: str | None) -> DraftRow:
    known = find(db, principal, target)
    if known is None:
        raise NotAllowedError(f"you have no draft of {target.words}; save one first")
    if expected is not None and not names(expected, _tag(db, target, known)):
        raise _changed(db, target, known, "it was saved meanwhile")
    return known


def check_base(db: Connection, target: Target, known: DraftRow) -> None:
    """Refuse a draft of a definition that has changed since it was begun."""
    if _is_outdated(db, target, known.base_tag):
        raise NotAllowedError(
            f"{target.words} has changed since your draft was begun:"
            f" {since(db, target, known.base_version)}; merge it into the draft first"
        )


def since(db: Connection, target: Target, version: int) -> str:
    """The parts of a definition that have changed since a version, in one line."""
    found = difference_since(db, target, version)
    if target.row is None or found is None:
        return "nobody knows how"
    return f"now version {target.row.version}, {summary(found)}"


def difference_since(db: Connection, target: Target, version: int) -> Difference | None:
    """The difference of what is in force to a version; None if that is not known any more."""
    if target.row is None:
        return None
    old = document_in(db, target.row, version)
    now = document_in(db, target.row, target.row.version)
    return None if old is None or now is None else difference(old, now)


def sound(session: Session, content: str, target: Target) -> dict[str, Any]:
    """The document of a text without mistakes, as a version has it; else `InvalidFilesError`."""
    looked = look_at(session, content, target.name)
    if looked.mistakes or looked.document is None:
        raise InvalidFilesError(looked.mistakes)
    return versioned(looked.document)


def base_document(db: Connection, target: Target, version: int) -> Mapping[str, Any]:
    """The document that a change began with, or what is in force if that is not known."""
    if target.row is None:
        return _NOTHING
    known = document_in(db, target.row, version)
    return known or document_in(db, target.row, target.row.version) or _NOTHING


def in_force(db: Connection, target: Target) -> Mapping[str, Any]:
    """The document that is in force; one without tasks for a definition that is to be made."""
    return base_document(db, target, 0 if target.row is None else target.row.version)


def _without_secrets(db: Connection, target: Target, text: str) -> tuple[str, list[Finding]]:
    """Put references for secrets; tell of those whose values are not the ones in force."""
    try:
        document = parsed(text)
    except InvalidDefinitionError:
        return text, []
    if not isinstance(document, dict) or not isinstance(document.get(JSON_KEY), dict):
        return text, []
    referenced = with_references(document)
    if referenced.document == document:
        return text, []
    known: Mapping[str, object] = {}
    if target.row is not None:
        known = with_references(exported(db, target.row, zone=ZoneInfo("UTC"))).values
    lost = sorted(
        name for name, value in referenced.values.items() if known.get(name, value) != value
    )
    lost += sorted(name for name in referenced.values if name not in known)
    return written(referenced.document, like=text), [
        Finding(
            severity=Severity.WARNING,
            key=f"$ENV{{{name}}}",
            problem="a draft keeps no secret: this stands in its place, and means the one in force",
            cure="a new secret comes in by `orcaflow definition import` at the database",
        )
        for name in lost
    ]


def _merged(
    db: Connection, target: Target, known: DraftRow | None, text: str, expected: str
) -> Merged:
    """Merge what was saved since the sender has read; `ChangedMeanwhileError` if that can't be."""
    read = _as_read(db, target, known, expected)
    base = None if read is None else mergeable(read)
    mine = mergeable(text)
    now = written(in_force(db, target), like="{") if known is None else known.content
    theirs = mergeable(now)
    if base is None or mine is None or theirs is None:
        told = summary(difference(base, theirs)) if base and theirs else "it was saved meanwhile"
        raise _changed(db, target, known, told)
    found = merged(base, mine, theirs)
    if found.document is None:
        raise _changed(db, target, known, summary(difference(base, theirs)))
    return found


def _as_read(db: Connection, target: Target, known: DraftRow | None, expected: str) -> str | None:
    for each in expected.split(","):
        kind, number, rest = _parts(each.strip().strip('"'))
        if kind == "d" and known is not None and number == known.id:
            return store.save_of(db, known.id, rest)
        if kind == "v" and target.row is not None:
            found = document_in(db, target.row, number)
            return None if found is None else json.dumps(found)
    return None


def _parts(tag: str) -> tuple[str, int, int]:
    first, _, rest = tag[1:].partition("-")
    if not (first.isascii() and first.isdigit() and len(first) < 10):
        return "", 0, 0
    return tag[0], int(first), int(rest) if rest.isascii() and rest.isdigit() else 0


def _shown(db: Connection, session: Session, target: Target, known: DraftRow | None) -> Draft:
    tag = _tag(db, target, known)
    if known is None:
        text = written(in_force(db, target), like="{")
        looked = (
            look_at(session, text, target.name)
            if target.row is not None
            else Looked(document=None, mistakes=(), findings=())
        )
        return Draft(
            target=target,
            revision=0,
            base_version=0 if target.row is None else target.row.version,
            content=text,
            looked=looked,
            difference=None,
            is_outdated=False,
            update_time=None,
            tag=tag,
        )
    looked = look_at(session, known.content, target.name)
    found = None
    if looked.document is not None:
        base = base_document(db, target, known.base_version)
        bound = with_bindings(
            db, versioned(looked.document), project_id=target.project_id, row=target.row
        )
        found = difference(base, bound)
    return Draft(
        target=target,
        revision=known.revision,
        base_version=known.base_version,
        content=known.content,
        looked=looked,
        difference=found,
        is_outdated=_is_outdated(db, target, known.base_tag),
        update_time=known.update_time,
        tag=tag,
    )


def _tag(db: Connection, target: Target, known: DraftRow | None) -> str:
    if known is not None:
        return f"d{known.id}-{known.revision}"
    return _NO_DRAFT if target.row is None else definition_tag(db, target.row)


def _base_tag(db: Connection, target: Target) -> str | None:
    return None if target.row is None else definition_tag(db, target.row)


def _is_outdated(db: Connection, target: Target, base_tag: str | None) -> bool:
    return target.row is not None and definition_tag(db, target.row) != base_tag


def _changed(
    db: Connection, target: Target, known: DraftRow | None, told: str
) -> ChangedMeanwhileError:
    return ChangedMeanwhileError(
        f"your draft of {target.words} is another one since you read it ({told}); read it again,"
        " and send your change with its ETag",
        tag=_tag(db, target, known),
    )
