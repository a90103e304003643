"""Versions of definitions in the console: listed with their runs, compared, and restored."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select, update

from api.cookies import COOKIE
from api.policy import BASE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import an_attempt, an_instance, commands
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")


def a_document(tasks: Mapping[str, Any], secret: str, **more: Any) -> dict[str, Any]:
    nodes = [
        {
            "name": name,
            "type": "SHELL",
            "params": {"rawScript": script},
            "preTasks": ["a"] if name != "a" else [],
            **more,
        }
        for name, script in tasks.items()
    ]
    password = {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": secret}
    limit = {"prop": "limit", "direct": "IN", "type": "INTEGER", "value": str(len(tasks))}
    return {
        "name": "flights",
        "processDefinitionJson": {"tasks": nodes},
        "globalParams": [password, limit],
    }


@pytest.fixture
def number(client: TestClient, owner: Session) -> int:
    """A definition with two versions by an author: tasks, edges, a script and a secret differ."""
    author = headers_of(owner, "eve", "author")
    first = a_document({"a": "echo one\necho two", "b": "true"}, "hunter2", maxRetryTimes=3)
    made = client.post(f"{BASE}/definitions", json=first, headers=author).json()
    second = a_document({"a": "echo one\necho 2", "c": "exit 1", "d": "true"}, "hunter3")
    path = f"{BASE}/definitions/{made['id']}"
    saved = client.put(path, json=second, headers={**author, "If-Match": "*"})
    assert saved.status_code == 200, saved.text
    client.cookies.clear()
    return int(made["id"])


def test_versions_are_listed_with_their_authors_and_the_runs_that_used_them(
    client: TestClient, ada: str, owner: Session, db: Engine, number: int
) -> None:
    runs = [
        an_instance(db, ProcessState.SUCCESS, process_definition_id=number, name=name)
        for name in ("flights-1-1357027200000", "flights-1-1357027200001", "typed-by-hand")
    ]
    assert (
        f'href="/definitions/{number}/versions"' in get(client, f"/definitions/{number}", ada).text
    )
    page = get(client, f"/definitions/{number}/versions", ada).text
    rows = re.findall(r"<tr><td><b>(\d)</b>(.*?)</tr>", page, re.DOTALL)
    assert [version for version, _ in rows] == ["2", "1"]
    newest, oldest = (row for _, row in rows)
    told = [">in force<" in each for each in (newest, oldest)]
    assert told == [True, False]
    assert "<td>eve</td>" in newest
    assert f'runs: 2, the last <a href="/runs/{runs[1]}">' in oldest
    assert "/runs/" not in newest
    links = re.findall(rf'href="/definitions/{number}/(\w+\?[^"]+)"', page)
    assert links == ["compare?to=2", "compare?from=1", "restore?version=1"]
    bob = session_of(client, owner, "bob", "viewer")
    seen = get(client, f"/definitions/{number}/versions", bob).text
    assert ("compare?to=2" in seen, "restore" in seen) == (True, False)
    first = get(client, f"/definitions/{number}/versions?after=x", ada)
    assert first.status_code == 422


def content(page: str) -> str:
    """A page without its navigation, which leads back to the page's own address."""
    return page[page.index("<main") :]


def test_two_versions_are_compared_without_a_secret_of_either(
    client: TestClient, ada: str, number: int
) -> None:
    place = f"/definitions/{number}/compare"
    page = html.unescape(get(client, place, ada).text)
    assert re.search(r"Version 1 → 2", page)
    assert re.findall(r"<li>([+-] [^<]+)</li>", page) == ["+ c", "+ a → c"]
    assert "was b</span>" in page
    assert "'a' is retried 0 times at most" in page
    for told in ("-echo two", "+echo 2", " echo one", "globalParams.limit"):
        assert told in page, told
    assert "hunter" not in page
    named = html.unescape(get(client, f"{place}?from=1&to=2", ada).text)
    assert content(page) == content(named)
    back = html.unescape(get(client, f"{place}?from=2&to=1", ada).text)
    assert "-echo 2" in back
    assert "No difference" in get(client, f"{place}?from=2&to=2", ada).text
    assert re.findall(r"<option selected>(\d)", get(client, f"{place}?from=2&to=1", ada).text) == [
        "2",
        "1",
    ]
    for query, status in (
        ("?from=3", 404), ("?to=1", 404), ("?from=0", 422), ("?from=x", 422),
        ("?from=99999999999", 422), ("?from=²", 422),
    ):  # fmt: skip
        assert get(client, place + query, ada).status_code == status, query


