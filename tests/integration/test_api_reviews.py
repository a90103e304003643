"""Drafts and proposals over HTTP; and the ways of other interfaces that a review closes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from api.policy import BASE
from common.store import tables as t
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.reviewing import a_document, scripts_of, with_review

PATH = f"{BASE}/definitions"

Headers = dict[str, str]


@pytest.fixture
def ada(owner: Session) -> Headers:
    """The headers of an author."""
    return headers_of(owner, "ada", "author")


@pytest.fixture
def bob(owner: Session) -> Headers:
    """The headers of an admin of the project."""
    return headers_of(owner, "bob", "admin")


@pytest.fixture
def nightly(client: TestClient, ada: Headers) -> str:
    """The path of a definition."""
    made = client.post(PATH, json=a_document(a="1", b="1"), headers=ada)
    return f"{PATH}/{made.json()['id']}"


def put(client: TestClient, path: str, headers: Headers, tag: str, content: Any) -> Any:
    text = content if isinstance(content, str) else json.dumps(content)
    return client.put(f"{path}/draft", content=text, headers={**headers, "If-Match": tag})


def script_of(client: TestClient, path: str, headers: Headers) -> Any:
    return scripts_of(client.get(f"{path}/export", headers=headers).json()["document"])


def test_a_draft_is_saved_with_the_tag_that_was_read_merged_or_refused_by_its_parts(
    client: TestClient, ada: Headers, nightly: str
) -> None:
    begun = client.get(f"{nightly}/draft", headers=ada)
    assert (begun.json()["revision"], begun.json()["update_time"]) == (0, None)
    assert client.put(f"{nightly}/draft", content="{}", headers=ada).status_code == 428
    tag = begun.headers["etag"]
    first = put(client, nightly, ada, tag, a_document(a="2", b="1"))
    assert (first.status_code, first.json()["revision"]) == (200, 1)
    assert [each["name"] for each in first.json()["difference"]["changed"]] == ["a"]
    # Another window, which has read what was in force.
    second = put(client, nightly, ada, tag, a_document(a="1", b="2"))
    assert second.json()["merged"] == ["task a"]
    assert scripts_of(json.loads(second.json()["content"])) == {"a": "2", "b": "2"}
    late = put(client, nightly, ada, first.headers["etag"], a_document(a="2", b="3"))
    assert (late.status_code, late.headers["etag"]) == (412, second.headers["etag"])
    assert "task 'b' changed" in late.json()["detail"]

    bad = put(client, nightly, ada, second.headers["etag"], '{"name": ')
    assert (bad.status_code, bad.json()["content"]) == (200, '{"name": ')
    assert "not JSON" in bad.json()["mistakes"][0]["problem"]
    assert client.get(f"{nightly}/draft", headers=ada).json()["mistakes"] == bad.json()["mistakes"]
    refused = client.post(f"{nightly}/proposals", json={}, headers=ada)
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/definition")
    gone = client.delete(f"{nightly}/draft", headers={**ada, "If-Match": bad.headers["etag"]})
    assert (gone.json()["revision"], gone.headers["etag"]) == (0, tag)


@pytest.mark.usefixtures("audited")
def test_a_proposal_goes_from_its_author_to_a_version_by_somebody_else(
    client: TestClient, ada: Headers, bob: Headers, owner: Session, nightly: str
) -> None:
    with_review(owner)
    tag = client.get(f"{nightly}/draft", headers=ada).headers["etag"]
    tag = put(client, nightly, ada, tag, a_document(a="2", b="1")).headers["etag"]
    change = {**ada, "If-Match": tag}
    refused = client.post(f"{nightly}/draft/publish", json={}, headers=change)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
    assert refused.json()["cure"] == "propose it: `orcaflow definition propose`"

    order = {"note": "faster"}
    made, again = (
        client.post(f"{nightly}/proposals", json=order, headers=change) for _ in range(2)
    )
    assert (made.status_code, again.json()["id"]) == (201, made.json()["id"])
    place = made.headers["location"]
    assert client.get(place, headers=ada).json()["why_not"] == "needs somebody else than ada"
    for who in (ada, headers_of(owner, "eve", "operator")):
        assert client.post(f"{place}/approve", headers=who).status_code == 403
    nobody = headers_of(owner, "nob", "none")
    assert client.get(place, headers=nobody).status_code == 404
    assert client.post(f"{place}/approve", headers=nobody).status_code == 404

    shown = client.get(place, headers=bob).json()
    assert (shown["why_not"], shown["outdated"], shown["state"]) == (None, False, "WAITING")
    assert scripts_of(shown["document"]) == {"a": "2", "b": "1"}
    done = client.post(f"{place}/approve", headers=bob)
    assert (done.status_code, done.json()["version"], done.json()["decided_by"]) == (200, 2, "bob")
    assert client.post(f"{place}/approve", headers=bob).status_code == 409
    assert client.post(f"{place}/withdraw", headers=ada).status_code == 409
    assert script_of(client, nightly, ada) == {"a": "2", "b": "1"}
    page = client.get(f"{nightly}/proposals", params={"limit": 1}, headers=ada).json()
    assert [each["state"] for each in page["items"]] == ["APPROVED"]
    with owner.engine.connect() as connection:
        line = t.audit_log.c
        told = connection.execute(
            select(line.detail, line.user_name)
            .where(line.action == "definition.approve")
            .where(line.outcome == "done")
        ).one()
    assert tuple(told) == (f"proposal {made.json()['id']} of ada, version 2", "bob")


def test_what_has_changed_since_is_a_409_with_the_difference_and_is_rebased(
    client: TestClient, ada: Headers, bob: Headers, nightly: str
) -> None:
    tag = client.get(f"{nightly}/draft", headers=ada).headers["etag"]
    put(client, nightly, ada, tag, a_document(a="2", b="1"))
    made = client.post(f"{nightly}/proposals", json={}, headers=ada)
    place = made.headers["location"]
    other = {**bob, "If-Match": "*"}
    assert client.put(nightly, json=a_document(a="1", b="9"), headers=other).status_code == 200
    refused = client.post(f"{place}/approve", headers=bob)
    assert refused.status_code == 409
    assert "task 'b' changed" in refused.json()["detail"]
    since = client.get(place, headers=bob).json()["since"]
    assert [each["name"] for each in since["changed"]] == ["b"]
    late = client.post(f"{nightly}/proposals", json={}, headers=ada)
    assert (late.status_code, "merge it" in late.json()["detail"]) == (409, True)
    change = {**ada, "If-Match": "*"}
    rebased = client.post(f"{nightly}/draft/rebase", headers=change)
    assert (rebased.json()["merged"], rebased.json()["outdated"]) == (["task b"], False)
    second = client.post(f"{nightly}/proposals", json={}, headers=ada)
    rejected = client.post(
        f"{second.headers['location']}/reject", json={"reason": "slow"}, headers=bob
    )
    assert (rejected.json()["state"], rejected.json()["reason"]) == ("REJECTED", "slow")
    assert client.get(place, headers=bob).json()["state"] == "REPLACED"
    published = client.post(f"{nightly}/draft/publish", json={"note": "n"}, headers=change)
    assert (published.status_code, published.json()["version"]) == (200, 3)
    assert script_of(client, nightly, ada) == {"a": "2", "b": "9"}


@pytest.mark.usefixtures("audited")
def test_a_new_definition_is_proposed_below_its_project(
    client: TestClient, ada: Headers, bob: Headers, owner: Session
) -> None:
    with_review(owner)
    project = f"{BASE}/projects/1"
    assert client.post(PATH, json=a_document("fresh", a="1"), headers=ada).status_code == 409
    begun = client.get(f"{project}/draft", headers=ada)
    tag = begun.headers["etag"]
    saved = put(client, project, ada, tag, "name: fresh\nprocessDefinitionJson: {tasks: []}\n")
    assert (saved.status_code, saved.json()["definition_id"]) == (200, None)
    assert saved.json()["mistakes"]
    body = {"document": a_document("fresh", a="1")}
    made = client.post(f"{project}/proposals", json=body, headers=ada)
    place = made.headers["location"]
    assert place == f"{project}/proposals/{made.json()['id']}"
    done = client.post(f"{place}/approve", headers=bob).json()
    assert script_of(client, f"{PATH}/{done['definition_id']}", ada) == {"a": "1"}


def test_a_project_is_switched_by_its_admins_and_tells_it(
    client: TestClient, ada: Headers, bob: Headers, nightly: str, db: Engine
) -> None:
    project = f"{BASE}/projects/1"
    change = {"review": True}
    tag = client.get(project, headers=ada).headers["etag"]
    refused = client.patch(project, json=change, headers={**ada, "If-Match": tag})
    assert refused.status_code == 403
    done = client.patch(project, json=change, headers={**bob, "If-Match": tag})
    assert done.json()["review_since"] is not None
    assert done.headers["etag"] != tag
    answers = [
        client.put(nightly, json=a_document(a="2"), headers={**ada, "If-Match": "*"}),
        client.post(f"{PATH}/import", json=a_document(a="2"), headers=bob),
        client.post(PATH, json=a_document("fresh", a="2"), headers=bob),
        client.post(f"{nightly}/restore", json={"version": 1}, headers={**bob, "If-Match": "*"}),
        client.post(
            f"{PATH}/execution-type",
            json={"ids": [int(nightly.rpartition("/")[2])], "execution_type": "SERIAL_WAIT"},
            headers=bob,
        ),
    ]
    assert [(each.status_code, each.json()["cure"]) for each in answers] == [
        (409, "propose it: `orcaflow definition propose`")
    ] * 5
    off = {**bob, "If-Match": "*"}
    assert client.patch(project, json={"review": False}, headers=off).json()["review_since"] is None
    with db.connect() as connection:
        line = t.audit_log.c
        told = connection.scalars(
            select(line.detail)
            .where(line.action == "project.edit")
            .where(line.outcome == "done")
            .order_by(line.id)
        ).all()
    assert told == ["with review", "without review"]
