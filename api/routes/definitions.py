"""Definitions: listed, shown, linted, made, replaced, imported, exported, released, deleted.

A body is what a file of definitions holds. It is read strictly here, and not by the framework:
repeated keys, NaN and deep nesting are mistakes with a place.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query, Response

from api import cursors, lint_apart
from api.answers import DefinitionDetail, DefinitionPage, Released
from api.asking import Asked, AskedRequest, Condition, Content, needed
from api.cursors import After, Limit
from api.definition_answers import (
    DeletedDefinitions,
    DeleteDefinitionsRequest,
    ExecutionTypeList,
    ExecutionTypeRequest,
    Exported,
    Linted,
    ReleasedList,
    ReleaseRequest,
    SavedDefinition,
    SavedDefinitionList,
)
from api.policy import BASE
from api.route import Id, Route, delete, get, post, put
from common.model.states import ExecutionType, ReleaseState
from common.strict_yaml import yaml_text
from operations import definitions as operations
from operations.definition_files import DefinitionDocument
from operations.definitions import definition_detail, definition_page, release
from operations.deleting import delete_definitions
from operations.documents.definitions import (
    definition_row,
    execution_type_row,
    imported_row,
    node_row,
    released_row,
)
from operations.documents.deletions import deleted_definition_rows
from operations.documents.schedules import schedule_row
from operations.errors import UsageError
from operations.importing import Imported
from operations.linting import read_content
from operations.rights import check_author
from operations.session import Session

_LARGEST: Final = 2**31 - 1
YAML: Final = "application/yaml"
_OBJECT: Final = {"type": "object", "description": "A definition, as a file has it."}
_FILE: Final = {
    "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}],
    "description": "What a file has: a definition, a list of them, an export of DolphinScheduler.",
}

ProjectId = Annotated[int, Query(ge=1, le=_LARGEST, description="The project they go to.")]
Online = Annotated[
    bool | None, Query(description="The release state afterwards; else that of before.")
]
Name = Annotated[str | None, Query(max_length=1000, description="The name of the only definition.")]
Mapped = Annotated[
    list[str] | None,
    Query(alias="map", max_length=1000, description="KIND:ID=NAME: what an id is called here."),
]
Strict = Annotated[bool | None, Query(description="True if unknown keys are mistakes.")]


def list_definitions(
    session: Asked,
    name: Annotated[str | None, Query(max_length=255)] = None,
    project_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the definitions that you may see, by id."""
    found = definition_page(
        session,
        name=name,
        project_id=project_id,
        after=cursors.read("definitions", after) or 0,
        limit=limit,
    )
    rows = [definition_row(each) for each in found]
    return {
        "items": rows,
        "next": cursors.next_of("definitions", [each.id for each in found], limit),
    }


def show_definition(
    id: Id,  # noqa: A002  # The path's name.
    session: Asked,
    response: Response,
) -> dict[str, Any]:
    """Show a definition with its tasks, its schedules, and its mistakes if it can't run."""
    found = definition_detail(session, id)
    response.headers["ETag"] = f'"{found.tag}"'
    return {
        **definition_row(found.row),
        "execution_type": found.execution_type.name,
        "complement_date_rule": found.row.date_rule,
        "tasks": [node_row(each) for each in found.nodes],
        "schedules": [
            schedule_row(each, zone=found.zone) | {"definition_online": each.definition_is_online}
            for each in found.schedules
        ],
        "mistakes": list(found.mistakes),
    }


def export(
    id: Id,  # noqa: A002
    session: Asked,
    response: Response,
    as_: Annotated[
        Literal["json", "yaml"],
        Query(alias="as", description="YAML is the file itself, with scripts as blocks of text."),
    ] = "json",
) -> Any:
    """Export a definition as an import takes it, with references in the place of its secrets.

    With `as=yaml` the header `Orcaflow-References` names the variables that stand for them.
    """
    found = operations.export_definition(session, id)
    tag = f'"{definition_detail(session, id).tag}"'
    if as_ == "yaml":
        headers = {"ETag": tag, "Orcaflow-References": ", ".join(found.references)}
        return Response(yaml_text(found.document), media_type=YAML, headers=headers)
    response.headers["ETag"] = tag
    return {"document": found.document, "references": list(found.references)}


def create(
    session: Asked, content: Content, response: Response, project_id: ProjectId = 1
) -> dict[str, object]:
    """Make a definition, which is OFFLINE; its name has to be free in the project (409)."""
    (made,) = operations.import_definitions(
        session,
        [_only(session, content)],
        online=False,
        environment={},
        project_id=project_id,
        only_new=True,
    )
    response.headers["Location"] = f"{BASE}/definitions/{made.id}"
    return saved(session, made, response)


def replace(
    id: Id,  # noqa: A002
    session: Asked,
    content: Content,
    *,
    response: Response,
    condition: Condition = None,
    online: Online = None,
) -> dict[str, object]:
    """Put another content, and perhaps another name, in the place of a definition.

    It has to be OFFLINE (409), and as you have read it (412 names who was faster). References to
    secrets keep those that it has.
    """
    document = _only(session, content)
    made = operations.replace_definition(
        session, id, document, expected=needed(condition), online=online
    )
    return saved(session, made, response)


