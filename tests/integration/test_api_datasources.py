"""Data sources over HTTP: no answer has a password, and no password goes to another server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from api.policy import BASE
from common.datasource_keys import is_sealed
from common.store import tables as t
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import a_definition

PATH = f"{BASE}/datasources"
BODY: dict[str, Any] = {
    "name": "dw",
    "address": "127.0.0.1:1",
    "database": "d",
    "user": "etl",
    "password": "hunter2",
}


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    return headers_of(owner, "admin", "admin")


def params_of(db: Engine) -> str:
    with db.connect() as connection:
        return str(connection.scalar(select(t.datasource.c.connection_params)))


def test_a_data_source_is_made_changed_and_removed_without_its_password_being_told(
    client: TestClient, admin: dict[str, str], db: Engine
) -> None:
    made = client.post(PATH, json=BODY, headers=admin)
    assert made.status_code == 201, made.text
    one, tag = f"{PATH}/{made.json()['id']}", made.headers["etag"]
    assert (made.json()["new"], made.json()["has_password"]) == (True, True)
    assert is_sealed(params_of(db))
    assert client.post(PATH, json=BODY, headers=admin).status_code == 409
    read = client.get(one, headers=admin)
    assert (read.headers["etag"], read.json()["address"]) == (tag, "127.0.0.1:1")
    change = {key: BODY[key] for key in ("address", "database", "user")}
    assert client.put(one, json=change, headers=admin).status_code == 428
    # The secret alone is another tag.
    secret = {**change, "password": "hunter3"}
    renewed = client.put(one, json=secret, headers={**admin, "If-Match": tag})
    assert (renewed.status_code, renewed.headers["etag"] == tag) == (200, False), renewed.text
    late = client.put(one, json=change, headers={**admin, "If-Match": tag})
    assert (late.status_code, "saved by admin at" in late.json()["detail"]) == (412, True)
    now = {**admin, "If-Match": renewed.headers["etag"]}
    # It is kept for the same place alone, so that nobody has it sent to another server.
    for other in ({"address": "10.0.0.1:1"}, {"user": "eve"}, {"database": "x"}):
        moved = client.put(one, json={**change, **other}, headers=now)
        assert (moved.status_code, moved.json()["mistakes"][0]["place"]) == (422, "password")
    kept = client.put(one, json={**change, "note": "n"}, headers=now)
    assert (kept.json()["has_password"], kept.json()["note"]) == (True, "n")
    with db.connect() as connection:
        lines = connection.execute(
            select(t.audit_log.c.outcome, t.audit_log.c.detail).where(
                t.audit_log.c.object_type == "datasource"
            )
        ).all()
    assert [each.outcome for each in lines].count("done") == 3
    told = "".join(
        [client.get(PATH, headers=admin).text, *(str(each.detail) for each in lines)]
        + [each.text for each in (made, read, renewed, late, kept)]
    )
    assert "hunter" not in told
    task = {"name": "q", "type": "SQL", "params": {"datasource": made.json()["id"]}}
    a_definition(db, name="user", process_definition_json=json.dumps({"tasks": [task]}))
    used = {**admin, "If-Match": "*"}
    assert client.delete(one, headers=used).status_code == 409
    with db.begin() as connection:
        connection.execute(t.process_definition.delete())
    assert client.delete(one, headers=now).status_code == 412
    assert client.delete(one, headers=used).status_code == 200
    assert client.get(one, headers=admin).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "db:5432/x?socketFactory=y"},
        {"address": None, "url": "postgresql://u:hunter9@h/d"},
        {"address": None, "url": "jdbc:h2:mem:;INIT=RUNSCRIPT"},
        {"url": "sqlite:///x.db"},
        {"type": "mysql"},
        {"database": None},
        {"password": "a\nb\0"},
        {"unknown": 1},
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(
    client: TestClient, admin: dict[str, str], db: Engine, wrong: dict[str, Any]
) -> None:
    answer = client.post(PATH, json={**BODY, **wrong}, headers=admin)
    assert answer.status_code == 422, answer.text
    assert "hunter" not in answer.text
    assert client.get(PATH, headers=admin).json()["items"] == []


def test_authors_see_data_sources_and_administrators_alone_change_them(
    client: TestClient, admin: dict[str, str], owner: Session, db: Engine
) -> None:
    body = BODY | {"projects": ["default"]}
    number = client.post(PATH, json=body, headers=admin).json()["id"]
    ada, vera = headers_of(owner, "ada", "author"), headers_of(owner, "vera", "operator")
    assert client.get(PATH, headers=ada).json()["items"][0]["id"] == number
    assert client.get(PATH, headers=vera).status_code == 403
    for method, path in (("POST", PATH), ("PUT", f"{PATH}/{number}")):
        body = BODY if method == "POST" else {"url": "sqlite:///x.db"}
        answer = client.request(method, path, json=body, headers={**ada, "If-Match": "*"})
        assert answer.status_code == 403
    # Else it would tell an author which addresses answer.
    assert client.post(f"{PATH}/{number}/test", headers=ada).status_code == 403
    assert client.post(f"{PATH}/{number}/test", headers=admin).status_code == 503
    line = t.audit_log.c
    with db.connect() as connection:
        tried = connection.execute(
            select(line.user_name, line.object_id, line.outcome)
            .where(line.action == "datasource.test")
            .order_by(line.id)
        ).all()
    assert [tuple(each) for each in tried] == [
        ("ada", number, "refused"),
        ("admin", number, "done"),
    ]
