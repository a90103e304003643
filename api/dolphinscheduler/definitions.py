"""Definitions: saved, released, listed and shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fastapi.responses import Response

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page
from api.dolphinscheduler.graph import children_of, relations, tasks
from api.dolphinscheduler.table import Row
from common.errors import InvalidDefinitionError
from common.masking import mask_value
from common.model.rights import Action
from common.model.states import ExecutionType, ReleaseState
from common.store.people.definitions import DefinitionRow
from common.store.people.rights import Thing
from operations import definitions as operations
from operations import numbered_pages
from operations.definition_document import object_of
from operations.definition_files import DefinitionDocument, read_definition_files
from operations.deleting import delete_definitions
from operations.errors import NameTakenError, UsageError
from operations.imported_secrets import referenced_rows
from operations.projects import definition_in
from operations.session import Session
from operations.task_codes import document_of, graph_of, new_code

_MOST_CODES: Final = 100
_STANDARD_INPUT: Final = Path("-")


def save(call: Call) -> Any:
    """Make a definition; it is OFFLINE."""
    project = call.project
    name = call.needed("name")
    try:
        made = _saved(call, name)
    except NameTakenError:
        raise RefusedError(Status.DEFINITION_EXISTS, name) from None
    row = definition_in(call.session, project, definition_id=made)
    return row.id if call.dialect.is_classic else shown(call, [row])[0]


def update(call: Call) -> Any:
    """Put another content, and perhaps another name, in the place of a definition."""
    row = _given(call, Action.AUTHOR)
    name = call.text("name") or row.name
    try:
        _saved(call, name, replaces=row)
    except NameTakenError:
        raise RefusedError(Status.DEFINITION_EXISTS, name) from None
    state = call.text("releaseState")
    if state is not None and state.upper() == ReleaseState.ONLINE.name:
        operations.release(call.session, [row.id], ReleaseState.ONLINE)
    row = definition_in(call.session, call.project, definition_id=row.id)
    return row.id if call.dialect.is_classic else shown(call, [row])[0]


def release(call: Call) -> Any:
    """Bring a definition ONLINE or OFFLINE."""
    row = _given(call, Action.AUTHOR)
    given = call.needed("releaseState").upper()
    states = {"0": ReleaseState.OFFLINE, "1": ReleaseState.ONLINE} | ReleaseState.__members__
    if given not in states:
        raise UsageError("releaseState", f"{given!r:.60} is neither ONLINE nor OFFLINE")
    operations.release(call.session, [row.id], states[given])
    return None if call.dialect.is_classic else True


def list_page(call: Call) -> dict[str, Any]:
    """List definitions page by page, the newest first."""
    number, size = call.page_number, call.page_size
    found, total = numbered_pages.definitions(
        call.session, call.project.id, number, size, search=call.text("searchVal")
    )
    return page(shown(call, found), total=total, number=number, size=size)


def list_all(call: Call) -> list[dict[str, Any]]:
    """List all definitions of a project."""
    rows = _all(call)
    if call.dialect.is_classic:
        return shown(call, rows)
    return [dag(call, row) for row in rows]


def list_simply(call: Call) -> list[dict[str, Any]]:
    """List the names and codes of a project's definitions."""
    return [
        {
            "id": row.id,
            "code": row.code,
            "name": row.name,
            "version": row.version,
            "releaseState": row.release_state.name,
            "projectCode": call.project.code,
        }
        for row in _all(call)
    ]


def show(call: Call) -> dict[str, Any]:
    """Show a definition with its tasks."""
    row = _given(call)
    return shown(call, [row])[0] if call.dialect.is_classic else dag(call, row)


def show_named(call: Call) -> dict[str, Any]:
    """Show a definition by its name."""
    name = call.needed("name")
    found = _named(call, name)
    if found is None:
        raise RefusedError(Status.NO_DEFINITION, name)
    return dag(call, found)


def verify_name(call: Call) -> None:
    """Refuse the name of a definition that is there."""
    name = call.needed("name")
    own = call.number("code", *call.worded("DefinitionCode"))
    found = _named(call, name)
    if found is not None and found.code != own:
        raise RefusedError(Status.DEFINITION_EXISTS, name)


def list_tasks(call: Call) -> list[dict[str, Any]]:
    """List the tasks of a definition."""
    row = _given(call)
    if call.dialect.is_classic:
        document = document_of(row.process_definition_json)
        return [dict(each) for each in document.get("tasks") or () if isinstance(each, dict)]
    return _tasks(call, row)


def delete(call: Call) -> None:
    """Delete a definition that is OFFLINE; its ended runs stay as history."""
    row = _given(call, Action.ADMIN)
    if row.release_state is ReleaseState.ONLINE:
        raise RefusedError(Status.DEFINITION_ONLINE, row.name)
    delete_definitions(call.session, [row.id], with_instances=False, force=False)


