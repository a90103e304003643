"""Versions of definitions over HTTP: kept at every save, compared, and restored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, select, update

from api.policy import BASE
from common.model.rights import ROLES
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.strict_yaml import strict_yaml
from operations.run_versions import compare_with_latest
from operations.session import Session
from tests.builders import a_definition_json
from tests.integration.api_worlds import headers_of, worlds
from tests.integration.cli_rows import an_attempt, an_instance

PATH = f"{BASE}/definitions"


@pytest.fixture
def ada(owner: Session) -> dict[str, str]:
    """The headers of an author."""
    return headers_of(owner, "ada", "author")


def a_document(graph: str = "a >> b", **more: Any) -> dict[str, Any]:
    return {
        "name": "nightly",
        "processDefinitionJson": json.loads(a_definition_json(graph)),
        **more,
    }


def test_every_save_keeps_the_former_version_to_be_compared_and_restored(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    def saved(graph: str, value: str) -> dict[str, Any]:
        password = {"prop": "db_password", "value": value}
        return a_document(graph=graph, globalParams=[password], executionType="SERIAL_WAIT")

    path = f"{PATH}/{client.post(PATH, json=saved('a', 'hunter2'), headers=ada).json()['id']}"
    change = {**ada, "If-Match": "*"}
    client.put(path, json=saved("a >> b", "hunter3"), headers=change)
    # By hand, which leaves nothing behind but what is there at the next save.
    with db.begin() as connection:
        json_of = t.process_definition.c.process_definition_json
        connection.execute(
            update(t.process_definition).values(
                version=3, process_definition_json=func.replace(json_of, '"true"', '"exit 1"')
            )
        )
    client.put(path, json=saved("b", "hunter4"), headers=change)
    page = client.get(f"{path}/versions", params={"limit": 3}, headers=ada).json()
    found = [(each["version"], each["user"], each["current"]) for each in page["items"]]
    assert found == [(4, "ada", True), (3, None, False), (2, "ada", False)]
    rest = client.get(f"{path}/versions", params={"after": page["next"]}, headers=ada).json()
    assert [each["version"] for each in rest["items"]] == [1]

    by_hand = client.get(f"{path}/diff", params={"from": 2, "to": 3}, headers=ada).json()
    assert [each["name"] for each in by_hand["changed"]] == ["a", "b"]
    latest = client.get(f"{path}/diff", headers=ada).json()
    assert (latest["before"], latest["after"], latest["removed"]) == (3, 4, ["a"])
    assert latest["edges_removed"] == [["a", "b"]]

    old = client.get(f"{path}/versions/1", headers=ada)
    assert old.json()["references"] == ["ORCAFLOW_SECRET_DB_PASSWORD"]
    text = client.get(f"{path}/export", params={"as": "yaml"}, headers=ada)
    assert text.headers["content-type"].startswith("application/yaml")
    assert text.headers["orcaflow-references"] == "ORCAFLOW_SECRET_DB_PASSWORD"
    asked = client.get(f"{path}/export", headers=ada)
    assert strict_yaml(text.content) == asked.json()["document"]
    assert text.headers["etag"] == asked.headers["etag"]
    order = {"version": 1}
    assert client.post(f"{path}/restore", json=order, headers=ada).status_code == 428
    tag = asked.headers["etag"]
    first, second = (
        client.post(f"{path}/restore", json=order, headers={**ada, "If-Match": each})
        for each in ('"v3-0000000000000000"', tag)
    )
    assert (first.status_code, first.headers["etag"]) == (412, tag)
    restored = second
    assert restored.headers["etag"] != tag
    assert (restored.status_code, restored.json()["version"]) == (200, 5), restored.text
    now = client.get(f"{path}/export", headers=ada).json()["document"]
    assert [each["name"] for each in now["processDefinitionJson"]["tasks"]] == ["a"]
    newest = client.get(f"{path}/versions", params={"limit": 1}, headers=ada).json()["items"][0]
    assert (newest["user"], newest["note"]) == ("ada", "version 1 again")
    again = client.post(f"{path}/restore", json={"version": 1}, headers=change).json()
    assert (again["version"], again["changed"]) == (5, False)
    assert (
        client.get(f"{path}/diff", params={"from": 1, "to": 5}, headers=ada).json()["changed"] == []
    )
    for missing in (6, 2**31 - 1):
        body = {"version": missing}
        assert client.post(f"{path}/restore", json=body, headers=change).status_code == 404
        assert client.get(f"{path}/versions/{missing}", headers=ada).status_code == 404
        asked = {"from": missing}
        assert client.get(f"{path}/diff", params=asked, headers=ada).status_code == 404
    with db.connect() as connection:
        kept = connection.scalars(select(t.process_definition_log.c.document)).all()
        row = connection.scalar(select(t.process_definition.c.global_params))
        audited = connection.execute(
            select(t.audit_log.c.action, t.audit_log.c.detail, t.audit_log.c.outcome)
            .where(t.audit_log.c.action == "definition.restore")
            .order_by(t.audit_log.c.id)
        ).all()
    # The secret is the one of now, and no version holds any.
    assert "hunter4" in (row or "")
    assert "hunter" not in "".join(kept)
    assert len(kept) == 5
    assert tuple(audited[0])[::2] == ("definition.restore", "refused")
    assert tuple(audited[1]) == ("definition.restore", "version 1", "done")
    assert {each.outcome for each in audited[3:]} == {"refused"}


def test_an_old_version_that_can_not_be_saved_any_more_is_refused_with_its_mistakes(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    number = client.post(PATH, json=a_document(), headers=ada).json()["id"]
    with db.begin() as connection:
        connection.execute(
            update(t.process_definition_log).values(
                document=json.dumps({"name": "x", "processDefinitionJson": {"tasks": []}})
            )
        )
        connection.execute(update(t.process_definition).values(version=2))
    answer = client.post(
        f"{PATH}/{number}/restore", json={"version": 1}, headers={**ada, "If-Match": "*"}
    )
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/definition")
    assert client.get(f"{PATH}/{number}", headers=ada).json()["version"] == 2


def test_a_restart_takes_the_latest_version_after_a_look_at_the_difference(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    made = client.post(PATH, json=a_document("a >> b"), headers=ada).json()
    copy = a_definition_json("a >> b")
    runs = [
        an_instance(
            db,
            ProcessState.FAILURE,
            process_definition_id=made["id"],
            name=f"nightly-1-135702720000{number}",
            process_instance_json=copy,
        )
        for number in range(3)
    ]
    for run in runs:
        an_attempt(db, run, TaskState.SUCCESS, process_definition_id=made["id"])
    path = f"{PATH}/{made['id']}"
    client.put(path, json=a_document("a >> b >> c"), headers={**ada, "If-Match": "*"})
    assert client.post(f"{path}/online", headers=ada).status_code == 200
    found = client.get(f"{BASE}/instances/{runs[0]}/diff", headers=ada).json()
    assert (found["version"], found["latest_version"], found["added"]) == (1, 2, ["c"])
    assert (found["kept"], found["runs"], found["removed_tasks"]) == (["a"], ["b", "c"], [])

    def restarted(path: str, body: object = None) -> tuple[int, list[tuple[int, int]]]:
        answer = client.post(f"{BASE}/instances/{path}", json=body, headers=ada)
        document = answer.json()
        rows = document.get("items", [document])
        versions = [(each.get("version"), each.get("latest_version")) for each in rows]
        return answer.status_code, versions

    assert restarted(f"{runs[0]}/recover") == (202, [(1, 2)])
    assert restarted(f"{runs[1]}/rerun?failed=true&version=latest") == (202, [(2, 2)])
    action = {"action": "rerun", "ids": [runs[2]], "version": "latest"}
    assert restarted("actions", action) == (202, [(2, 2)])
    assert restarted("actions", {**action, "action": "stop"})[0] == 422
    assert restarted(f"{runs[0]}/recover?version=1")[0] == 422
    with db.connect() as connection:
        params = connection.scalars(select(t.command.c.command_param).order_by(t.command.c.id))
        assert ["latest" in each for each in params] == [False, True, True]
    rows = client.get(f"{BASE}/instances", headers=ada).json()["items"]
    assert {(each["version"], each["latest_version"]) for each in rows} == {(1, 2)}


def test_a_run_below_a_foreign_root_is_not_compared_for_users_who_can_t_see_the_root(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ours, theirs = worlds(db)
    run = ours.objects["instance"]
    with db.begin() as connection:
        root = {"root_id": theirs.objects["instance"], "is_sub_process": 1}
        of_run = t.process_instance.c.id == run
        connection.execute(update(t.process_instance).where(of_run).values(root))
    path = f"{BASE}/instances/{run}/diff"
    for role in ROLES:
        headers = headers_of(owner, f"one-{role}", role)
        assert client.get(path, headers=headers).status_code == 404, role
    found = compare_with_latest(owner, run)
    assert found.process_instance_id == theirs.objects["instance"]
