"""Grants of tenants, data sources, environments, pools and worker groups to projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select, text

from api.policy import BASE
from common.model.grants import GrantKind
from common.store import tables as t
from operations.projects import create_project
from operations.session import Session
from operations.users import grant as give_role
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import parsed
from tests.integration.conftest import Cli

MAKE: Final[Mapping[GrantKind, tuple[str, ...]]] = {
    GrantKind.TENANT: ("tenant", "create"),
    GrantKind.DATASOURCE: ("datasource", "create", "--url", "sqlite:///some.db"),
    GrantKind.ENVIRONMENT: ("environment", "create"),
    GrantKind.POOL: ("pool", "create", "--size", "2"),
    GrantKind.WORKER_GROUP: ("worker-group", "create"),
}
"""The command that creates an object of each kind, without its name."""


def grants(db: Engine) -> set[tuple[int, int, int]]:
    with db.connect() as connection:
        found = connection.execute(
            select(t.grant.c.object_type, t.grant.c.object_id, t.grant.c.project_id)
        )
        return {tuple(row) for row in found}


@pytest.mark.parametrize("kind", GrantKind, ids=lambda kind: kind.word)
def test_an_object_is_granted_to_a_project_listed_and_revoked(
    kind: GrantKind, cli: Cli, db: Engine
) -> None:
    before = grants(db)
    assert cli("project", "create", "sales")[0] == 0
    code, _, err = cli(*MAKE[kind], "etl")
    assert (code, f"orcaflow {kind.word} grant etl --project PROJECT" in err) == (0, True)
    assert grants(db) == before
    row = parsed(cli(kind.word, "grant", "etl", "--project", "sales", "-o", "json"))
    assert (row["kind"], row["name"]) == (kind.word, "etl")
    assert [each["name"] for each in row["projects"]] == ["sales"]
    # Ids are accepted too. Repeating a grant changes nothing.
    project = str(row["projects"][0]["id"])
    assert cli(kind.word, "grant", str(row["id"]), "--project", project)[0] == 0
    assert row in parsed(cli(kind.word, "grants", "-o", "json"))
    assert row in parsed(cli("grants", "-o", "json"))
    assert "sales" in cli(kind.word, "grants", "etl")[1]
    code, _, err = cli(kind.word, "grant", "elt", "--project", "sales")
    assert (code, "did you mean 'etl'?" in err) == (3, True)
    assert cli(kind.word, "grant", "etl", "--project", "sale")[0] == 3
    assert cli(kind.word, "revoke", "etl", "--project", "sales")[0] == 0
    assert cli(kind.word, "revoke", "etl", "--project", "sales")[0] == 4
    assert grants(db) == before
    lines = parsed(cli("audit", "list", "--action", kind.word, "-o", "json"))
    done = [(each["action"], each["outcome"]) for each in lines if "create" not in each["action"]]
    assert done[:2] == [(f"{kind.word}.revoke", "refused"), (f"{kind.word}.revoke", "done")]


@pytest.mark.parametrize("kind", GrantKind, ids=lambda kind: kind.word)
def test_an_object_is_made_for_projects_and_takes_its_grants_along(
    kind: GrantKind, cli: Cli, db: Engine
) -> None:
    before = grants(db)
    assert cli("project", "create", "sales")[0] == 0
    made = cli(*MAKE[kind], "etl", "--project", "default", "--project", "sales")
    assert (made[0], "grant" in made[2]) == (0, False)
    assert len(grants(db) - before) == 2
    assert cli(*MAKE[kind], "other", "--project", "nowhere")[0] == 3
    assert cli(kind.word, "grants", "other")[0] == 3
    assert cli("project", "delete", "sales", "--yes")[0] in (0, 2)
    with db.begin() as connection:
        connection.execute(text("DELETE FROM t_ds_project WHERE name = 'sales'"))
    assert len(grants(db) - before) == 1
    verb = "remove" if kind in (GrantKind.POOL, GrantKind.DATASOURCE) else "delete"
    assert cli(kind.word, verb, "etl")[0] == 0
    assert grants(db) == before


def test_only_administrators_grant_and_revoke_over_http(
    client: TestClient, owner: Session, db: Engine
) -> None:
    root = headers_of(owner, "admin", "")
    create_project(owner, "sales", description=None)
    given = {"kind": "tenant", "object": 1, "project": "sales"}
    for headers in (headers_of(owner, "ada", "admin"), headers_of(owner, "bea", "none")):
        assert client.get(f"{BASE}/grants", headers=headers).status_code == 403
        for path in ("grants", "grants/revoke"):
            assert client.post(f"{BASE}/{path}", json=given, headers=headers).status_code == 403
    made = client.post(f"{BASE}/grants", json=given, headers=root)
    assert [each["name"] for each in made.json()["projects"]] == ["default", "sales"]
    listed = client.get(f"{BASE}/grants", params={"kind": "tenant"}, headers=root).json()
    assert made.json() in listed["items"]
    nameless = client.get(f"{BASE}/grants", params={"name": "default"}, headers=root)
    assert (nameless.status_code, "kind" in nameless.text) == (422, True)
    gone = client.post(f"{BASE}/grants/revoke", json=given, headers=root)
    assert [each["name"] for each in gone.json()["projects"]] == ["default"]
    again = client.post(f"{BASE}/grants/revoke", json=given, headers=root)
    assert again.status_code == 409
    for wrong in ({"kind": "queue"}, {"object": 0}, {"project": True}, {"project": 2**70}):
        bad = client.post(f"{BASE}/grants", json=given | wrong, headers=root)
        assert bad.status_code in (404, 422), wrong


def test_a_new_object_is_granted_to_projects_where_its_maker_is_an_author(
    client: TestClient, owner: Session, db: Engine
) -> None:
    before = grants(db)
    create_project(owner, "sales", description=None)
    create_project(owner, "foreign", description=None)
    headers = headers_of(owner, "ada", "author")
    give_role(owner, "ada", project="sales", role="viewer")

    def answer(*projects: str) -> Any:
        body = {"name": "db", "size": 1, "projects": projects}
        return client.post(f"{BASE}/pools", json=body, headers=headers)

    assert answer("sales").status_code == 403
    foreign, missing = answer("foreign"), answer("missing")
    assert (foreign.status_code, missing.status_code) == (404, 404)
    assert foreign.json()["detail"].replace("foreign", "missing") == missing.json()["detail"]
    assert grants(db) == before
    made = answer("default")
    assert made.status_code == 201
    assert grants(db) - before == {(int(GrantKind.POOL), made.json()["id"], 1)}