def export(call: Call) -> Response:
    """Export definitions as a file for imports, with references in place of secrets."""
    if call.dialect.is_classic:
        numbers = call.numbers("processDefinitionIds", "processDefinitionId")
        rows = [definition_in(call.session, call.project, definition_id=each) for each in numbers]
        rows = referenced_rows(call.session, rows)
        content: list[Any] = [
            {
                "projectName": call.project.name,
                "processDefinitionName": row.name,
                "processDefinitionJson": row.process_definition_json,
                "processDefinitionDescription": row.description,
            }
            for row in rows
        ]
    else:
        rows = [
            definition_in(call.session, call.project, code=each) for each in call.numbers("codes")
        ]
        rows = referenced_rows(call.session, rows)
        content = [dag(call, row) for row in rows]
    return Response(
        json.dumps(mask_value(content), ensure_ascii=False),
        media_type="application/json",
        headers={"Content-Disposition": 'attachment; filename="definitions.json"'},
    )


def import_file(call: Call) -> Any:
    """Import the definitions of a file, all or none; they are OFFLINE."""
    project = call.project
    content = call.files.get("file")
    if content is None:
        raise UsageError("file", "is missing: send a form with a part of this name")
    documents = _read(content, call.session)
    operations.import_definitions(
        call.session, documents, online=False, environment={}, project_id=project.id
    )
    return None if call.dialect.is_classic else True


def generate_codes(call: Call) -> list[int]:
    """Draw codes for new tasks, which nobody else has."""
    numbered_pages.check_project(call.session, call.project.id)
    number = call.needed_number("genNum")
    if not 1 <= number <= _MOST_CODES:
        raise UsageError("genNum", f"is a whole number from 1 to {_MOST_CODES}")
    return [new_code() for _ in range(number)]


def shown(call: Call, rows: Sequence[DefinitionRow]) -> list[dict[str, Any]]:
    """Show definitions without their graphs."""
    kinds = operations.execution_types(call.session, [row.id for row in rows])
    return [_shown(call, row, kinds.get(row.id, ExecutionType.PARALLEL)) for row in rows]


def dag(call: Call, row: DefinitionRow) -> dict[str, Any]:
    """Show a definition with its tasks and relations, in the words of the dialect."""
    graph = graph_of(row.id, row.process_definition_json)
    made: dict[str, Any] = {"taskDefinitionList": _tasks(call, row)}
    (definition,) = shown(call, [row])
    for word in call.dialect.words:
        made[f"{word}Definition"] = definition
        made[f"{word}TaskRelationList"] = relations(graph, word, row.code, row.version)
    return made


def _tasks(call: Call, row: DefinitionRow) -> list[dict[str, Any]]:
    graph = graph_of(row.id, row.process_definition_json)
    children = operations.codes_of(call.session, children_of(graph))
    return tasks(graph, call.project.code, children)


def _shown(call: Call, row: DefinitionRow, kind: ExecutionType) -> dict[str, Any]:
    params = mask_value(_global_params(row))
    made: dict[str, Any] = {
        "id": row.id,
        "name": row.name,
        "version": row.version,
        "releaseState": row.release_state.name,
        "description": row.description,
        "globalParams": json.dumps(params, ensure_ascii=False),
        "globalParamList": params,
        "globalParamMap": {
            str(each.get("prop")): str(each.get("value") or "")
            for each in params
            if isinstance(each, dict)
        },
        "createTime": moment(row.create_time, call.zone),
        "updateTime": moment(row.update_time, call.zone),
        "flag": "YES" if row.usable else "NO",
        "userId": row.user_id,
        "projectName": call.project.name,
        "locations": None,
        "scheduleReleaseState": None,
        "timeout": row.timeout_minutes,
        "tenantId": row.tenant_id,
        "warningGroupId": None,
        "modifyBy": "",
    }
    if call.dialect.is_classic:
        return made | {
            "projectId": row.project_id,
            "processDefinitionJson": row.process_definition_json,
            "connects": None,
            "receivers": None,
            "receiversCc": None,
        }
    return made | {"code": row.code, "projectCode": call.project.code, "executionType": kind.name}


def _global_params(row: DefinitionRow) -> list[Any]:
    text = row.global_params
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        found = object_of(row.process_definition_json or "{}").get("globalParams")
    return found if isinstance(found, list) else []


def _given(call: Call, action: Action = Action.VIEW) -> DefinitionRow:
    """Return the definition that the call is about."""
    project = call.project
    if call.dialect.is_classic:
        number = call.needed_number("processId", "processDefinitionId", "id")
        return definition_in(call.session, project, definition_id=number, action=action)
    code = call.needed_number("code", *call.worded("DefinitionCode"))
    return definition_in(call.session, project, code=code, action=action)


def _all(call: Call) -> list[DefinitionRow]:
    size = numbered_pages.LARGEST_PAGE
    found, total = numbered_pages.definitions(call.session, call.project.id, 1, size)
    numbered_pages.check_whole(total, 1, size + 1)
    return found


def _named(call: Call, name: str) -> DefinitionRow | None:
    found = operations.definition_page(
        call.session, name=name.replace("\0", ""), project_id=call.project.id, limit=1
    )
    return found[0] if found else None


