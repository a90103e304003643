"""Visits to the console without a browser: people who are logged in, and the pages that they get."""

from __future__ import annotations

from typing import Any

from argon2 import PasswordHasher
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.console.table import Page
from api.cookies import COOKIE
from common.model.states import ProcessState, TaskState
from operations.log_ins import csrf_token
from operations.session import Session
from operations.users import create_user, grant
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance

PASSWORD = "correct horse battery"
CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
"""Hashes that take no time: the parameters stand in each."""


FORMS = {
    "/runs/{id}/execute": {"task": "a"},
    "/schedules/simulate": {"slots": "4", "days": "1"},
    "/users": {"name": "made"},
    "/tokens": {"name": "mine", "role": "viewer", "days": "1"},
    "/definitions/{id}/restore": {"version": "1", "tag": "*"},
    "/definitions/{id}/share": {"project": "1"},
    "/definitions/{id}/unshare": {"project": "1"},
    **{
        f"/{things}/{{id}}/{word}": {"number": str(number), "reason": "r"}
        for things, number in (("definitions", 1001), ("projects", 1002))
        for word in ("approve", "reject", "withdraw")
    },
    **{
        f"/{things}/{{id}}/{word}": {"tag": "*"}
        for things in ("definitions", "projects")
        for word in ("edit", "propose", "publish")
    },
    "/projects/{id}/review": {"review": "off"},
    "/topologies/{name}/rebalance": {"cores": "3"},
    "/projects/{id}/members": {"user": "the-viewer", "role": "viewer"},
    "/schedules/new": {"cron": "0 0 3 * * ?"},
    "/schedules/new/check": {"cron": "0 0 3 * * ?"},
    "/grants/grant": {"kind": "tenant", "object": "1", "project": "1"},
    "/grants/revoke": {"kind": "tenant", "object": "1", "project": "1"},
    "/pools/new": {"name": "made", "size": "1"},
    "/pools/{id}/resize": {"size": "3", "tag": "*"},
    "/pools/{id}/remove": {"tag": "*"},
    "/streams/{name}/reset": {"partitions": "all"},
    "/streams/{name}/reset/check": {"partitions": "all"},
    "/streams/{name}/handoff": {"group.0": "on"},
    "/schedules/{id}/edit": {"tag": "*", "cron": "0 0 5 * * ?"},
    "/schedules/{id}/delete": {"tag": "*"},
}
"""The fields that forms send in addition to the CSRF token."""


def session_of(client: TestClient, owner: Session, name: str, role: str | None) -> str:
    """Log a new user in, who has this role in the default project; an administrator without one."""
    create_user(owner, name, is_admin=role is None, password=PASSWORD, tenant=None)
    if role is not None:
        grant(owner, name, project="default", role=role)
    return logged_in(client, name)


def logged_in(client: TestClient, name: str) -> str:
    """Log a user with the password of the tests in; return the text of the session."""
    answer = client.post("/login", data={"name": name, "password": PASSWORD, "next": "/runs"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs"), answer.text
    text = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    client.cookies.clear()
    return text


def get(client: TestClient, place: str, session: str) -> Any:
    return client.get(place, headers={"Cookie": f"{COOKIE}={session}"})


def asked(client: TestClient, page: Page, number: int, session: str | None) -> Any:
    headers = {} if session is None else {"Cookie": f"{COOKIE}={session}"}
    form = {"csrf_token": csrf_token(session or ""), **FORMS.get(page.path, {})}
    if page.path.startswith("/schedules/new"):
        form["definition"] = str(number)
    queries = {"/find": "?q=rs", "/schedules/new": f"?definition={number}"}
    place = page.path.format(id=number, name=number) + queries.get(page.path, "")
    return client.request(
        page.method, place, headers=headers, data=form if page.method == "POST" else None
    )


def a_run(db: Engine, name: str, state: ProcessState = ProcessState.FAILURE) -> int:
    document = a_definition_json("a >> b")
    definition = a_definition(db, name=name, process_definition_json=document)
    run = an_instance(
        db, state, process_definition_id=definition, name=name, process_instance_json=document
    )
    an_attempt(db, run, TaskState.SUCCESS, process_definition_id=definition, name="a", flag=1)
    an_attempt(db, run, TaskState.FAILURE, process_definition_id=definition, name="b", flag=1)
    return run
