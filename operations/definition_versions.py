"""Versions of definitions: kept when a definition is saved, listed, shown, compared and restored.

A version's document is what an export has, but for schedules and drawings, with references in the
place of secrets. The one that is in force is read from the definition itself; `keep` has each other
one as it was when the next took its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from common.clock import SystemClock
from common.config import cluster_zone
from common.definition_diff import Difference, difference, rebound
from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action
from common.model.states import ExecutionType
from common.store.people import definition_versions as store
from common.store.people.definitions import (
    DefinitionRow,
    definition_by_id,
    definition_by_name,
    execution_types,
    lock_imports,
)
from common.store.people.numbered_pages import MOST_COUNTED
from common.tenant_accounts import rules_at_save
from operations.definition_files import InvalidFilesError
from operations.definition_tags import check_tag, definition_tag
from operations.exporting import Export, exported_with_references
from operations.findings import Finding, Severity
from operations.granted_references import check_all_granted
from operations.importing import Imported, import_documents
from operations.linting import read_content
from operations.lookup import definition_given
from operations.numbered_pages import check_whole, slice_of
from operations.reviewing import check_unreviewed
from operations.rights import change
from operations.secret_references import references_in
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.model.rights import Principal
    from common.store.connect import Connection

LEFT_OUT: Final = ("schedules", "processDefinitionLocations", "processDefinitionConnects")
_UTC: Final = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A definition as it was before it is saved."""

    row: DefinitionRow
    execution_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version; `user_name` None: nobody is known. The one in force `is_current`."""

    version: int
    user_name: str | None
    note: str | None
    create_time: datetime
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedVersion:
    """A version with its heading; that of the one in force is None, as its row has it."""

    version: Version
    heading: store.Heading | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The difference between two versions of a definition."""

    name: str
    before: int
    after: int
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The change that a restore would make to a definition, which has this tag now."""

    row: DefinitionRow
    version: int
    tag: str
    difference: Difference


def formers(
    db: Connection, names: Sequence[str], *, project_id: int, replaces: int | None = None
) -> dict[int, Former]:
    """The definitions of these names, or the one to be replaced, by id.

    Their importer holds the lock of imports, so that nobody else saves them meanwhile.
    """
    found = (
        [definition_by_name(db, each, project_id=project_id) for each in names]
        if replaces is None
        else [definition_by_id(db, replaces)]
    )
    rows = {each.id: each for each in found if each is not None}
    kinds = execution_types(db, rows)
    return {key: Former(row=row, execution_type=kinds[key]) for key, row in rows.items()}


def keep(
    db: Connection,
    principal: Principal,
    before: Mapping[int, Former],
    imported: Sequence[Imported],
    *,
    at: datetime,
    note: str | None = None,
) -> list[Imported]:
    """Store the versions that an import created, and the versions that they supersede.

    Returns the imported definitions with their changed bindings.
    """
    return [_kept_with_bindings(db, principal, before, each, at=at, note=note) for each in imported]


def _kept_with_bindings(
    db: Connection,
    principal: Principal,
    before: Mapping[int, Former],
    each: Imported,
    *,
    at: datetime,
    note: str | None,
) -> Imported:
    if not each.changed:
        return each
    former, now = before.get(each.id), definition_by_id(db, each.id)
    old: dict[str, Any] | None = None
    if former is not None:
        row = former.row
        old = _document(db, row) | {"executionType": _kind(former.execution_type)}
        store.keep_former(db, row.id, row.version, json.dumps(old), at=row.update_time)
    if now is None:
        return each
    document = _document(db, now)
    text = json.dumps(document)
    store.keep_version(db, principal, now.id, now.version, text, note=note, at=at)
    changes = () if old is None else rebound(old, document)
    return replace(each, rebound=changes, findings=(*each.findings, *map(_of_rebinding, changes)))


def _of_rebinding(change: str) -> Finding:
    return Finding(severity=Severity.WARNING, key="tasks", problem=change)


def rebound_detail(detail: str, imported: Iterable[Imported]) -> str:
    """Return the detail of an audit line with the changed bindings."""
    return "; ".join((detail, *(each for one in imported for each in one.rebound)))


@operation
def versions(
    session: Session, definition: str | int, *, limit: int, before: int | None = None
) -> list[Version]:
    """The newest versions of a definition first; `before`: only smaller ones."""
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.VIEW, definition)
        return _versions(db, row, limit=limit, before=before)


def _versions(
    db: Connection, row: DefinitionRow, *, limit: int, before: int | None = None
) -> list[Version]:
    # Somebody may have typed a smaller number into the row: what is above it is no version.
    above = row.version + 1 if before is None else min(before, row.version + 1)
    found = [
        Version(
            version=each.version,
            user_name=each.user_name,
            note=each.note,
            create_time=each.create_time,
            is_current=each.version == row.version,
        )
        for each in store.versions_of(db, row.id, before=above, limit=limit)
    ]
    if above > row.version and not any(each.is_current for each in found):
        current = Version(
            version=row.version,
            user_name=None,
            note=None,
            create_time=row.update_time,
            is_current=True,
        )
        found = [current, *found][:limit]
    return found


def version_page(
    session: Session, definition_id: int, page: int, size: int
) -> tuple[list[HeadedVersion], int]:
    """The versions of a page by number, the newest first, and the number of all."""
    wanted = slice_of(page, size)
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.VIEW, definition_id)
        known = _versions(db, row, limit=MOST_COUNTED)
        check_whole(len(known), page, size)
        shown = known[wanted.offset : wanted.offset + wanted.limit]
        headings = store.headings(db, row.id, [each.version for each in shown])
    return [
        HeadedVersion(version=each, heading=None if each.is_current else headings.get(each.version))
        for each in shown
    ], len(known)


@operation
def export_version(session: Session, definition: str | int, version: int) -> Export:
    """A version of a definition as an import takes it; `NotFoundError` if it was not kept."""
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.VIEW, definition)
        document = _kept(db, row, version)
    return Export(document=document, references=references_in(document))


@operation
def compare(
    session: Session,
    definition: str | int,
    *,
    before: int | None = None,
    after: int | None = None,
) -> Compared:
    """The difference of two versions: without `after` to the one in force, from the one before."""
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.VIEW, definition)
        later = row.version if after is None else after
        earlier = _one_before(db, row, later) if before is None else before
        old, new = _kept(db, row, earlier), _kept(db, row, later)
    return Compared(name=row.name, before=earlier, after=later, difference=difference(old, new))


def _one_before(db: Connection, row: DefinitionRow, version: int) -> int:
    known = store.versions_of(db, row.id, before=version, limit=1)
    if not known:
        raise NotFoundError(
            f"no version of {row.name!r} before {version} is known; see"
            f" `orcaflow definition versions {row.name}`"
        )
    return known[0].version


def plan_restore(session: Session, definition_id: int, version: int | None = None) -> RestorePlan:
    """Work out what `restore` would change; without a version it is the one before that in force.

    For whoever may restore it.
    """
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.AUTHOR, definition_id)
        chosen = _one_before(db, row, row.version) if version is None else version
        now, then = _kept(db, row, row.version), _kept(db, row, chosen)
        tag = definition_tag(db, row)
    return RestorePlan(row=row, version=chosen, tag=tag, difference=difference(now, then))


@operation
def restore(
    session: Session, definition: str | int, version: int, *, expected: str | None = None
) -> Imported:
    """Save what a definition was in a version once more, as its newest version.

    `expected` is the tag that it has to have (`ChangedMeanwhileError`).

    It keeps its name, its schedules and its release state. Secrets are those that it has now. An
    old version that can't be saved any more is an `InvalidFilesError`.
    """
    with change(
        session,
        "definition.restore",
        "definition",
        object_id=definition if isinstance(definition, int) else None,
        object_name=definition if isinstance(definition, str) else None,
    ) as made:
        db, at = made.db, SystemClock().now()
        lock_imports(db)
        row = definition_given(db, session.principal, Action.AUTHOR, definition)
        made.object_id, made.object_name, made.project_id = row.id, row.name, row.project_id
        made.detail = f"version {version}"
        if expected is not None:
            check_tag(db, row, expected)
        check_unreviewed(db, session.principal, row.project_id)
        kept = _kept(db, row, version) | {"name": row.name}
        restored = put_in_force(
            db,
            session,
            session.principal,
            kept,
            project_id=row.project_id,
            definition_id=row.id,
            place=place_of(version),
            at=at,
            note=f"version {version} again",
        )
        made.detail = rebound_detail(made.detail, [restored])
        return restored


def put_in_force(
    db: Connection,
    session: Session,
    author: Principal,
    document: Mapping[str, Any],
    *,
    project_id: int,
    definition_id: int | None,
    place: Path,
    at: datetime,
    note: str | None,
    strict: bool = False,
) -> Imported:
    """Save a document as the newest version of its definition, or as a new one, by this author.

    It keeps its release state, and a new one is ONLINE. Secrets are those that it has now.
    `InvalidFilesError` names `place` as that of its mistakes. The caller holds the lock of imports.
    """
    before = {}
    if definition_id is not None:
        before = formers(db, (), project_id=project_id, replaces=definition_id)
    with _placed(place):
        documents = read_content(
            json.dumps(document).encode(),
            resources=session.config.data_dir / "resources",
            strict=strict,
        )
        imported = import_documents(
            db,
            documents,
            principal=author,
            project_id=project_id,
            at=at,
            online=None,
            zone=cluster_zone(session.config),
            environment={},
            data_dir=str(session.config.data_dir),
            accounts=rules_at_save(session.config),
        )
    # An import without its grants would go OFFLINE. A definition in force must not: refuse instead.
    check_all_granted(imported[0].findings, f"{imported[0].document.name!r} is not put in force")
    return keep(db, author, before, imported, at=at, note=note)[0]


def delete_version(session: Session, definition: str | int, version: int) -> DefinitionRow:
    """Delete a version that is kept; `NotAllowedError` for the one in force.

    Runs have their own copy of what they run.
    """
    with change(
        session,
        "definition.delete-version",
        "definition",
        object_id=definition if isinstance(definition, int) else None,
        object_name=definition if isinstance(definition, str) else None,
    ) as made:
        db = made.db
        lock_imports(db)
        row = definition_given(db, session.principal, Action.ADMIN, definition)
        made.object_id, made.object_name, made.project_id = row.id, row.name, row.project_id
        made.detail = f"version {version}"
        if version == row.version:
            raise NotAllowedError(
                f"version {version} of {row.name!r} is in force; save or restore another one first"
            )
        if not 1 <= version < row.version or not store.delete_version(db, row.id, version):
            raise _unknown(row, version)
        return row


@contextmanager
def _placed(file: Path) -> Iterator[None]:
    """Name a version, a draft or a proposal as the place of mistakes, which come from no file."""
    try:
        yield
    except InvalidFilesError as error:
        raise InvalidFilesError(
            [replace(each, place=replace(each.place, file=file)) for each in error.found]
        ) from None


def place_of(version: int) -> Path:
    """The name of a version in the places of its mistakes."""
    return Path(f"version {version}")


def _kept(db: Connection, row: DefinitionRow, version: int) -> dict[str, Any]:
    if version == row.version:
        return _document(db, row)
    text = store.document_of(db, row.id, version) if 1 <= version < row.version else None
    if text is None:
        raise _unknown(row, version)
    found: dict[str, Any] = json.loads(text)
    return found


def _unknown(row: DefinitionRow, version: int) -> NotFoundError:
    return NotFoundError(
        f"version {version} of {row.name!r} is not known; see"
        f" `orcaflow definition versions {row.name}`"
    )


def document_in(db: Connection, row: DefinitionRow, version: int) -> dict[str, Any] | None:
    """The document of a version that may not be known any more; None if it is not."""
    try:
        return _kept(db, row, version)
    except NotFoundError:
        return None


def _document(db: Connection, row: DefinitionRow) -> dict[str, Any]:
    document = exported_with_references(db, row, zone=_UTC).document
    for key in LEFT_OUT:
        document.pop(key, None)
    # An import that finds none leaves it as it is.
    document.setdefault("executionType", _kind(0))
    return document


def _kind(number: int) -> str:
    return ExecutionType(number).name
