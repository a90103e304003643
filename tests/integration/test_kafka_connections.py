"""Connections to Kafka: created by administrators, granted to projects, named by supervisors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select

from api.policy import BASE
from common.datasource_keys import DatasourceKeys, is_sealed, key_file
from common.model.grants import GrantKind
from common.model.streams.connections import KAFKA, properties_in
from common.model.streams.consumer import ConsumerPropertyError
from common.store import tables as t
from common.store.master.supervisors import PostgresSupervisorStore
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.conftest import Cli
from tests.unit.stream_specs import SMALL

SECRET = "hunter2-sasl"
PROPERTIES = {
    "bootstrap.servers": "broker-1:9092,broker-2:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "orca",
    "sasl.password": SECRET,
    "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
}


def named(name: str, **more: Any) -> dict[str, Any]:
    document = copy.deepcopy(SMALL)
    io = document["spec"]["ioConfig"]
    io |= {"connection": name, "consumerProperties": {"fetch.min.bytes": 5}, **more}
    return document


def test_a_connection_is_made_by_an_administrator_and_used_by_its_projects_x32(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    root = headers_of(owner, "admin", "")
    body = {"name": "events", "type": "kafka", "properties": PROPERTIES}
    assert client.post(f"{BASE}/datasources", json=body, headers=ada).status_code == 403
    made = client.post(f"{BASE}/datasources", json=body, headers=root)
    assert (made.status_code, made.json()["type"]) == (201, "KAFKA")
    assert (made.json()["kind"], made.json()["has_password"]) == ("kafka", True)
    assert made.json()["address"] == PROPERTIES["bootstrap.servers"]
    assert SECRET not in made.text
    assert SECRET not in client.get(f"{BASE}/datasources", headers=root).text
    with db.connect() as connection:
        stored = connection.scalar(select(t.datasource.c.connection_params))
    assert is_sealed(stored)
    assert SECRET not in stored
    assert "BEGIN" not in stored
    # A connection without a grant gets the same answer as a missing connection.
    answers = [
        client.post(f"{BASE}/streams", json=named(name), headers=ada)
        for name in ("events", "nowhere", "a\0b", "a" * 100)
    ]
    assert [each.status_code for each in answers] == [404, 404, 422, 404]
    foreign, absent = answers[0].json(), answers[1].json()
    assert foreign["detail"].replace("events", "nowhere") == absent["detail"]
    with db.begin() as connection:
        connection.execute(
            insert(t.grant).values(
                object_type=int(GrantKind.DATASOURCE), object_id=made.json()["id"], project_id=1
            )
        )
    assert client.post(f"{BASE}/streams", json=named("events"), headers=ada).status_code == 201
    store = PostgresSupervisorStore(db)
    params = store.connection("flights", "events")
    assert params is not None
    opened = DatasourceKeys(key_file(owner.config)).opened(params)
    found = properties_in(opened, "events")
    assert (found["sasl.password"], found["ssl.ca.pem"][:10]) == (SECRET, "-----BEGIN")
    with db.begin() as connection:
        connection.execute(t.grant.delete())
    assert store.connection("flights", "events") is None
    with pytest.raises(ConsumerPropertyError, match="has no data source 'events'"):
        properties_in(None, "events")


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ({"ssl.ca.location": "/etc/shadow"}, "ssl.ca.location is not allowed"),
        ({"plugin.library.paths": "/tmp/evil.so"}, "plugin.library.paths is not allowed"),
        ({"ssl.truststore.certificates": "/etc/shadow"}, "must be PEM text"),
        ({"sasl.password": ""}, "sasl.password is missing"),
        ({"bootstrap.servers": ""}, "must name a broker"),
    ],
)
def test_a_connection_with_a_mistake_is_refused_without_its_secrets(
    client: TestClient, owner: Session, more: dict[str, str], hint: str
) -> None:
    root = headers_of(owner, "admin", "")
    body = {"name": "events", "type": "kafka", "properties": {**PROPERTIES, **more}}
    answer = client.post(f"{BASE}/datasources", json=body, headers=root)
    assert answer.status_code == 422
    assert hint in answer.text
    assert SECRET not in answer.text
    for wrong in ({"type": "mysql"}, {"url": "sqlite:///a"}, {"password": "x"}):
        answer = client.post(f"{BASE}/datasources", json={**body, **wrong}, headers=root)
        assert answer.status_code == 422


def test_the_command_line_makes_a_connection_of_a_file(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "kafka.json"
    file.write_text(json.dumps(PROPERTIES))
    code, out, err = cli(
        "datasource", "create", "events", "--type", "kafka", "--properties", str(file)
    )
    assert code == 0
    assert SECRET not in out + err
    with db.connect() as connection:
        assert connection.scalar(select(t.datasource.c.type)) == KAFKA
    assert cli("datasource", "create", "other", "--type", "kafka")[0] == 2
    assert cli("datasource", "test", "events")[0] != 0
    file.write_text(f'{{"sasl.password": "{SECRET}"')
    code, _, err = cli("datasource", "create", "b", "--type", "kafka", "--properties", str(file))
    assert code == 2
    assert SECRET not in err


@pytest.mark.parametrize("params", ["", "[]", "{}", '{"password": "x"}', '{"password": "[1]"}'])
def test_a_row_that_somebody_has_typed_is_told_and_not_shown(params: str) -> None:
    with pytest.raises(ConsumerPropertyError, match="connection 'events' can't be read"):
        properties_in(params, "events")
    hostile = json.dumps({"password": json.dumps({**PROPERTIES, "debug": "all"})})
    with pytest.raises(ConsumerPropertyError, match="debug is not allowed") as caught:
        properties_in(hostile, "events")
    assert SECRET not in str(caught.value)