def _saved(call: Call, name: str, *, replaces: DefinitionRow | None = None) -> int:
    """Import what the call says of a definition; return its id."""
    project = call.project
    content = _classic(call, name) if call.dialect.is_classic else _later(call, name, replaces)
    (document,) = _read(json.dumps(content).encode(), call.session)
    for finding in document.findings:
        if finding.keeps_offline:
            # It could never be released, and the answer has no place to say so.
            raise InvalidDefinitionError((str(finding),))
    (made,) = operations.import_definitions(
        call.session,
        [document],
        online=False if replaces is None else None,
        environment={},
        project_id=project.id,
        replaces=None if replaces is None else replaces.id,
        only_new=replaces is None,
        own_codes=True,
    )
    return made.id


def _classic(call: Call, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "processDefinitionJson": call.needed("processDefinitionJson"),
        "description": call.text("description", "desc") or "",
        "processDefinitionLocations": call.text("locations"),
        "processDefinitionConnects": call.text("connects"),
    }


def _later(call: Call, name: str, replaces: DefinitionRow | None) -> dict[str, Any]:
    found = {
        "processDefinition": {
            "name": name,
            "code": None if replaces is None else replaces.code,
            "description": call.text("description") or "",
            "globalParams": call.document("globalParams") or [],
            "locations": call.text("locations"),
            "timeout": call.number("timeout", default=0),
            "tenantCode": call.text("tenantCode"),
            "executionType": call.text("executionType") or "PARALLEL",
        },
        "processTaskRelationList": call.document("taskRelationJson") or [],
        "taskDefinitionList": call.document("taskDefinitionJson"),
    }
    if found["taskDefinitionList"] is None:
        raise UsageError("taskDefinitionJson", "is missing")
    return found


def _read(content: bytes, session: Session) -> list[DefinitionDocument]:
    """Read definitions as a file is; paths in them are those of the folder of resources."""
    return read_definition_files(
        [_STANDARD_INPUT],
        resources=session.config.home / "resources",
        strict=False,
        standard_input=content,
        looks_up=False,
    )


_DEFINITION: Final = "projects/{project}/{word}-definition"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=save,
        takes=Action.AUTHOR,
        thing=Thing.PROJECT,
        classic=("POST", "projects/{project}/process/save"),
        later=("POST", _DEFINITION),
        refused=Status.CREATE_DEFINITION,
    ),
    Row(
        serve=update,
        takes=Action.AUTHOR,
        thing=Thing.DEFINITION,
        classic=("POST", "projects/{project}/process/update"),
        later=("PUT", f"{_DEFINITION}/{{code}}"),
        refused=Status.UPDATE_DEFINITION,
    ),
    Row(
        serve=release,
        takes=Action.AUTHOR,
        thing=Thing.DEFINITION,
        classic=("POST", "projects/{project}/process/release"),
        later=("POST", f"{_DEFINITION}/{{code}}/release"),
        refused=Status.RELEASE_DEFINITION,
    ),
    Row(
        serve=list_page,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", "projects/{project}/process/list-paging"),
        later=("GET", _DEFINITION),
    ),
    Row(
        serve=list_all,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", "projects/{project}/process/list"),
        later=("GET", f"{_DEFINITION}/list"),
    ),
    Row(
        serve=list_all,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", f"{_DEFINITION}/all"),
    ),
    Row(
        serve=list_simply,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", f"{_DEFINITION}/simple-list"),
    ),
    Row(
        serve=list_simply,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", f"{_DEFINITION}/query-{{word}}-definition-list"),
    ),
    Row(
        serve=show,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        classic=("GET", "projects/{project}/process/select-by-id"),
        later=("GET", f"{_DEFINITION}/{{code}}"),
    ),
    Row(
        serve=show_named,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", f"{_DEFINITION}/query-by-name"),
    ),
    Row(
        serve=verify_name,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", "projects/{project}/process/verify-name"),
        later=("GET", f"{_DEFINITION}/verify-name"),
    ),
    Row(
        serve=list_tasks,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        classic=("GET", "projects/{project}/process/gen-task-list"),
        later=("GET", f"{_DEFINITION}/{{code}}/tasks"),
    ),
    Row(
        serve=list_tasks,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        later=("GET", f"{_DEFINITION}/query-task-definition-list"),
    ),
    Row(
        serve=delete,
        takes=Action.ADMIN,
        thing=Thing.DEFINITION,
        classic=("GET", "projects/{project}/process/delete"),
        later=("DELETE", f"{_DEFINITION}/{{code}}"),
        refused=Status.DELETE_DEFINITION,
    ),
    Row(
        serve=export,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        classic=("GET", "projects/{project}/process/export"),
        later=("POST", f"{_DEFINITION}/batch-export"),
    ),
    Row(
        serve=import_file,
        takes=Action.AUTHOR,
        thing=Thing.PROJECT,
        classic=("POST", "projects/import-definition"),
        later=("POST", f"{_DEFINITION}/import"),
        refused=Status.IMPORT,
    ),
    Row(
        serve=generate_codes,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", "projects/{project}/task-definition/gen-task-codes"),
    ),
)
