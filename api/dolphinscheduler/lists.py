"""Lists that scripts fill their forms from: tenants, queues, worker groups, the user."""

from __future__ import annotations

from typing import Any, Final

from fastapi.responses import JSONResponse

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import moment
from api.dolphinscheduler.table import Row
from api.policy import Who
from common.model.rights import Action
from common.store.people.rights import Thing
from operations.numbered_pages import check_project
from operations.tenants import list_tenants
from operations.users import own_detail
from operations.worker_groups import group_names


def tenants(call: Call) -> list[dict[str, Any]]:
    """List the tenants."""
    return [
        {
            "id": each.id,
            "tenantCode": each.code,
            "queueId": each.queue_id,
            "queueName": each.queue,
            "queue": each.queue,
        }
        for each in list_tenants(call.session)
    ]


def worker_groups(call: Call) -> list[Any]:
    """List the names of worker groups; `default` is always there."""
    return group_names(call.session)


def queues(call: Call) -> list[dict[str, Any]]:
    """List the YARN queues of the tenants."""
    found = {each.queue_id: each.queue for each in list_tenants(call.session) if each.queue}
    return [{"id": id_, "queueName": name, "queue": name} for id_, name in sorted(found.items())]


def nothing(_call: Call) -> list[Any]:
    """List what is not kept here, and so is empty: alert groups."""
    return []


def health(_call: Call) -> JSONResponse:
    """Say that the server is up: `/readyz` says more."""
    return JSONResponse({"status": "UP"})


def preference(call: Call) -> None:
    """Show the preferences of a project: there are none."""
    check_project(call.session, call.project.id)


def user(call: Call) -> dict[str, Any]:
    """Show the user who asks."""
    found = own_detail(call.session).view
    return {
        "id": found.id,
        "userName": found.name,
        "userType": "ADMIN_USER" if found.is_admin else "GENERAL_USER",
        "email": None,
        "phone": None,
        "tenantId": 0,
        "tenantCode": None,
        "queueName": None,
        "queue": None,
        "state": 1 if found.is_enabled else 0,
        "createTime": moment(found.create_time, call.zone),
        "updateTime": moment(found.create_time, call.zone),
        "timeZone": call.zone.key,
    }


ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=tenants, takes=Who.USER, classic=("GET", "tenant/list"), later=("GET", "tenants/list")
    ),
    Row(
        serve=worker_groups,
        takes=Who.USER,
        classic=("GET", "worker-group/all-groups"),
        later=("GET", "worker-groups/all"),
    ),
    Row(serve=queues, takes=Who.USER, classic=("GET", "queue/list"), later=("GET", "queues/list")),
    Row(
        serve=nothing,
        takes=Who.USER,
        classic=("GET", "alert-group/list"),
        later=("GET", "alert-groups/list"),
    ),
    Row(serve=health, takes=Who.ANYONE, later=("GET", "actuator/health")),
    Row(
        serve=preference,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        later=("GET", "projects/{project}/project-preference"),
    ),
    Row(
        serve=user,
        takes=Who.USER,
        classic=("GET", "users/get-user-info"),
        later=("GET", "users/get-user-info"),
    ),
)
