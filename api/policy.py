"""The policy of every route, in one table: the right that it takes, and the object it is about.

The server does not start with a route that has no policy here, or a policy that has no route. The
right itself is checked in `operations`, which hands out no object without; this table says what is
expected, and a test calls every route in every role by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from common.model.rights import Action


class Who(Enum):
    """Those that a route without a project is for."""

    ANYONE = "anyone"
    USER = "user"
    AUTHOR = "author"
    """Authors of any project."""
    ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The right that a route takes.

    `thing` is the kind of object whose id is in the path or in the body; without one, the route
    lists only the objects that its user may see, if `takes` is an action or `lists` is True. With
    `own`, users without the right may act on objects that belong to them. With `hides`, they get
    404 for all other objects.
    """

    takes: Who | Action
    thing: str | None = None
    own: bool = False
    hides: bool = False
    lists: bool = False


ANYONE: Final = Policy(takes=Who.ANYONE)
USER: Final = Policy(takes=Who.USER)
LIST: Final = Policy(takes=Action.VIEW)


AUTHOR: Final = Policy(takes=Who.AUTHOR)
ADMINISTRATOR: Final = Policy(takes=Who.ADMINISTRATOR)


def _administrator(thing: str, *, own: bool = False, hides: bool = False) -> Policy:
    return Policy(takes=Who.ADMINISTRATOR, thing=thing, own=own, hides=hides)


def _user(thing: str) -> Policy:
    return Policy(takes=Who.USER, thing=thing)


def _view(thing: str) -> Policy:
    return Policy(takes=Action.VIEW, thing=thing)


def _operate(thing: str) -> Policy:
    return Policy(takes=Action.OPERATE, thing=thing)


def _author(thing: str) -> Policy:
    return Policy(takes=Action.AUTHOR, thing=thing)


def _admin(thing: str, *, own: bool = False) -> Policy:
    return Policy(takes=Action.ADMIN, thing=thing, own=own)


