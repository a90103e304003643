"""Environments: listed, shown, made, changed and deleted, as from 2.0 on; 1.x has none."""

from __future__ import annotations

from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page
from api.dolphinscheduler.table import Row
from api.policy import Who
from common.errors import NotFoundError
from operations import environments as operations
from operations.environments import Environment, EnvironmentChange
from operations.errors import NameTakenError, UsageError
from operations.numbered_pages import LARGEST_PAGE, check_whole, slice_of
from operations.rights import may_administer
from operations.secret_keys import key_trouble


def list_page(call: Call) -> dict[str, Any]:
    """List environments page by page."""
    number, size = call.page_number, call.page_size
    wanted = slice_of(number, size)
    found, total = operations.environment_slice(
        call.session, search=call.text("searchVal"), offset=wanted.offset, limit=wanted.limit
    )
    check_whole(total, number, size)
    rows = [shown(call, each) for each in found]
    return page(rows, total=total, number=number, size=size)


def list_all(call: Call) -> list[dict[str, Any]]:
    """List all environments."""
    found, total = operations.environment_slice(call.session, limit=LARGEST_PAGE)
    check_whole(total, 1, LARGEST_PAGE + 1)
    return [shown(call, each) for each in found]


def show(call: Call) -> dict[str, Any]:
    """Show an environment by its code."""
    return shown(call, _given(call))


def create(call: Call) -> int:
    """Make an environment; return its code."""
    name = call.needed("name")
    try:
        with key_trouble():
            made = operations.create_environment(
                call.session,
                name,
                config=call.needed("config"),
                description=call.text("description"),
                worker_groups=_groups(call) or (),
            )
    except NameTakenError:
        raise RefusedError(Status.ENVIRONMENT_EXISTS, name) from None
    return made.view.code


def update(call: Call) -> dict[str, Any]:
    """Change an environment."""
    number, name = _to_change(call), call.needed("name")
    change = EnvironmentChange(
        name=name,
        config=call.needed("config"),
        description=call.text("description") or "",
        worker_groups=_groups(call) or (),
    )
    try:
        with key_trouble():
            return shown(call, operations.change_environment(call.session, number, change))
    except NameTakenError:
        raise RefusedError(Status.ENVIRONMENT_EXISTS, name) from None


def delete(call: Call) -> None:
    """Delete an environment that nothing names."""
    operations.delete_environment(call.session, _to_change(call))


def verify_name(call: Call) -> None:
    """Refuse the name of an environment that is there."""
    name = call.needed("environmentName")
    try:
        operations.environment_given(call.session, name)
    except NotFoundError:
        return
    raise RefusedError(Status.ENVIRONMENT_EXISTS, name)


def shown(call: Call, environment: Environment) -> dict[str, Any]:
    """Show an environment; its config is masked, and empty for whoever is no administrator."""
    view = environment.view
    return {
        "id": view.id,
        "code": view.code,
        "name": view.name,
        "config": environment.config or "",
        "description": view.description,
        "workerGroups": list(view.worker_groups),
        "operator": 0,
        "createTime": moment(view.create_time, call.zone),
        "updateTime": moment(view.update_time, call.zone),
    }


def _given(call: Call) -> Environment:
    code = call.needed_number("environmentCode", "code")
    try:
        return operations.environment_with_code(call.session, code)
    except NotFoundError:
        raise RefusedError(Status.NO_ENVIRONMENT, code) from None


def _to_change(call: Call) -> int:
    """Return the id of the environment; 0 if a user without the right to change it can't see it.

    The operation then refuses the user and writes a line to the audit.
    """
    try:
        return _given(call).view.id
    except RefusedError:
        if may_administer(call.session):
            raise
        return 0


def _groups(call: Call) -> tuple[str, ...] | None:
    """Return the worker groups of a JSON list; None without one."""
    found = call.document("workerGroups")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError("workerGroups", "is no list of names")
    return tuple(found)


ROWS: Final[tuple[Row, ...]] = (
    Row(serve=list_page, takes=Who.USER, later=("GET", "environment/list-paging")),
    Row(serve=list_all, takes=Who.USER, later=("GET", "environment/query-environment-list")),
    Row(serve=show, takes=Who.USER, later=("GET", "environment/query-by-code")),
    Row(
        serve=create,
        takes=Who.ADMINISTRATOR,
        later=("POST", "environment/create"),
        refused=Status.CREATE_ENVIRONMENT,
    ),
    Row(
        serve=update,
        takes=Who.ADMINISTRATOR,
        later=("POST", "environment/update"),
        refused=Status.UPDATE_ENVIRONMENT,
    ),
    Row(
        serve=delete,
        takes=Who.ADMINISTRATOR,
        later=("POST", "environment/delete"),
        refused=Status.DELETE_ENVIRONMENT,
    ),
    Row(serve=verify_name, takes=Who.USER, later=("POST", "environment/verify-environment")),
)