def import_file(
    session: Asked,
    content: Content,
    *,
    project_id: ProjectId = 1,
    online: Online = None,
    name: Name = None,
    mapped: Mapped = None,
    strict: Strict = None,
) -> dict[str, Any]:
    """Import definitions: all of them or, if anything is wrong, none.

    They replace those of the same names. Schedules of files are made too, always OFFLINE.
    `unmapped` is what has no place here. Exports of DolphinScheduler 1.x, 2.x and 3.x are taken.
    """
    documents = _read(session, content, name=name, mapped=mapped, strict=strict)
    imported = operations.import_definitions(
        session, documents, online=online, environment={}, project_id=project_id
    )
    return {"items": [_row(each) for each in imported]}


def lint(
    session: AskedRequest,
    content: Content,
    name: Name = None,
    mapped: Mapped = None,
    strict: Strict = None,
) -> dict[str, object]:
    """Check definitions for mistakes without saving them, as an author of any project.

    The answer lists the first 1,000 mistakes, each with its place.
    """
    with session.engine.connect() as db:
        check_author(db, session.principal)
    return lint_apart.lint(
        content,
        resources=session.config.data_dir / "resources",
        name=name,
        mapped=mapped or (),
        strict=strict,
        is_over=session.is_over,
    )


def online(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Release a definition, so that it can run."""
    return _released(session, id, ReleaseState.ONLINE)


def offline(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let no new run of a definition begin, and set its schedules OFFLINE; what runs goes on."""
    return _released(session, id, ReleaseState.OFFLINE)


def release_all(given: ReleaseRequest, session: Asked) -> dict[str, Any]:
    """Bring several definitions ONLINE or OFFLINE, all or none."""
    found = release(session, given.ids, ReleaseState[given.release_state])
    return {
        "items": [
            released_row(each) | {"has_offline_schedules": each.has_offline_schedules}
            for each in found
        ]
    }


def set_execution_type(given: ExecutionTypeRequest, session: Asked) -> dict[str, Any]:
    """Set what new runs of definitions do while another goes on, of all or of none."""
    wanted = ExecutionType[given.execution_type]
    found = operations.set_execution_type(session, given.ids, wanted)
    return {"items": [execution_type_row(each) for each in found]}


def delete_all(given: DeleteDefinitionsRequest, session: Asked) -> dict[str, object]:
    """Delete definitions that are OFFLINE and that nothing needs, for good: all or none."""
    return deleted_definition_rows(
        delete_definitions(
            session, given.ids, with_instances=given.with_instances, force=given.force
        )
    )


def delete_one(
    id: Id,  # noqa: A002
    session: Asked,
    condition: Condition = None,
    *,
    with_instances: bool = False,
    force: bool = False,
) -> dict[str, object]:
    """Delete a definition that is OFFLINE and as you have read it, for good.

    Its ended runs stay as history, unless they are to go too.
    """
    return deleted_definition_rows(
        delete_definitions(
            session, [id], with_instances=with_instances, force=force, expected=needed(condition)
        )
    )


def _read(
    session: Session,
    content: bytes,
    *,
    name: str | None = None,
    mapped: list[str] | None = None,
    strict: bool | None = None,
) -> list[DefinitionDocument]:
    resources = session.config.data_dir / "resources"
    return read_content(content, resources=resources, name=name, mapped=mapped or (), strict=strict)


def _only(session: Session, content: bytes) -> DefinitionDocument:
    found = _read(session, content)
    if len(found) != 1:
        raise UsageError(None, f"the body has {len(found)} definitions, and one is needed here")
    return found[0]


def saved(session: Session, made: Imported, response: Response) -> dict[str, object]:
    """Answer with a definition that was saved, and its tag."""
    response.headers["ETag"] = f'"{definition_detail(session, made.id).tag}"'
    return _row(made)


def _row(made: Imported) -> dict[str, object]:
    findings = [
        {
            "severity": each.severity.value,
            "node": each.node,
            "key": each.key,
            "problem": each.problem,
            "cure": each.cure or None,
            "keeps_offline": each.keeps_offline,
        }
        for each in made.findings
    ]
    return imported_row(made) | {"findings": findings}


def _released(session: Session, number: int, wanted: ReleaseState) -> dict[str, Any]:
    (found,) = release(session, [number], wanted)
    return released_row(found)


ROUTES: Final[tuple[Route, ...]] = (
    get("/definitions", list_definitions, DefinitionPage, is_quick=True),
    post("/definitions", create, SavedDefinition, status=201, body=_OBJECT, is_heavy=True),
    post("/definitions/import", import_file, SavedDefinitionList, body=_FILE, is_heavy=True),
    post("/definitions/lint", lint, Linted, body=_FILE, is_heavy=True),
    post("/definitions/release", release_all, ReleasedList),
    post("/definitions/execution-type", set_execution_type, ExecutionTypeList),
    post("/definitions/delete", delete_all, DeletedDefinitions),
    get("/definitions/{id}", show_definition, DefinitionDetail),
    get("/definitions/{id}/export", export, Exported, other_media=YAML, is_heavy=True),
    put("/definitions/{id}", replace, SavedDefinition, body=_OBJECT, is_heavy=True),
    delete("/definitions/{id}", delete_one, DeletedDefinitions, is_conditional=True),
    post("/definitions/{id}/online", online, Released),
    post("/definitions/{id}/offline", offline, Released),
)
