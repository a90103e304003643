"""Every entry point where a definition or run of one project can name another's objects."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select, text

from api.policy import BASE
from common.model.grants import GrantKind
from common.store import tables as t
from common.store.worker.tasks import PostgresTaskStore
from operations.grants import grant, revoke
from operations.session import Session
from operations.users import create_user
from operations.users import grant as give_role
from tests.integration.api_worlds import headers_of
from tests.integration.granting import grant_to, objects_of_others
from tests.topology_files import GRAPH, MAIN, PARTS
from tests.unit.stream_specs import SMALL


def a_node(**keys: Any) -> dict[str, Any]:
    return {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}, **keys}


def naming(kind: GrantKind, given: str | int) -> dict[str, Any]:
    """Return a process definition that names an object by its name or its number."""
    is_name = isinstance(given, str)
    match kind:
        case GrantKind.TENANT:
            return {"tasks": [a_node()], "tenantCode" if is_name else "tenantId": given}
        case GrantKind.DATASOURCE:
            key = "datasourceName" if is_name else "datasource"
            params = {key: given, "sql": "select 1", "type": "POSTGRESQL"}
            return {"tasks": [a_node(type="SQL", params=params)]}
        case GrantKind.ENVIRONMENT:
            key = "environmentName" if is_name else "environmentCode"
            return {"tasks": [a_node(**{key: given})]}
        case GrantKind.POOL:
            return {"tasks": [a_node(taskGroups=[{"name" if is_name else "id": given}])]}
        case GrantKind.WORKER_GROUP:
            return {"tasks": [a_node(**{"workerGroup" if is_name else "workerGroupId": given})]}


@pytest.fixture
def theirs(owner: Session) -> dict[GrantKind, int]:
    return objects_of_others(owner)


def document(inner: dict[str, Any], name: str = "nightly") -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": inner}


def state_of(db: Engine, name: str = "nightly") -> int:
    with db.connect() as connection:
        wanted = t.process_definition.c.name == name
        found: int = connection.execute(
            select(t.process_definition.c.release_state).where(wanted)
        ).scalar_one()
    return found


KINDS: Final = pytest.mark.parametrize("kind", GrantKind, ids=lambda kind: kind.word)
BY: Final = pytest.mark.parametrize("by_name", [True, False], ids=["name", "number"])


@KINDS
@BY
def test_an_import_that_names_a_foreign_object_stays_offline_until_it_is_granted(
    kind: GrantKind, by_name: bool, client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    db = owner.engine
    headers = headers_of(owner, "ada", "author")
    given: str | int = "theirs" if by_name else theirs[kind]

    def imported(given: str | int, name: str) -> Any:
        body = document(naming(kind, given), name)
        made = client.post(f"{BASE}/definitions/import", json=body, headers=headers)
        assert made.status_code == 200, made.text
        return made.json()

    (row,) = imported(given, "nightly")["items"]
    # A missing object gets the same answer.
    (other,) = imported("mine" if by_name else 999_999, "other")["items"]
    assert (row["release_state"], other["release_state"]) == ("OFFLINE", "OFFLINE")
    told = json.dumps(row).replace(repr(given), "X").replace(f"grant {given}", "grant X")
    assert "has no" in told
    shown = [each["problem"] for each in row["unmapped"]]
    (problem,) = [each for each in shown if "has no" in each]
    (same,) = [each["problem"] for each in other["unmapped"] if "has no" in each["problem"]]
    assert problem.replace("theirs", "mine").replace(str(given), "N") == same.replace("999999", "N")
    refused = client.post(f"{BASE}/definitions/{row['id']}/online", headers=headers)
    assert refused.status_code == 409
    assert f"`orcaflow {kind.word} grant {given} --project default`" in refused.json()["detail"]
    assert state_of(db) == 0
    with db.begin() as connection:
        grant_to(connection, kind, theirs[kind], 1)
    released = client.post(f"{BASE}/definitions/{row['id']}/online", headers=headers)
    assert released.status_code == 200, released.text
    with db.connect() as connection:
        text_of = select(t.process_definition.c.process_definition_json)
        stored = json.loads(
            connection.scalar(text_of.where(t.process_definition.c.name == "nightly")) or ""
        )
    if kind is not GrantKind.POOL:
        # Definitions keep the names of pools. Masters resolve them.
        assert str(theirs[kind]) in json.dumps(stored)


@KINDS
def test_a_proposal_and_what_is_put_in_force_name_no_foreign_object(
    kind: GrantKind, client: TestClient, owner: Session, db: Engine, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "admin")
    plain = document({"tasks": [a_node()]})
    made = client.post(f"{BASE}/definitions/import", json=plain, headers=headers)
    number = made.json()["items"][0]["id"]
    place = f"{BASE}/definitions/{number}"
    foreign = {"processDefinitionJson": naming(kind, "theirs")}
    tag = client.get(place, headers=headers).headers["etag"]
    proposed = client.post(
        f"{place}/proposals", json={"document": foreign}, headers=headers | {"If-Match": tag}
    )
    assert (proposed.status_code, "has no" in proposed.text) == (409, True), proposed.text
    tag = client.get(f"{place}/draft", headers=headers).headers["etag"]
    saved = client.put(f"{place}/draft", json=foreign, headers=headers | {"If-Match": tag})
    assert saved.status_code in (200, 201), saved.text
    published = client.post(
        f"{place}/draft/publish",
        json={},
        headers=headers | {"If-Match": saved.headers["etag"]},
    )
    assert (published.status_code, "has no" in published.text) == (409, True), published.text
    # The definition in force stays ONLINE.
    assert state_of(db) == 1


@pytest.mark.parametrize("kind", [GrantKind.ENVIRONMENT, GrantKind.WORKER_GROUP])
def test_runs_schedules_and_complements_name_no_foreign_object(
    kind: GrantKind, client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "author")
    plain = document({"tasks": [a_node()]})
    made = client.post(f"{BASE}/definitions/import", json=plain, headers=headers)
    number = made.json()["items"][0]["id"]
    key = "environment" if kind is GrantKind.ENVIRONMENT else "worker_group"
    requests = {
        "instances": {},
        "schedules": {"cron": "0 0 4 * * ? *"},
        "complements": {"dates": ["2013-01-01"]},
    }
    for path, body in requests.items():
        answers = [
            client.post(
                f"{BASE}/{path}", json={"definition_id": number, key: name, **body}, headers=headers
            )
            for name in ("theirs", "mine")
        ]
        assert [each.status_code for each in answers] == [404, 404], (path, answers[0].text)
        foreign, missing = (each.json()["detail"] for each in answers)
        assert foreign.replace("theirs", "mine") == missing, path
        assert f"project 'default' has no {kind.title} 'theirs'" in foreign


@KINDS
@pytest.mark.parametrize("by", ["schedule", "definition"])
def test_a_schedule_stays_offline_after_a_grant_was_revoked(
    kind: GrantKind, by: str, client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    keys = {GrantKind.ENVIRONMENT: "environment", GrantKind.WORKER_GROUP: "worker_group"}
    if by == "schedule" and kind not in keys:
        return
    headers = headers_of(owner, "ada", "author")
    with owner.engine.begin() as connection:
        grant_to(connection, kind, theirs[kind], 1)
    inner = {"tasks": [a_node()]} if by == "schedule" else naming(kind, "theirs")
    made = client.post(f"{BASE}/definitions/import", json=document(inner), headers=headers)
    body = {"definition_id": made.json()["items"][0]["id"], "cron": "0 0 4 * * ? *"}
    if by == "schedule":
        body[keys[kind]] = "theirs"
    schedule = client.post(f"{BASE}/schedules", json=body, headers=headers)
    assert schedule.status_code == 201, schedule.text
    place = f"{BASE}/schedules/{schedule.json()['id']}"

    def bring(state: str) -> Any:
        return client.post(f"{place}/{state}", headers=headers)

    assert (bring("online").status_code, bring("offline").status_code) == (200, 200)
    revoke(owner, kind, "theirs", "default")
    refused = bring("online")
    assert (refused.status_code, "has no" in refused.text) == (409, True), refused.text
    assert client.get(place, headers=headers).json()["release_state"] == "OFFLINE"
    grant(owner, kind, "theirs", "default")
    assert bring("online").status_code == 200


@pytest.mark.parametrize("door", ["streams", "topologies"])
def test_a_supervisor_and_a_topology_name_no_foreign_worker_group(
    door: str, client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "author")

    def submitted(group: str) -> Any:
        if door == "streams":
            place = f"{BASE}/streams?project_id=1&worker_group={group}"
            return client.post(place, json=SMALL, headers=headers)
        code = {"main": "words.py:topology", "files": {"words.py": MAIN, "parts.py": PARTS}}
        body = {"code": code, "graph": GRAPH.document(), "project_id": 1, "worker_group": group}
        return client.post(f"{BASE}/topology/submit", json=body, headers=headers)

    foreign, missing = submitted("theirs"), submitted("nobodys")
    assert (foreign.status_code, missing.status_code) == (404, 404), foreign.text
    told = foreign.json()["detail"].replace("theirs", "nobodys")
    assert (told, "has no worker group" in told) == (missing.json()["detail"], True)
    with owner.engine.begin() as connection:
        assert connection.scalars(select(t.process_definition.c.name)).all() == []
        grant_to(connection, GrantKind.WORKER_GROUP, theirs[GrantKind.WORKER_GROUP], 1)
    assert submitted("theirs").status_code == 201


def test_a_supervisor_names_no_foreign_connection(
    client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "author")

    def submitted(name: str) -> Any:
        document = copy.deepcopy(SMALL)
        document["spec"]["ioConfig"]["consumerProperties"] = {"connection": name}
        return client.post(
            f"{BASE}/streams", json=document, params={"project_id": 1}, headers=headers
        )

    foreign, missing = submitted("theirs"), submitted("nobodys")
    assert foreign.status_code == missing.status_code != 201, foreign.text
    assert foreign.json()["detail"].replace("theirs", "nobodys") == missing.json()["detail"]


@KINDS
def test_a_version_that_names_a_foreign_object_is_not_restored(
    kind: GrantKind, client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "author")
    with owner.engine.begin() as connection:
        grant_to(connection, kind, theirs[kind], 1)
    for inner in (naming(kind, "theirs"), {"tasks": [a_node()]}):
        made = client.post(f"{BASE}/definitions/import", json=document(inner), headers=headers)
        assert made.status_code == 200, made.text
    place = f"{BASE}/definitions/{made.json()['items'][0]['id']}"

    def restored() -> Any:
        tag = client.get(place, headers=headers).headers["etag"]
        return client.post(
            f"{place}/restore", json={"version": 1}, headers=headers | {"If-Match": tag}
        )

    revoke(owner, kind, "theirs", "default")
    refused = restored()
    assert (refused.status_code, "has no" in refused.text) == (409, True), refused.text
    stored = client.get(f"{place}/export", headers=headers).text
    assert "theirs" not in stored
    grant(owner, kind, "theirs", "default")
    assert restored().status_code == 200


def test_a_row_typed_by_sql_in_the_default_project_needs_no_grant(db: Engine) -> None:
    with db.connect() as connection:
        found = connection.execute(
            text("SELECT object_type, object_id, project_id FROM t_ds_grant")
        )
        assert [tuple(row) for row in found] == [(int(GrantKind.TENANT), 1, 1)]


def test_a_python_task_needs_a_grant_for_each_of_its_data_sources(
    client: TestClient, owner: Session, theirs: dict[GrantKind, int]
) -> None:
    headers = headers_of(owner, "ada", "author")
    params = {"rawScript": "1", "datasources": {"sales": theirs[GrantKind.DATASOURCE]}}
    body = document({"tasks": [a_node(type="PYTHON", params=params)]})
    made = client.post(f"{BASE}/definitions/import", json=body, headers=headers)
    (row,) = made.json()["items"]
    assert row["release_state"] == "OFFLINE"
    place = f"{BASE}/definitions/{row['id']}/online"
    refused = client.post(place, headers=headers)
    assert refused.status_code == 409
    assert "params.datasources.sales" in refused.json()["detail"]
    with owner.engine.begin() as connection:
        grant_to(connection, GrantKind.DATASOURCE, theirs[GrantKind.DATASOURCE], 1)
    assert client.post(place, headers=headers).status_code == 200


def test_x108_a_definition_uses_only_resources_of_users_with_a_role_in_its_project(
    client: TestClient, owner: Session, db: Engine
) -> None:
    headers = headers_of(owner, "ada", "author")
    pat = create_user(owner, "pat", is_admin=False, password=None, tenant=None).view.id
    file = f"users/{pat}-{'0f' * 16}/lib/main.py"
    node = a_node(type="PYTHON", params={"resourceList": [{"res": file}]})
    body = document({"tasks": [node]})
    made = client.post(f"{BASE}/definitions/import", json=body, headers=headers)
    (row,) = made.json()["items"]
    assert row["release_state"] == "OFFLINE"
    assert f"user {pat} does not have a role in project 'default'" in json.dumps(row["unmapped"])
    refused = client.post(f"{BASE}/definitions/{row['id']}/online", headers=headers)
    assert (refused.status_code, f"user {pat} does not" in refused.text) == (409, True)
    tasks = PostgresTaskStore(db)
    admin = create_user(owner, "root", is_admin=True, password=None, tenant=None).view.id
    wanted = [(1, pat), (1, admin), (1, 999_999), (2, pat), (1, 2**40)]
    assert tasks.lenders(wanted) == {(1, admin)}
    give_role(owner, "pat", project="default", role="viewer")
    assert tasks.lenders(wanted) == {(1, admin), (1, pat)}
    released = client.post(f"{BASE}/definitions/{row['id']}/online", headers=headers)
    assert released.status_code == 200, released.text
