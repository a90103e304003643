"""The console's matrix of grants: objects of a kind by projects, changed by plain forms."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from api.console.pages import grants as page_of_grants
from api.cookies import COOKIE
from common.model.grants import GrantKind
from common.store import tables as t
from operations.grants import grant
from operations.log_ins import csrf_token
from operations.projects import create_project
from operations.session import Session
from tests.integration.console_visits import get, session_of
from tests.integration.granting import objects_of_others

pytestmark = pytest.mark.usefixtures("at_console")
FORM = re.compile(r'<form[^>]* action="(/grants/\w+)">(.*?)</form>', re.DOTALL)
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')


@pytest.fixture
def root(client: TestClient, owner: Session) -> str:
    return session_of(client, owner, "root", None)


def forms(page: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the forms of the cells with their fields, by the labels of their buttons."""
    found = {}
    for action, inner in FORM.findall(page):
        (label,) = re.findall(r'aria-label="([^"]*)"', inner)
        fields = {name: html.unescape(value) for name, value in FIELD.findall(inner)}
        found[html.unescape(label)] = (action, fields)
    return found


def send(client: TestClient, session: str, form: tuple[str, dict[str, str]]) -> Any:
    action, fields = form
    return client.post(action, headers={"Cookie": f"{COOKIE}={session}"}, data=fields)


@pytest.mark.parametrize("kind", GrantKind, ids=lambda kind: kind.word)
def test_an_administrator_grants_and_revokes_in_the_matrix(
    kind: GrantKind, client: TestClient, root: str, owner: Session, db: Engine
) -> None:
    number = objects_of_others(owner)[kind]
    held = t.grant.c.object_type == int(kind), t.grant.c.object_id == number

    def holders() -> set[int]:
        with db.connect() as connection:
            return set(connection.scalars(select(t.grant.c.project_id).where(*held)))

    before = holders()
    place = f"/grants?kind={kind.word}"
    page = get(client, place, root)
    assert page.status_code == 200
    shown = forms(page.text)
    assert "Revoke theirs from project other" in shown
    done = send(client, root, shown["Grant theirs to project default"])
    assert (done.status_code, done.headers["location"]) == (303, place)
    assert holders() == before | {1}
    shown = forms(get(client, place, root).text)
    assert "Grant theirs to project default" not in shown
    for wanted in (303, 409):
        # The second request finds no grant, as if it was revoked while the page was open.
        assert send(client, root, shown["Revoke theirs from project default"]).status_code == wanted
    assert holders() == before


def test_the_matrix_is_read_in_parts_and_a_change_leads_back_to_its_part(
    client: TestClient, root: str, owner: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_of_grants, "_OBJECTS", 1)
    monkeypatch.setattr(page_of_grants, "_PROJECTS", 1)
    objects_of_others(owner)
    first = get(client, "/grants", root).text
    assert [label.rpartition(" ")[2] for label in forms(first)] == ["default"]
    assert "theirs" not in first
    (objects, projects) = (
        html.unescape(each) for each in re.findall(r'href="(/grants\?[^"]+)"', first)
    )
    second = get(client, objects, root).text
    assert list(forms(second)) == ["Grant theirs to project default"]
    assert next(iter(forms(get(client, projects, root).text))).endswith("to project other")
    done = send(client, root, forms(second)["Grant theirs to project default"])
    assert parse_qs(urlsplit(done.headers["location"]).query) == parse_qs(urlsplit(objects).query)


def test_names_are_escaped_and_wrong_fields_are_refused(
    client: TestClient, root: str, owner: Session
) -> None:
    name = "<script>alert(1)</script>"
    create_project(owner, name, description=None)
    page = get(client, "/grants", root).text
    assert name not in page
    assert html.escape(name)[:20] in page
    wrong: dict[str, str]
    for wrong, status in (
        ({"kind": "queue"}, 422),
        ({"object": "x"}, 422),
        ({"object": "-1"}, 422),
        ({"project": ""}, 422),
        ({"object": "999999"}, 404),
        ({"project": "999999"}, 404),
        ({"csrf_token": "x"}, 403),
    ):
        fields = {"kind": "tenant", "object": "1", "project": "1", "csrf_token": csrf_token(root)}
        answer = send(client, root, ("/grants/revoke", fields | wrong))
        assert answer.status_code == status, (wrong, answer.status_code)
    assert get(client, "/grants?kind=queue", root).status_code == 422


def test_only_administrators_are_led_to_the_matrix(
    client: TestClient, root: str, ada: str, owner: Session
) -> None:
    grant(owner, GrantKind.TENANT, 1, "default")
    link = 'href="/grants"'
    assert (link in get(client, "/pools", root).text, link in get(client, "/pools", ada).text) == (
        True,
        False,
    )
    assert get(client, "/grants", ada).status_code == 403


def test_a_new_pool_is_for_the_project_that_its_form_names(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    create_project(owner, "sales", description=None)
    form = get(client, "/pools/new", ada).text
    assert re.findall(r'<option value="([^"]*)"', form.partition('id="projects"')[2])[:1] == [
        "default"
    ]
    assert "sales" not in form
    fields = {"csrf_token": csrf_token(ada), "name": "database", "size": "2", "project": "default"}
    made = send(client, ada, ("/pools/new", fields))
    assert made.status_code == 303
    with db.connect() as connection:
        wanted = select(t.grant.c.project_id).where(t.grant.c.object_type == int(GrantKind.POOL))
        assert connection.scalars(wanted).all() == [1]
    # A foreign project gives the same answer as a missing project.
    for project in ("sales", "nowhere"):
        wrong = send(client, ada, ("/pools/new", fields | {"name": "x", "project": project}))
        assert (wrong.status_code, "there is no project" in wrong.text) == (422, True)
