"""Imports, exports, shows and releases definitions, and sets how their runs follow each other.

Files are read and linted by `operations.definition_files`, which needs no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from common.clock import SystemClock
from common.config import cluster_zone
from common.errors import InvalidDefinitionError, NotAllowedError, NotFoundError
from common.model.definitions import TaskNode, read_process_json
from common.model.rights import Action, Principal
from common.model.states import ExecutionType, ReleaseState
from common.store.connect import Connection
from common.store.people import definitions as store
from common.store.people.definitions import DefinitionRow
from common.store.people.projects import project_with_id
from common.store.people.rights import Thing
from common.store.people.schedule_requests import take_schedules_offline
from common.store.people.schedule_views import ScheduleView, schedules
from common.task_types import known_task_types
from common.tenant_accounts import rules_at_save
from operations import definition_versions, exporting, importing
from operations.definition_document import nodes_of, object_of
from operations.definition_files import DefinitionDocument
from operations.definition_tags import check_tag, definition_tag
from operations.errors import ForbiddenError, NameTakenError
from operations.exporting import Export
from operations.findings import Finding, Severity
from operations.granted_references import check_definition_granted
from operations.importing import Imported
from operations.lookup import candidates_of, definition_given
from operations.naming import MOST_CANDIDATES, Candidate
from operations.reviewing import check_approved, check_unreviewed
from operations.rights import change, refusing, seen
from operations.session import Session, operation

_SHOWN_MISTAKES = 5
_SHOWN_FINDINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDetail:
    """A definition with its tasks in the order of the DAG, and its schedules.

    `mistakes` says why it can't run as it stands; there are no tasks then. Times of the schedules
    are read in `zone`. `tag` is empty if it was not asked for.
    """

    row: DefinitionRow
    execution_type: ExecutionType
    nodes: tuple[TaskNode, ...]
    schedules: tuple[ScheduleView, ...]
    zone: ZoneInfo
    mistakes: tuple[str, ...]
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The release state of a definition after a change, and the schedules that it took OFFLINE.

    `has_offline_schedules` is only set by a release: schedules stay OFFLINE when it goes ONLINE.
    """

    row: DefinitionRow
    release_state: ReleaseState
    changed: bool
    schedules_taken_offline: tuple[int, ...]
    has_offline_schedules: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTypeSet:
    """The execution type of a definition after a change."""

    row: DefinitionRow
    execution_type: ExecutionType
    changed: bool


@operation
def import_definitions(
    session: Session,
    documents: Sequence[DefinitionDocument],
    *,
    online: bool | None,
    environment: Mapping[str, str],
    project_id: int = store.DEFAULT_PROJECT,
    replaces: int | None = None,
    expected: str | None = None,
    only_new: bool = False,
    whole: bool = False,
    own_codes: bool = False,
) -> list[Imported]:
    """Import the documents into a project, all or none; `online` is the release state afterwards.

    Without `online` a new definition is ONLINE, and a known one stays as it is. References to
    secrets are looked up in `environment`. `replaces` is the definition of the project whose place
    the only document takes, by whatever name; `expected` is the tag that it has to have
    (`ChangedMeanwhileError`). `only_new` refuses names that are there (`NameTakenError`), `whole`
    what would be kept OFFLINE for want of a part. With `own_codes` codes of definitions are those
    of this database.
    """
    names = ", ".join(each.name for each in documents)
    with change(session, "definition.import", "definition", object_name=names) as made:
        db = made.db
        made.project_id = project_id
        seen(db, session.principal, Action.AUTHOR, Thing.PROJECT, project_id)
        store.lock_imports(db)
        check_unreviewed(db, session.principal, project_id)
        formers = definition_versions.formers(
            db, [each.name for each in documents], project_id=project_id, replaces=replaces
        )
        if only_new:
            for each in documents:
                _check_free(db, each.name, project_id=project_id)
        if replaces is not None:
            made.object_id = replaces
            _rename(
                db,
                session,
                replaces,
                documents[0].name,
                project_id=project_id,
                expected=expected,
            )
        at = SystemClock().now()
        imported = importing.import_documents(
            db,
            documents,
            principal=session.principal,
            project_id=project_id,
            at=at,
            online=online,
            zone=cluster_zone(session.config),
            environment=environment,
            data_dir=str(session.config.data_dir),
            accounts=rules_at_save(session.config),
            own_codes=own_codes,
        )
        imported = definition_versions.keep(db, session.principal, formers, imported, at=at)
        made.detail = "; ".join(each for one in imported for each in one.rebound) or None
        imported = _placed(db, session.principal, imported, formers, project_id=project_id)
        lost = [each for one in imported for each in one.findings if each.keeps_offline]
        if whole and lost:
            raise InvalidDefinitionError(tuple(str(each) for each in lost[:_SHOWN_FINDINGS]))
        if len(imported) == 1:
            made.object_id = imported[0].id
        return imported


