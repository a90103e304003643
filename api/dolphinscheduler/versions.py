"""Versions of definitions: listed page by page, switched to and deleted, as from 2.0 on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.definitions import shown
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page
from api.dolphinscheduler.table import Row
from common.errors import InvalidDefinitionError, NotFoundError
from common.model.rights import Action
from common.model.states import ReleaseState
from common.store.people.definitions import DefinitionRow
from common.store.people.rights import Thing
from operations import definition_versions as operations
from operations.definition_files import InvalidFilesError
from operations.definition_versions import HeadedVersion
from operations.projects import definition_in


def list_page(call: Call) -> dict[str, Any]:
    """List versions page by page, the newest first, which is the one in force."""
    row = _given(call, Action.VIEW)
    number, size = call.page_number, call.page_size
    found, total = operations.version_page(call.session, row.id, number, size)
    rows = [_shown(call, row, each) for each in found]
    return page(rows, total=total, number=number, size=size)


def switch(call: Call) -> None:
    """Save what a definition was in a version as its newest one."""
    version = call.needed_number("version")
    try:
        row = _given(call, Action.AUTHOR)
    except NotFoundError:
        raise RefusedError(Status.SWITCH_NO_DEFINITION, call.needed("code")) from None
    try:
        operations.restore(call.session, row.id, version)
    except NotFoundError:
        raise RefusedError(Status.SWITCH_NO_VERSION, row.code, version) from None
    except (InvalidDefinitionError, InvalidFilesError) as error:
        raise RefusedError(Status.SWITCH_VERSION, more=str(error)) from error


def delete_version(call: Call) -> None:
    """Delete a version that is not in force."""
    version = call.needed_number("version")
    row = _given(call, Action.ADMIN)
    if version == row.version:
        raise RefusedError(Status.VERSION_IN_FORCE)
    try:
        operations.delete_version(call.session, row.id, version)
    except NotFoundError as error:
        raise RefusedError(Status.DELETE_VERSION, more=str(error)) from None


def _given(call: Call, action: Action) -> DefinitionRow:
    code = call.needed_number("code")
    return definition_in(call.session, call.project, code=code, action=action)


def _shown(call: Call, row: DefinitionRow, found: HeadedVersion) -> dict[str, Any]:
    version, heading = found.version, found.heading
    if heading is not None:
        row = replace(
            row,
            version=version.version,
            release_state=ReleaseState.OFFLINE,
            description=heading.description,
            global_params=heading.global_params,
            timeout_minutes=heading.timeout_minutes,
            process_definition_json=None,
            update_time=version.create_time,
        )
    made = shown(call, [row])[0]
    if heading is not None and heading.execution_type is not None:
        made["executionType"] = heading.execution_type
    at = moment(version.create_time, call.zone)
    return made | {"userName": version.user_name, "operateTime": at}


_VERSIONS: Final = "projects/{project}/{word}-definition/{code}/versions"
_VERSION: Final = f"{_VERSIONS}/{{version}}"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=list_page,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        later=("GET", _VERSIONS),
        refused=Status.LIST_VERSIONS,
    ),
    Row(
        serve=switch,
        takes=Action.AUTHOR,
        thing=Thing.DEFINITION,
        later=("GET", _VERSION),
        refused=Status.SWITCH_VERSION,
    ),
    Row(
        serve=delete_version,
        takes=Action.ADMIN,
        thing=Thing.DEFINITION,
        later=("DELETE", _VERSION),
        refused=Status.DELETE_VERSION,
    ),
)
