"""Projects: listed, shown and made."""

from __future__ import annotations

from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page
from api.dolphinscheduler.table import Row
from api.policy import LIST, Who
from common.model.rights import Action
from common.store.people.projects import ProjectView
from common.store.people.rights import Thing
from operations import projects as operations
from operations.errors import NameTakenError
from operations.numbered_pages import LARGEST_PAGE, check_whole, slice_of


def list_page(call: Call) -> dict[str, Any]:
    """List projects page by page."""
    number, size = call.page_number, call.page_size
    wanted = slice_of(number, size)
    found, total = operations.list_projects(
        call.session, search=call.text("searchVal"), offset=wanted.offset, limit=wanted.limit
    )
    check_whole(total, number, size)
    return page([shown(call, each) for each in found], total=total, number=number, size=size)


def list_all(call: Call) -> list[dict[str, Any]]:
    """List all projects that the caller sees."""
    found, total = operations.list_projects(call.session, limit=LARGEST_PAGE)
    check_whole(total, 1, LARGEST_PAGE + 1)
    return [shown(call, each) for each in found]


def show(call: Call) -> dict[str, Any]:
    """Show a project by its code, or by its id in 1.x."""
    if call.dialect.is_classic:
        number = call.needed_number("projectId", "id")
        return shown(call, operations.find_project(call.session, project_id=number))
    return shown(call, operations.find_project(call.session, project_id=call.project.id))


def create(call: Call) -> Any:
    """Make a project."""
    name = call.needed("projectName")
    try:
        made = operations.create_project(
            call.session, name, description=call.text("description", "desc")
        )
    except NameTakenError:
        raise RefusedError(Status.PROJECT_EXISTS, name) from None
    return made.id if call.dialect.is_classic else shown(call, made)


def shown(call: Call, view: ProjectView) -> dict[str, Any]:
    """Show a project; `perm` is 7 for whoever may change it, as there."""
    return {
        "id": view.id,
        "code": view.code,
        "userId": view.user_id,
        "userName": view.user_name,
        "name": view.name,
        "description": view.description,
        "createTime": moment(view.create_time, call.zone),
        "updateTime": moment(view.update_time, call.zone),
        "perm": 7 if Action.AUTHOR in view.actions else 4 if Action.OPERATE in view.actions else 2,
        "defCount": view.definitions,
        "instRunningCount": view.live_instances,
    }


ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=list_page,
        takes=LIST.takes,
        classic=("GET", "projects/list-paging"),
        later=("GET", "projects"),
    ),
    Row(
        serve=list_all,
        takes=LIST.takes,
        classic=("GET", "projects/query-project-list"),
        later=("GET", "projects/list"),
    ),
    Row(serve=list_all, takes=LIST.takes, later=("GET", "projects/created-and-authed")),
    Row(
        serve=show,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", "projects/query-by-id"),
        later=("GET", "projects/{project}"),
    ),
    Row(
        serve=create,
        takes=Who.USER,
        classic=("POST", "projects/create"),
        later=("POST", "projects"),
        refused=Status.CREATE_PROJECT,
    ),
)