def _placed(
    db: Connection,
    principal: Principal,
    imported: Sequence[Imported],
    formers: Collection[int],
    *,
    project_id: int,
) -> list[Imported]:
    """Add the project to the imported definitions, and warn about names that other projects use."""
    # The chosen project limits the import, not this search for the same names elsewhere.
    wide = principal.without_choice
    project = project_with_id(db, wide, project_id)
    placed = []
    for each in imported:
        name, found = each.document.name, each.findings
        if each.id not in formers:
            others = candidates_of(
                [
                    row
                    for row in store.definition_page(db, wide, name=name, limit=MOST_CANDIDATES)
                    if row.project_id != project_id
                ]
            )
            found = (*found, *_namesakes(others))
        placed.append(
            replace(each, findings=found, project=None if project is None else project.name)
        )
    return placed


def _namesakes(others: Sequence[Candidate]) -> Iterator[Finding]:
    if others:
        yield Finding(
            severity=Severity.WARNING,
            key="name",
            problem=f"another project has it too: {', '.join(map(str, others))}",
            cure="commands that name it need --project, or an id",
        )


def replace_definition(
    session: Session,
    definition_id: int,
    document: DefinitionDocument,
    *,
    expected: str,
    online: bool | None,
) -> Imported:
    """Put a document in the place of a definition that has this tag, and is OFFLINE."""
    with refusing(session, "definition.import", "definition", definition_id) as db:
        project_id = definition_given(db, session.principal, Action.VIEW, definition_id).project_id
    (imported,) = import_definitions(
        session,
        [document],
        online=online,
        environment={},
        project_id=project_id,
        replaces=definition_id,
        expected=expected,
    )
    return imported


def _rename(
    db: Connection,
    session: Session,
    definition_id: int,
    name: str,
    *,
    project_id: int,
    expected: str | None,
) -> None:
    """Give the definition a name, by which the import then finds it."""
    row = definition_given(db, session.principal, Action.AUTHOR, definition_id)
    if row.project_id != project_id:
        raise NotFoundError(f"there is no process definition {definition_id} in this project")
    if expected is not None:
        check_tag(db, row, expected)
    if row.release_state is ReleaseState.ONLINE:
        raise NotAllowedError(
            f"process definition {row.name!r} is ONLINE and can't be changed; take it OFFLINE first"
        )
    if row.name == name:
        return
    _check_free(db, name, project_id=project_id)
    store.rename_definition(db, definition_id, name)


def _check_free(db: Connection, name: str, *, project_id: int) -> None:
    if store.definition_by_name(db, name, project_id=project_id) is not None:
        raise NameTakenError(f"there is a process definition {name!r} already")


@operation
def export_definition(
    session: Session, definition: str | int, *, with_secrets: bool = False
) -> Export:
    """The definition as a document that an import takes, here or elsewhere.

    References to the environment stand for its secrets, unless the database's owner asks for them.
    """
    if with_secrets and not session.principal.owns_database:
        raise ForbiddenError("secrets are exported by the command line at the database alone")
    with session.engine.connect() as db:
        found = definition_given(db, session.principal, Action.VIEW, definition)
        zone = cluster_zone(session.config)
        if with_secrets:
            return Export(document=exporting.exported(db, found, zone=zone), references=())
        return exporting.exported_with_references(db, found, zone=zone)


@operation
def list_definitions(session: Session) -> list[DefinitionRow]:
    """All definitions."""
    with session.engine.connect() as db:
        if not session.principal.owns_database:
            raise ForbiddenError("only the command line lists all definitions, at the database")
        return store.definitions(db, project_id=session.project_id)


def definition_page(
    session: Session,
    *,
    name: str | None = None,
    search: str | None = None,
    project_id: int | None = None,
    after: int = 0,
    limit: int,
) -> list[DefinitionRow]:
    """The definitions that the principal sees, by id, from the one after `after` on.

    `search` is part of their names, in any case.
    """
    with session.engine.connect() as db:
        return store.definition_page(
            db,
            session.principal,
            name=name,
            search=search,
            project_id=project_id,
            after=after,
            limit=limit,
        )


@operation
def definition_detail(
    session: Session, definition: str | int, *, with_tag: bool = True
) -> DefinitionDetail:
    """The definition of this name or id with everything that belongs to it.

    A tag takes longer than all the rest of a large one.
    """
    with session.engine.connect() as db:
        found = definition_given(db, session.principal, Action.VIEW, definition)
        kind = ExecutionType(store.execution_type_of(db, found.id))
        views = schedules(db, definition_id=found.id)
        tag = definition_tag(db, found) if with_tag else ""
    nodes: tuple[TaskNode, ...] = ()
    mistakes: tuple[str, ...] = ()
    try:
        graph = read_process_json(
            found.process_definition_json or "", task_types=known_task_types()
        )
    except InvalidDefinitionError as error:
        mistakes = error.mistakes
    else:
        nodes = tuple(graph.nodes[each] for each in graph.dag.names)
    return DefinitionDetail(
        row=found,
        execution_type=kind,
        nodes=nodes,
        schedules=tuple(views),
        zone=cluster_zone(session.config),
        mistakes=mistakes,
        tag=tag,
    )


