"""Secrets that answers mask are encrypted in every table and decrypted for readers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from api.druid.serving import BASE as DRUID
from common.datasource_keys import DatasourceKeys
from common.masking import CONSUMER_PROPERTIES
from common.parameter_keys import ParameterKeys
from common.store import tables as t
from common.store.connect import engine
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.yielding import YieldingConnection
from operations.session import Session
from tests.integration.api_worlds import headers_of, worlds
from tests.integration.planted_secrets import Planted, plant
from tests.integration.store_races.racing import MASTER, WORKER
from tests.integration.store_races.stream_stage import Stage
from tests.unit.stream_specs import SMALL

PASSWORD = "hunter2-provided"
PROPERTIES = {
    "bootstrap.servers": "broker:9092",
    "sasl.password": {"type": "default", "password": PASSWORD},
}


@dataclass(frozen=True)
class Keyed:
    """A database with a key for parameters."""

    engine: Engine
    keys: ParameterKeys
    url: str

    def dumped(self) -> dict[str, str]:
        """Return the rows of every table as text, like a dump of the database."""
        raw = engine(self.url)
        with raw.connect() as db:
            found = {
                table.name: "\n".join(
                    row
                    for (row,) in db.execute(text(f'SELECT each::text FROM "{table.name}" each'))
                )
                for table in t.metadata.sorted_tables
            }
        raw.dispose()
        return found


@pytest.fixture
def keyed(emptied_url: str, tmp_path: Path) -> Iterator[Keyed]:
    file = DatasourceKeys(tmp_path / "parameters.key")
    file.make(for_parameters=True)
    keys = ParameterKeys(file)
    made = engine(emptied_url, pool_size=3, keys=keys)
    yield Keyed(engine=made, keys=keys, url=emptied_url)
    made.dispose()


@pytest.fixture
def headers(
    app: FastAPI, client: TestClient, owner: Session, keyed: Keyed
) -> Iterator[dict[str, str]]:
    """Yield the headers of an author; give the application the key."""
    made = engine(keyed.url, by_statement=True, keys=keyed.keys)
    reading = engine(
        keyed.url, by_statement=True, keys=keyed.keys, connection_factory=YieldingConnection
    )
    reading.connect().close()
    before = app.state.engine, app.state.reading_engine
    app.state.engine, app.state.reading_engine = made, reading
    yield headers_of(owner, "ada", "author")
    app.state.engine, app.state.reading_engine = before
    made.dispose()
    reading.dispose()


def test_a_password_of_a_supervisor_is_encrypted_from_its_submission_to_its_task(
    client: TestClient, headers: dict[str, str], keyed: Keyed
) -> None:
    document = copy.deepcopy(SMALL)
    io = document["spec"]["ioConfig"]
    io |= {"useEarliestOffset": True, "startDelay": "PT0S", CONSUMER_PROPERTIES: PROPERTIES}
    answer = client.post(f"{DRUID}/supervisor", json=document, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"id": "flights"})
    stage = Stage(keyed.engine)
    stage.name = "flights"
    stage.offsets({0: 100})
    stage.passes(stage.master(), times=2)
    attempt = stage.run(stage.tasks[0])
    assert [name for name, rows in keyed.dumped().items() if PASSWORD in rows] == []
    work = PostgresStreamTasks(keyed.engine).work(WORKER, attempt)
    assert work is not None
    assert work.document["spec"]["ioConfig"][CONSUMER_PROPERTIES] == PROPERTIES
    stage.lose_lease()
    masters = PostgresSupervisorStore(keyed.engine)
    (lease,) = [
        each
        for each in masters.claim(MASTER, lease=timedelta(hours=1), limit=10)
        if each.supervisor == "flights"
    ]
    rows = masters.load(lease)
    assert rows is not None
    assert rows.document["spec"]["ioConfig"][CONSUMER_PROPERTIES] == PROPERTIES
    answer = client.get(f"{DRUID}/supervisor/flights", headers=headers)
    assert answer.status_code == 200
    assert PASSWORD not in answer.text


# Plain texts are not encrypted. `common.environment_config` encrypts environments.
NOT_DOCUMENTS = ("reason of", "alert", "log of alert", "environment")


def test_everything_that_answers_mask_is_encrypted_in_all_tables(keyed: Keyed) -> None:
    planted = Planted()
    ours, _ = worlds(keyed.engine)
    plant(keyed.engine, ours, planted, "ours")
    clear = {
        f"{table}: {field}"
        for table, rows in keyed.dumped().items()
        for field in planted.shown_in(rows.encode())
        if not field.startswith(NOT_DOCUMENTS)
    }
    assert clear == set()
