"""Visits to the console without a browser: people who are logged in, and the pages that they get."""

from __future__ import annotations

from typing import Any

from argon2 import PasswordHasher
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.cookies import COOKIE
from common.model.states import ProcessState, TaskState
from operations.session import Session
from operations.users import create_user, grant
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance

PASSWORD = "correct horse battery"
CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
"""Hashes that take no time: the parameters stand in each."""


def session_of(client: TestClient, owner: Session, name: str, role: str | None) -> str:
    """Log a new user in, who has this role in the default project; an administrator without one."""
    create_user(owner, name, is_admin=role is None, password=PASSWORD, tenant=None)
    if role is not None:
        grant(owner, name, project="default", role=role)
    answer = client.post("/login", data={"name": name, "password": PASSWORD, "next": "/runs"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs"), answer.text
    text = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    client.cookies.clear()
    return text


def get(client: TestClient, place: str, session: str) -> Any:
    return client.get(place, headers={"Cookie": f"{COOKIE}={session}"})


def a_run(db: Engine, name: str, state: ProcessState = ProcessState.FAILURE) -> int:
    document = a_definition_json("a >> b")
    definition = a_definition(db, name=name, process_definition_json=document)
    run = an_instance(
        db, state, process_definition_id=definition, name=name, process_instance_json=document
    )
    an_attempt(db, run, TaskState.SUCCESS, process_definition_id=definition, name="a", flag=1)
    an_attempt(db, run, TaskState.FAILURE, process_definition_id=definition, name="b", flag=1)
    return run