BASE: Final = "/api/v1"
POLICIES: Final[Mapping[str, Policy]] = {
    "GET /livez": ANYONE,
    "GET /readyz": ANYONE,
    "GET /metrics": ANYONE,
    "GET /problems/{kind}": ANYONE,
    f"GET {BASE}/openapi.json": ANYONE,
    "GET /console": ANYONE,
    "GET /oidc/login": ANYONE,
    "GET /oidc/callback": ANYONE,
    f"POST {BASE}/login": ANYONE,
    f"POST {BASE}/logout": USER,
    f"GET {BASE}/me": USER,
    f"GET {BASE}/sessions": USER,
    f"POST {BASE}/sessions/{{id}}/end": USER,
    f"GET {BASE}/servers": USER,
    f"GET {BASE}/definitions": LIST,
    f"POST {BASE}/definitions": _author("project"),
    f"POST {BASE}/definitions/import": _author("project"),
    f"POST {BASE}/definitions/lint": AUTHOR,
    f"POST {BASE}/definitions/release": _author("definition"),
    f"POST {BASE}/definitions/execution-type": _author("definition"),
    f"POST {BASE}/definitions/delete": _admin("definition"),
    f"GET {BASE}/definitions/{{id}}": _view("definition"),
    f"GET {BASE}/definitions/{{id}}/export": _view("definition"),
    f"PUT {BASE}/definitions/{{id}}": _author("definition"),
    f"DELETE {BASE}/definitions/{{id}}": _admin("definition"),
    f"GET {BASE}/definitions/{{id}}/versions": _view("definition"),
    f"GET {BASE}/definitions/{{id}}/versions/{{version}}": _view("definition"),
    f"GET {BASE}/definitions/{{id}}/diff": _view("definition"),
    f"POST {BASE}/definitions/{{id}}/restore": _author("definition"),
    f"GET {BASE}/definitions/{{id}}/draft": _author("definition"),
    f"PUT {BASE}/definitions/{{id}}/draft": _author("definition"),
    f"POST {BASE}/definitions/{{id}}/draft/rebase": _author("definition"),
    f"DELETE {BASE}/definitions/{{id}}/draft": _author("definition"),
    f"POST {BASE}/definitions/{{id}}/draft/publish": _author("definition"),
    f"GET {BASE}/definitions/{{id}}/proposals": _view("definition"),
    f"POST {BASE}/definitions/{{id}}/proposals": _author("definition"),
    f"GET {BASE}/definitions/{{id}}/proposals/{{proposal}}": _view("definition"),
    f"POST {BASE}/definitions/{{id}}/proposals/{{proposal}}/approve": _admin("definition"),
    f"POST {BASE}/definitions/{{id}}/proposals/{{proposal}}/reject": _admin("definition"),
    f"POST {BASE}/definitions/{{id}}/proposals/{{proposal}}/withdraw": _admin(
        "definition", own=True
    ),
    f"GET {BASE}/definitions/{{id}}/shares": _view("definition"),
    f"POST {BASE}/definitions/{{id}}/shares": _admin("definition"),
    f"DELETE {BASE}/definitions/{{id}}/shares/{{project}}": _admin("definition"),
    f"DELETE {BASE}/definitions/{{id}}/versions/{{version}}": _admin("definition"),
    f"POST {BASE}/definitions/{{id}}/online": _author("definition"),
    f"POST {BASE}/definitions/{{id}}/offline": _author("definition"),
    f"GET {BASE}/instances": LIST,
    f"POST {BASE}/instances": _operate("definition"),
    f"POST {BASE}/instances/actions": _operate("instance"),
    f"POST {BASE}/instances/delete": _admin("instance"),
    f"GET {BASE}/instances/{{id}}": _view("instance"),
    f"GET {BASE}/instances/{{id}}/tasks": _view("instance"),
    f"GET {BASE}/instances/{{id}}/relatives": _view("instance"),
    f"GET {BASE}/instances/{{id}}/why": _view("instance"),
    f"GET {BASE}/instances/{{id}}/diff": _view("instance"),
    f"POST {BASE}/instances/{{id}}/stop": _operate("instance"),
    f"POST {BASE}/instances/{{id}}/pause": _operate("instance"),
    f"POST {BASE}/instances/{{id}}/resume": _operate("instance"),
    f"POST {BASE}/instances/{{id}}/rerun": _operate("instance"),
    f"POST {BASE}/instances/{{id}}/recover": _operate("instance"),
    f"POST {BASE}/instances/{{id}}/execute": _operate("instance"),
    f"GET {BASE}/tasks/{{id}}": _view("task"),
    f"GET {BASE}/tasks/{{id}}/render": _view("task"),
    f"GET {BASE}/tasks/{{id}}/why": _view("task"),
    f"GET {BASE}/tasks/{{id}}/decision": _view("task"),
    f"GET {BASE}/tasks/{{id}}/log": _view("task"),
    f"GET {BASE}/tasks/{{id}}/log/download": _view("task"),
    f"GET {BASE}/tasks/{{id}}/log/stream": _view("task"),
    f"POST {BASE}/tasks/{{id}}/force-success": _operate("task"),
    f"GET {BASE}/schedules": LIST,
    f"POST {BASE}/schedules": _author("definition"),
    f"GET {BASE}/schedules/preview": _view("schedule"),
    f"POST {BASE}/schedules/simulate": _view("definition"),
    f"POST {BASE}/schedules/release": _author("schedule"),
    f"POST {BASE}/schedules/delete": _author("schedule"),
    f"GET {BASE}/schedules/{{id}}": _view("schedule"),
    f"PATCH {BASE}/schedules/{{id}}": _author("schedule"),
    f"DELETE {BASE}/schedules/{{id}}": _author("schedule"),
    f"GET {BASE}/schedules/{{id}}/fires": _view("schedule"),
    f"GET {BASE}/definitions/{{id}}/fires": _view("definition"),
    f"POST {BASE}/schedules/{{id}}/online": _author("schedule"),
    f"POST {BASE}/schedules/{{id}}/offline": _author("schedule"),
    f"GET {BASE}/complements": LIST,
    f"POST {BASE}/complements": _operate("definition"),
    f"POST {BASE}/complements/plan": _operate("definition"),
    f"GET {BASE}/complements/{{id}}": _view("complement"),
    f"GET {BASE}/complements/{{id}}/dates": _view("complement"),
    f"POST {BASE}/complements/{{id}}/pause": _operate("complement"),
    f"POST {BASE}/complements/{{id}}/resume": _operate("complement"),
    f"POST {BASE}/complements/{{id}}/cancel": _operate("complement"),
    f"POST {BASE}/complements/{{id}}/retry": _operate("complement"),
    f"GET {BASE}/datasources": Policy(takes=Who.AUTHOR, lists=True),
    f"POST {BASE}/datasources": ADMINISTRATOR,
    f"GET {BASE}/datasources/{{id}}": Policy(takes=Who.AUTHOR, thing="datasource"),
    f"PUT {BASE}/datasources/{{id}}": _administrator("datasource"),
    f"DELETE {BASE}/datasources/{{id}}": _administrator("datasource"),
    f"POST {BASE}/datasources/{{id}}/test": _administrator("datasource"),
    f"GET {BASE}/commands": LIST,
    f"GET {BASE}/commands/{{id}}": _view("command"),
    f"GET {BASE}/commands/{{id}}/why": _view("command"),
    f"GET {BASE}/events": _view("instance"),
    f"POST {BASE}/me/password": USER,
    f"GET {BASE}/users": ADMINISTRATOR,
    f"POST {BASE}/users": ADMINISTRATOR,
    f"GET {BASE}/users/{{id}}": _administrator("user"),
    f"PATCH {BASE}/users/{{id}}": _administrator("user"),
    f"POST {BASE}/users/{{id}}/enable": _administrator("user"),
    f"POST {BASE}/users/{{id}}/disable": _administrator("user"),
    f"POST {BASE}/users/{{id}}/link": _administrator("user"),
    f"POST {BASE}/users/{{id}}/unlink": _administrator("user"),
    f"POST {BASE}/users/{{id}}/password": _administrator("user"),
    f"GET {BASE}/tokens": USER,
    f"POST {BASE}/tokens": USER,
    f"POST {BASE}/tokens/{{id}}/revoke": _administrator("token", own=True, hides=True),
    f"GET {BASE}/projects": LIST,
    f"POST {BASE}/projects": ADMINISTRATOR,
    f"GET {BASE}/projects/{{id}}": _view("project"),
    f"PATCH {BASE}/projects/{{id}}": _admin("project"),
    f"GET {BASE}/projects/{{id}}/members": _view("project"),
    f"POST {BASE}/projects/{{id}}/members": _admin("project"),
    f"DELETE {BASE}/projects/{{id}}": _admin("project"),
    f"GET {BASE}/projects/{{id}}/draft": _author("project"),
    f"PUT {BASE}/projects/{{id}}/draft": _author("project"),
    f"DELETE {BASE}/projects/{{id}}/draft": _author("project"),
    f"POST {BASE}/projects/{{id}}/draft/publish": _author("project"),
    f"GET {BASE}/projects/{{id}}/proposals": _view("project"),
    f"POST {BASE}/projects/{{id}}/proposals": _author("project"),
    f"GET {BASE}/projects/{{id}}/proposals/{{proposal}}": _view("project"),
    f"POST {BASE}/projects/{{id}}/proposals/{{proposal}}/approve": _admin("project"),
    f"POST {BASE}/projects/{{id}}/proposals/{{proposal}}/reject": _admin("project"),
    f"POST {BASE}/projects/{{id}}/proposals/{{proposal}}/withdraw": _admin("project", own=True),
    f"GET {BASE}/tenants": LIST,
    f"POST {BASE}/tenants": ADMINISTRATOR,
    f"GET {BASE}/tenants/{{id}}": _view("tenant"),
    f"DELETE {BASE}/tenants/{{id}}": _administrator("tenant"),
    f"GET {BASE}/worker-groups": LIST,
    f"POST {BASE}/worker-groups": ADMINISTRATOR,
    f"GET {BASE}/worker-groups/{{id}}": _view("worker-group"),
    f"DELETE {BASE}/worker-groups/{{id}}": _administrator("worker-group"),
    f"GET {BASE}/workers": USER,
    f"GET {BASE}/workers/strategy": USER,
    f"POST {BASE}/workers/strategy": ADMINISTRATOR,
    f"GET {BASE}/workers/strategy/history": USER,
    f"POST {BASE}/workers/disable": ADMINISTRATOR,
    f"POST {BASE}/workers/lazy": ADMINISTRATOR,
    f"POST {BASE}/workers/enable": ADMINISTRATOR,
    f"GET {BASE}/environments": LIST,
    f"POST {BASE}/environments": ADMINISTRATOR,
    f"GET {BASE}/environments/{{id}}": _view("environment"),
    f"PATCH {BASE}/environments/{{id}}": _administrator("environment"),
    f"DELETE {BASE}/environments/{{id}}": _administrator("environment"),
    f"GET {BASE}/pools": LIST,
    f"POST {BASE}/pools": AUTHOR,
    f"GET {BASE}/pools/{{id}}": _view("pool"),
    f"PATCH {BASE}/pools/{{id}}": _administrator("pool", own=True),
    f"DELETE {BASE}/pools/{{id}}": _administrator("pool", own=True),
    f"GET {BASE}/grants": ADMINISTRATOR,
    f"POST {BASE}/grants": ADMINISTRATOR,
    f"POST {BASE}/grants/revoke": ADMINISTRATOR,
    f"GET {BASE}/locks": LIST,
    f"GET {BASE}/overview": LIST,
    f"GET {BASE}/datasets": LIST,
    f"GET {BASE}/datasets/{{id}}": _view("dataset"),
    f"GET {BASE}/datasets/{{id}}/files": _view("dataset"),
    f"GET {BASE}/datasets/{{id}}/rows": _view("dataset"),
    f"GET {BASE}/datasets/{{id}}/shares": _view("dataset"),
    f"POST {BASE}/datasets/{{id}}/shares": _admin("dataset"),
    f"DELETE {BASE}/datasets/{{id}}/shares/{{project}}": _admin("dataset"),
    f"GET {BASE}/streams": LIST,
    f"POST {BASE}/streams": _author("project"),
    f"GET {BASE}/streams/{{id}}": _view("stream"),
    f"GET {BASE}/streams/{{id}}/lag": _view("stream"),
    f"GET {BASE}/streams/{{id}}/stats": _view("stream"),
    f"GET {BASE}/streams/{{id}}/history": _view("stream"),
    f"POST {BASE}/streams/{{id}}/suspend": _operate("stream"),
    f"POST {BASE}/streams/{{id}}/resume": _operate("stream"),
    f"POST {BASE}/streams/{{id}}/reset": _operate("stream"),
    f"POST {BASE}/streams/{{id}}/handoff": _operate("stream"),
    f"POST {BASE}/streams/{{id}}/terminate": _author("stream"),
    f"GET {BASE}/topologies": LIST,
    f"GET {BASE}/topologies/{{id}}": _view("topology"),
    f"GET {BASE}/topologies/{{id}}/history": _view("topology"),
    f"GET {BASE}/topology/summary": LIST,
    f"POST {BASE}/topology/submit": _author("project"),
    f"GET {BASE}/topology/{{id}}": _view("topology"),
    f"GET {BASE}/topology/{{id}}/component/{{component}}": _view("topology"),
    f"GET {BASE}/topology/{{id}}/visualization": _view("topology"),
    f"POST {BASE}/topology/{{id}}/activate": _operate("topology"),
    f"POST {BASE}/topology/{{id}}/deactivate": _operate("topology"),
    f"POST {BASE}/topology/{{id}}/rebalance/{{wait_time}}": _operate("topology"),
    f"POST {BASE}/topology/{{id}}/kill/{{wait_time}}": _author("topology"),
    f"GET {BASE}/audit": ADMINISTRATOR,
    f"GET {BASE}/alerts": ADMINISTRATOR,
    f"GET {BASE}/alert-groups": USER,
}
