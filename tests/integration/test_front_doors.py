"""No front end shows a secret.

The tests plant a secret in every field that can hold one, and search every answer. They read the
routes from the route tables, so that they also search routes that are added later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import Engine, insert, update

from api.console.serving import PAGES
from api.dolphinscheduler.serving import BASE as DOLPHINSCHEDULER
from api.dolphinscheduler.serving import served
from api.druid.serving import BASE as DRUID
from api.druid.serving import ROWS
from api.policy import BASE, POLICIES, Who
from common.model.rights import ROLES
from common.model.states import ProcessState
from common.store import tables as t
from common.store.people.rights import Thing
from operations.session import Session
from tests.integration.api_worlds import World, a_request, a_schedule, headers_of, to_delete, worlds
from tests.integration.console_visits import asked, session_of
from tests.integration.dolphinscheduler_stage import ENVIRONMENT, parameters_of
from tests.integration.planted_secrets import Planted, a_document, plant

PEOPLE = (*ROLES, "administrator")


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def world(db: Engine, planted: Planted) -> World:
    """Return the objects of a project, with secrets in all of them."""
    ours, _ = worlds(db)
    with db.begin() as connection:
        connection.execute(insert(t.environment).values(name="e", code=ENVIRONMENT))
    plant(db, ours, planted, "ours")
    return ours


@pytest.fixture
def headers(client: TestClient, owner: Session) -> dict[str, dict[str, str]]:
    found = {role: headers_of(owner, f"the-{role}", role) for role in ROLES}
    return found | {"administrator": headers_of(owner, "admin", "")}


def leaks(
    planted: Planted, answers: Iterator[tuple[str, str, Response]], *, least: int
) -> dict[str, list[str]]:
    """Return the requests that were answered with a secret, each with its fields."""
    found: dict[str, list[str]] = {}
    done = 0
    for name, role, answer in answers:
        done += answer.is_success
        if shown := planted.shown_in(answer.content):
            found[f"{name} as {role}"] = shown[:5]
    # Refusals show no objects, so a search of refusals alone would prove nothing.
    assert done >= least
    return found


def test_no_route_of_the_api_shows_a_secret_x51(
    client: TestClient,
    db: Engine,
    world: World,
    headers: dict[str, dict[str, str]],
    planted: Planted,
) -> None:
    def ask(name: str, role: str, number: int, body: Any, params: dict[str, Any]) -> Response:
        method, _, path = name.partition(" ")
        return client.request(
            method,
            path.format(id=number, **world.places),
            json=body,
            params=params,
            headers={**headers[role], "If-Match": "*"},
        )

    def answers() -> Iterator[tuple[str, str, Response]]:
        number = world.objects["definition"]
        draft = a_document(planted, "draft", "ours")
        yield (
            "PUT a draft",
            "author",
            ask(f"PUT {BASE}/definitions/{{id}}/draft", "author", number, draft, {}),
        )
        for name, policy in POLICIES.items():
            if not name.startswith("GET "):
                continue
            for role in PEOPLE:
                number = world.objects.get(policy.thing or "", 1)
                body, params = a_request(name, number, f"{role} in {number}")
                yield name, role, ask(name, role, number, body, params)
        for name, policy in POLICIES.items():
            if name.startswith("GET "):
                continue
            for role in ("author", "administrator"):
                number = world.objects.get(policy.thing or "", 1)
                number = to_delete(db, name, world) or number
                body, params = a_request(name, number, f"{role} in {number}")
                yield name, role, ask(name, role, number, body, params)

    assert leaks(planted, answers(), least=300) == {}


def test_no_route_of_dolphinscheduler_shows_a_secret_x51(
    client: TestClient,
    world: World,
    headers: dict[str, dict[str, str]],
    planted: Planted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No master runs here, so a request must not wait until a master takes its run.
    monkeypatch.setattr("api.dolphinscheduler.runs.LONGEST_SECONDS", 0.0)
    things = {kind: world.objects[kind.value] for kind in Thing if kind.value in world.objects}

    def answers() -> Iterator[tuple[str, str, Response]]:
        routes = [each for each in served() if each.row.takes is not Who.ANYONE]
        changes = {
            each.path
            for each in routes
            if each.row.serve.__name__.startswith(("delete", "release"))
        }
        seen: set[object] = set()
        for each in sorted(routes, key=lambda each: (each.path in changes, each.method != "GET")):
            path = each.path.format(
                project="default" if each.dialect.is_classic else 1,
                code=things[Thing.DEFINITION],
                version=1,
                id=things.get(each.row.thing or Thing.PROJECT, 0),
            )
            people = ("author", "administrator") if each.method != "GET" else PEOPLE
            # All dialects of a route share its function, so one role is enough for the others.
            for role in people if each.row.serve not in seen else ("administrator",):
                yield (
                    f"{each.method} {path}",
                    role,
                    client.request(
                        each.method,
                        f"{DOLPHINSCHEDULER}/{path}",
                        params={**parameters_of(each, things), "searchVal": ""},
                        headers=headers[role],
                    ),
                )
            seen.add(each.row.serve)

    assert leaks(planted, answers(), least=200) == {}


def test_no_route_of_druid_shows_a_secret_x52(
    client: TestClient,
    world: World,
    headers: dict[str, dict[str, str]],
    planted: Planted,
) -> None:
    def answers() -> Iterator[tuple[str, str, Response]]:
        ordered = sorted(ROWS, key=lambda row: (row.method != "GET", "terminate" in row.path))
        for row in ordered:
            number = world.objects.get(row.thing or "", "10.0.0.7:1234")
            for role in PEOPLE:
                place = f"{DRUID}/{row.path.format(id=number)}"
                for query in (
                    ({}, {"full": ""}, {"state": "true"}) if row.method == "GET" else ({},)
                ):
                    yield (
                        f"{row.method} {row.path}",
                        role,
                        client.request(row.method, place, params=query, headers=headers[role]),
                    )

    assert leaks(planted, answers(), least=100) == {}


@pytest.mark.usefixtures("at_console")
def test_no_page_of_the_console_shows_a_secret_x53(
    client: TestClient, owner: Session, db: Engine, world: World, planted: Planted
) -> None:
    sessions = {role: session_of(client, owner, f"the-{role}", role) for role in ROLES}
    sessions["administrator"] = session_of(client, owner, "root", None)

    def answers() -> Iterator[tuple[str, str, Response]]:
        for page in sorted(PAGES, key=lambda page: page.method != "GET"):
            if page.path == "/logout":
                continue
            for role in PEOPLE if page.method == "GET" else ("author", "administrator"):
                with db.begin() as connection:
                    connection.execute(
                        update(t.process_instance).values(state=int(ProcessState.FAILURE))
                    )
                number = world.objects.get(page.policy.thing or "", 0)
                if page.path == "/schedules/{id}/delete":
                    number = a_schedule(db, world.objects["definition"])
                yield (
                    f"{page.method} {page.path}",
                    role,
                    asked(client, page, number, sessions[role]),
                )

    assert leaks(planted, answers(), least=150) == {}