def test_a_version_is_restored_as_the_look_ahead_has_shown_it_and_not_otherwise(
    client: TestClient, ada: str, owner: Session, db: Engine, number: int
) -> None:
    place = f"/definitions/{number}/restore"
    cookie = {"Cookie": f"{COOKIE}={ada}"}

    def looked_ahead(text: str) -> dict[str, str]:
        return {
            name: html.unescape(value)
            for name, value in re.findall(
                r'<input type="hidden" name="(\w+)" value="([^"]*)">',
                text.partition(f'action="{place}"')[2],
            )
        }

    page = get(client, f"{place}?version=1", ada).text
    assert "+echo two" in page
    assert "hunter" not in page
    assert content(get(client, place, ada).text) == content(page)
    form = looked_ahead(page)
    assert set(form) == {"csrf_token", "version", "tag"}
    assert form["version"] == "1"
    # Somebody is faster, by hand.
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(description="another"))
    late = client.post(place, data=form, headers=cookie)
    assert (late.status_code, 'role="alert"' in late.text) == (409, True)
    assert versions_of(db) == [1, 2]
    fresh = looked_ahead(late.text)
    assert fresh["tag"] != form["tag"]
    for wrong in ({**fresh, "csrf_token": "0"}, {**fresh, "version": "x"}, {**fresh, "tag": ""}):
        assert client.post(place, data=wrong, headers=cookie).status_code in (403, 422)
    done = client.post(place, data=fresh, headers=cookie)
    assert (done.status_code, done.headers["location"]) == (303, f"/definitions/{number}/versions")
    assert versions_of(db) == [1, 2, 3]
    listed = get(client, f"/definitions/{number}/versions", ada).text
    assert "version 1 again" in listed
    # The secret is the one of now.
    with db.connect() as connection:
        assert "hunter3" in (connection.scalar(select(t.process_definition.c.global_params)) or "")
    assert "Nothing would change" in get(client, f"{place}?version=3", ada).text
    oscar = session_of(client, owner, "oscar", "operator")
    assert get(client, place, oscar).status_code == 403
    forbidden = client.post(
        place,
        data={**fresh, "csrf_token": csrf_token(oscar)},
        headers={"Cookie": f"{COOKIE}={oscar}"},
    )
    assert forbidden.status_code == 403
    assert versions_of(db) == [1, 2, 3]


def test_an_old_version_that_can_not_be_saved_any_more_says_why(
    client: TestClient, ada: str, db: Engine, number: int
) -> None:
    broken = {"name": "x", "processDefinitionJson": {"tasks": []}}
    with db.begin() as connection:
        log = t.process_definition_log
        connection.execute(
            update(log).where(log.c.version == 1).values(document=json.dumps(broken))
        )
    place = f"/definitions/{number}/restore"
    form = {"csrf_token": csrf_token(ada), "version": "1", "tag": "*"}
    answer = client.post(place, data=form, headers={"Cookie": f"{COOKIE}={ada}"})
    assert (answer.status_code, "version 1" in answer.text) == (422, True)


def test_a_definition_with_one_version_is_compared_with_none(
    client: TestClient, ada: str, owner: Session
) -> None:
    author = headers_of(owner, "eve", "author")
    document = a_document({"a": "true"}, "hunter2")
    made = client.post(f"{BASE}/definitions", json=document, headers=author).json()
    client.cookies.clear()
    page = get(client, f"/definitions/{made['id']}/versions", ada).text
    assert ("in force" in page, "/compare" in page) == (True, False)
    assert get(client, f"/definitions/{made['id']}/compare", ada).status_code == 404
    assert get(client, f"/definitions/{made['id']}/restore", ada).status_code == 404


def versions_of(db: Engine) -> list[int]:
    with db.connect() as connection:
        log = t.process_definition_log
        return list(connection.scalars(select(log.c.version).order_by(log.c.version)))


def test_the_page_of_a_run_offers_the_latest_version_and_shows_what_it_changes(
    client: TestClient, ada: str, owner: Session, db: Engine, number: int
) -> None:
    with db.connect() as connection:
        document = connection.scalar(select(t.process_definition.c.process_definition_json)) or ""
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(release_state=1))
    run = an_instance(
        db,
        ProcessState.FAILURE,
        process_definition_id=number,
        name="flights-1-1357027200000",
        process_instance_json=document.replace("exit 1", "exit 2"),
    )
    an_attempt(db, run, TaskState.SUCCESS, process_definition_id=number)
    an_attempt(db, run, TaskState.SUCCESS, process_definition_id=number, name="c")
    place = f"/runs/{run}/latest"
    assert f'href="{place}"' in get(client, f"/runs/{run}", ada).text
    page = html.unescape(get(client, place, ada).text)
    for shown in ("<code>exit 2</code></td><td><code>exit 1</code>", "<dd><code>a</code></dd>"):
        assert shown in page, shown
    assert "<code>c</code>, <code>d</code>" in page
    assert "hunter" not in page
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', page))
    headers = {"Cookie": f"{COOKIE}={ada}"}

    def sent(version: str) -> Any:
        form = {"csrf_token": token, "version": version}
        return client.post(f"/runs/{run}/recover", data=form, headers=headers)

    assert sent("1").status_code == 422
    assert sent("latest").headers["location"] == f"/runs/{run}"
    assert commands(db)[-1][1] == {"ProcessInstanceId": str(run), "definitionVersion": "latest"}
    viewer = session_of(client, owner, "bob", "viewer")
    assert "<form" not in content(get(client, place, viewer).text)
    with db.begin() as connection:
        connection.execute(update(t.process_instance).values(definition_version=2))
    assert place not in get(client, f"/runs/{run}", ada).text