def definition_with_code(session: Session, code: int) -> DefinitionRow | None:
    """The definition of any project that has this code; None if the principal sees none."""
    with session.engine.connect() as db:
        number = store.id_of_code(db, code)
        try:
            if number is not None:
                seen(db, session.principal, Action.VIEW, Thing.DEFINITION, number)
                return store.definition_by_id(db, number)
        except NotFoundError:
            pass
    return None


def execution_types(session: Session, ids: Sequence[int]) -> dict[int, ExecutionType]:
    """The behaviours of new runs of definitions by their ids; a foreign one has none."""
    if not ids:
        return {}
    with session.engine.connect() as db:
        found = store.execution_types(db, ids, principal=session.principal)
    return {each: ExecutionType(kind) for each, kind in found.items()}


def codes_of(session: Session, ids: Sequence[int]) -> dict[int, int]:
    """The codes of definitions by their ids; a foreign one has none."""
    if not ids:
        return {}
    with session.engine.connect() as db:
        return store.codes_of(db, session.principal, ids)


@operation
def release(
    session: Session, definitions: Sequence[str | int], wanted: ReleaseState
) -> list[Released]:
    """Set the release state of definitions, all or none; OFFLINE takes their schedules along.

    Raises `NotAllowedError` for one that can't run as it stands, and shall go ONLINE.
    """
    word = f"definition.{wanted.name.lower()}"
    single = definitions[0] if len(definitions) == 1 else None
    with change(
        session,
        word,
        "definition",
        object_id=single if isinstance(single, int) else None,
        object_name=", ".join(map(str, definitions)),
    ) as made:
        db = made.db
        found = [
            definition_given(db, session.principal, Action.AUTHOR, each) for each in definitions
        ]
        if len(found) == 1:
            made.object_id, made.object_name = found[0].id, found[0].name
            made.project_id = found[0].project_id
        if wanted is ReleaseState.ONLINE:
            for each in found:
                _check_tasks(each)
                check_approved(db, session.principal, each)
                check_definition_granted(db, each)
        # In the order of their ids, as everybody locks definitions.
        changed = {
            number: store.set_release_state(db, number, wanted=wanted, at=SystemClock().now())
            for number in sorted({each.id for each in found})
        }
        taken: dict[int, list[int]] = {}
        if wanted is ReleaseState.OFFLINE:
            taken = take_schedules_offline(db, sorted(changed), at=SystemClock().now())
        return [
            Released(
                row=each,
                release_state=wanted,
                changed=changed[each.id],
                schedules_taken_offline=tuple(taken.get(each.id, ())),
                has_offline_schedules=wanted is ReleaseState.ONLINE
                and any(
                    view.release_state == ReleaseState.OFFLINE
                    for view in schedules(db, definition_id=each.id)
                ),
            )
            for each in found
        ]


def _check_tasks(found: DefinitionRow) -> None:
    """Refuse tasks that can't run. A row without any is let through: it may be filled later."""
    text = found.process_definition_json or ""
    try:
        read_process_json(text, task_types=known_task_types())
    except InvalidDefinitionError as error:
        if not any(nodes_of(object_of(text))):
            return
        shown = "; ".join(error.mistakes[:_SHOWN_MISTAKES])
        raise NotAllowedError(
            f"process definition {found.name!r} can't run as it stands: {shown:.1000}"
            " (mend its file and import it again)"
        ) from error


@operation
def set_execution_type(
    session: Session, definitions: Sequence[str | int], wanted: ExecutionType
) -> list[ExecutionTypeSet]:
    """Set how new runs of definitions behave while another run goes on; all or none."""
    with change(
        session,
        "definition.execution-type",
        "definition",
        object_name=", ".join(map(str, definitions)),
    ) as made:
        db = made.db
        made.detail = wanted.name
        found = [
            definition_given(db, session.principal, Action.AUTHOR, name) for name in definitions
        ]
        if len(found) == 1:
            made.object_id, made.object_name = found[0].id, found[0].name
            made.project_id = found[0].project_id
        for each in found:
            check_unreviewed(db, session.principal, each.project_id)
        return [
            ExecutionTypeSet(
                row=each,
                execution_type=wanted,
                changed=store.set_execution_type(
                    db, each.id, wanted=int(wanted), at=SystemClock().now()
                ),
            )
            for each in found
        ]
