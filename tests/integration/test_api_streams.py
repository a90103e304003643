"""Supervisors and datasets by the HTTP API: whose they are, and what is told of them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, insert, select, update

from api.policy import BASE
from common.model.intervals import read_interval
from common.model.locks import LockRequest, LockType, NotShared
from common.model.segments import Publication, Published, Segment, SegmentId
from common.model.states import ProcessState, TaskState
from common.model.topologies import Wanted
from common.store import tables as t
from common.store.streams.locks import request_locks
from common.store.streams.publication import publish
from operations.session import Session
from tests.integration.api_worlds import a_world, add_segment, headers_of, worlds
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.reviewing import with_review
from tests.reference.java_consumer import HOSTILE
from tests.unit.stream_specs import SECRET, SMALL

_STREAMS = f"{BASE}/streams"
LOG_IN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}


def a_spec(**properties: Any) -> dict[str, Any]:
    document = copy.deepcopy(SMALL)
    document["spec"]["ioConfig"]["consumerProperties"] |= properties
    return document


def kept(db: Engine) -> dict[str, Any]:
    """The properties of the consumer in the newest version."""
    with db.connect() as connection:
        spec: dict[str, Any] = connection.scalar(
            select(t.supervisor.c.spec).order_by(t.supervisor.c.version.desc()).limit(1)
        )
    properties: dict[str, Any] = spec["spec"]["ioConfig"]["consumerProperties"]
    return properties


def test_a_secret_is_never_told_and_kept_for_its_brokers_alone(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    secret = {"sasl.password": SECRET, **LOG_IN}
    made = client.post(_STREAMS, json=a_spec(**secret), headers=ada)
    assert (made.status_code, made.json()["outcome"]) == (201, "created")
    history = client.get(f"{_STREAMS}/flights/history", headers=ada)
    assert SECRET not in history.text
    shown = history.json()["items"][0]["spec"]
    # As it was shown it is the same, and with another setting another version.
    again = client.post(_STREAMS, json=shown, headers=ada)
    assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
    shown["spec"]["ioConfig"]["replicas"] = 2
    assert client.post(_STREAMS, json=shown, headers=ada).json()["version"] == 2
    assert kept(db)["sasl.password"] == SECRET
    for other in (
        {"bootstrap.servers": "evil:9092"},
        {"security.protocol": "PLAINTEXT"},
        {"client.rack": "a"},
        {"client.id": "another"},
    ):
        properties = {"sasl.password": "******", **LOG_IN, **other}
        answer = client.post(_STREAMS, json=a_spec(**properties), headers=ada)
        assert (answer.status_code, answer.json()["mistakes"][0]["place"]) == (422, "spec"), other
        assert SECRET not in answer.text
    assert kept(db)["bootstrap.servers"] == "broker:9092"


def test_an_admin_submits_the_supervisors_of_a_project_that_asks_for_a_review(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada, bob = headers_of(owner, "ada", "author"), headers_of(owner, "bob", "admin")
    eve = headers_of(owner, "eve", "operator")
    with_review(owner)
    refused = client.post(_STREAMS, json=a_spec(), headers=ada)
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "project 'default' asks for a review: an admin of the project submits it",
    )
    by_druid = client.post("/druid/indexer/v1/supervisor", json=a_spec(), headers=ada)
    assert by_druid.status_code >= 400
    assert client.post(_STREAMS, json=a_spec(), headers=eve).status_code == 403
    assert client.post(_STREAMS, json=a_spec(), headers=bob).status_code == 201
    changed = a_spec(**{"client.rack": "a"})
    for headers, status in ((ada, 409), (bob, 200)):
        assert client.post(_STREAMS, json=changed, headers=headers).status_code == status
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.supervisor)) == 2
    assert client.post(f"{_STREAMS}/flights/suspend", headers=ada).status_code == 200
    assert client.post(f"{_STREAMS}/flights/resume", headers=ada).status_code == 200


def test_x88_a_name_that_is_taken_elsewhere_is_shown_only_to_users_who_could_create_it(
    client: TestClient, owner: Session, db: Engine
) -> None:
    worlds(db)
    vic = headers_of(owner, "vic", "viewer")
    answers = []
    for name in ("theirs", "a name of no object"):
        spec = a_spec()
        spec["spec"]["dataSchema"]["dataSource"] = name
        answers.append(client.post(_STREAMS, json=spec, headers=vic))
    assert [each.status_code for each in answers] == [403, 403]
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


def test_hostile_properties_are_refused_with_their_places_x31(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    for name, value in HOSTILE.items():
        document = a_spec(**{name: value})
        document["spec"]["ioConfig"]["replicas"] = "many"
        answer = client.post(_STREAMS, json=document, headers=ada)
        found = [str(each) for each in answer.json()["mistakes"]]
        assert (answer.status_code, len(found)) == (422, 2), name
        assert "consumerProperties" in found[0]
        assert "replicas" in found[1]
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.supervisor)) == 0


def test_a_specification_with_mistakes_names_them_all(client: TestClient, owner: Session) -> None:
    ada = headers_of(owner, "ada", "author")
    wrong = a_spec()
    wrong["spec"]["ioConfig"] |= {"replicas": -1, "taskDuration": "soon", "nonsense": 1}
    answer = client.post(_STREAMS, json=wrong, headers=ada)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/specification")
    assert len(answer.json()["mistakes"]) == 3
    for body in (b"", b"\xff", b"[]", b'{"type": "kafka"', b"[" * 100_000, b'"\\ud800"', b"null"):
        assert client.post(_STREAMS, content=body, headers=ada).status_code == 422, body


def test_a_name_that_is_taken_elsewhere_tells_nothing_of_its_project(
    client: TestClient, owner: Session, db: Engine
) -> None:
    worlds(db)
    ada = headers_of(owner, "ada", "author")
    spec = a_spec()
    for name, tables in (("theirs", ()), ("theirs", (t.supervisor, t.supervisor_runtime))):
        with db.begin() as connection:
            for table in tables:
                connection.execute(table.delete())
        spec["spec"]["dataSchema"]["dataSource"] = name
        answer = client.post(_STREAMS, json=spec, headers=ada)
        assert answer.status_code == 409, answer.text
        assert "foreign" not in answer.text
    with db.begin() as connection:
        connection.execute(t.dataset.delete())
    # Rows of nobody's are for administrators, who may give them to a project so.
    assert client.post(_STREAMS, json=spec, headers=ada).status_code == 409
    assert client.get(f"{BASE}/datasets", headers=ada).json()["items"] == []
    admin = headers_of(owner, "admin", "")
    names = [
        each["dataset"] for each in client.get(f"{BASE}/datasets", headers=admin).json()["items"]
    ]
    assert names == ["ours", "theirs"]
    assert client.post(_STREAMS, json=spec, headers=admin).status_code == 201
    assert client.get(f"{BASE}/datasets/theirs", headers=ada).status_code == 200


def test_a_dataset_is_of_the_project_that_first_publishes_into_it(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "viewer")
    with db.begin() as connection:
        connection.execute(insert(t.project).values(id=5, name="theirs"))

    names = itertools.count()

    def publish_for(project: int, *, refused: bool = False) -> int:
        """Try to append to the dataset as a task of the project; return a viewer's status code."""
        definition = a_definition(db, name=f"{next(names)}", project_id=project)
        run = an_instance(db, ProcessState.RUNNING, process_definition_id=definition)
        task = an_attempt(db, run, TaskState.RUNNING, flag=1)
        day = read_interval("2026-11-20/P1D")
        wanted = LockRequest(dataset="ds", group_id=f"{run}", interval=day, type=LockType.APPEND)
        with db.begin() as connection:
            locks = request_locks(connection, task, [wanted])
        assert isinstance(locks, NotShared) is refused
        if not isinstance(locks, tuple):
            return client.get(f"{BASE}/datasets/ds", headers=ada).status_code
        name = SegmentId(interval=day, version=locks[0].version, partition_num=task)
        made = Segment(id=name, files=(f"{task}.parquet",), rows=1, bytes=1)
        assert isinstance(
            publish(
                db, Publication(dataset="ds", task_id=task, sequence=f"{task}", segments=(made,))
            ),
            Published,
        )
        return client.get(f"{BASE}/datasets/ds", headers=ada).status_code

    assert publish_for(5) == 404
    assert publish_for(1, refused=True) == 404
    with db.begin() as connection:
        connection.execute(t.dataset.delete())
    # What is nobody's by then is not for who comes next, and what has nothing is.
    assert publish_for(1, refused=True) == 404
    with db.begin() as connection:
        connection.execute(t.segment.delete())
    assert publish_for(1) == 200


def test_a_deleted_project_leaves_no_name_taken_and_its_rows_to_administrators(
    client: TestClient, owner: Session, db: Engine
) -> None:
    admin = headers_of(owner, "admin", "")
    theirs = worlds(db)[1].objects
    spec = a_spec()
    spec["spec"]["dataSchema"]["dataSource"] = "theirs"
    with db.begin() as connection:
        of_it = t.process_definition.c.project_id == theirs["project"]
        connection.execute(t.process_definition.delete().where(of_it))
    gone = f"{BASE}/projects/{theirs['project']}"
    refused = client.delete(gone, headers={**admin, "If-Match": "*"})
    assert (refused.status_code, "stream terminate theirs" in refused.text) == (409, True)
    with db.begin() as connection:
        connection.execute(
            update(t.supervisor_runtime)
            .where(t.supervisor_runtime.c.id == "theirs")
            .values(active=False)
        )
    refused = client.delete(gone, headers={**admin, "If-Match": "*"})
    assert (refused.status_code, "topology kill theirs" in refused.text) == (409, True)
    killed = Wanted(number=2, active=False, killed=True).document()
    with db.begin() as connection:
        connection.execute(
            update(t.topology).where(t.topology.c.name == "theirs").values(wanted=killed)
        )
    assert client.delete(gone, headers={**admin, "If-Match": "*"}).status_code == 200
    assert client.get(f"{BASE}/datasets/theirs", headers=admin).status_code == 200
    ada = headers_of(owner, "ada", "author")
    assert client.get(f"{BASE}/datasets/theirs", headers=ada).status_code == 404
    assert client.post(_STREAMS, json=spec, headers=ada).status_code == 409
    made = client.post(_STREAMS, json=spec, headers=admin)
    assert (made.status_code, made.json()["version"]) == (201, 1)
    names = [each["id"] for each in client.get(_STREAMS, headers=ada).json()["items"]]
    assert names == ["ours", "theirs"]


def test_lists_go_on_behind_a_name_and_a_repeated_order_is_one(
    client: TestClient, owner: Session, db: Engine
) -> None:
    a_world(db, 1, "ours")
    ada = headers_of(owner, "ada", "author")
    for kind, field in (("streams", "id"), ("datasets", "dataset")):
        with db.begin() as connection:
            connection.execute(t.supervisor_runtime.delete())
            connection.execute(t.supervisor.delete())
            connection.execute(t.segment.delete())
            for name in ("b", "a", "c"):
                run = {"project_id": 1, "process_definition_id": 1}
                connection.execute(insert(t.supervisor_runtime).values(id=name, version=1, **run))
                connection.execute(insert(t.supervisor).values(id=name, version=1, spec={}))
                add_segment(connection, name)
                if kind == "streams":
                    connection.execute(insert(t.dataset).values(name=name, project_id=1))
        first = client.get(f"{BASE}/{kind}?limit=2", headers=ada).json()
        rest = client.get(f"{BASE}/{kind}?limit=2&after={first['next']}", headers=ada).json()
        assert [each[field] for each in first["items"] + rest["items"]] == ["a", "b", "c"]
        assert rest["next"] is None
        assert client.get(f"{BASE}/{kind}?after=x", headers=ada).status_code == 422
    once = {**ada, "Idempotency-Key": "k"}
    made = [
        client.post(f"{_STREAMS}/a/handoff", json={"groups": [0]}, headers=once) for _ in range(2)
    ]
    assert [each.status_code for each in made] == [202, 202]
    assert made[0].json() == made[1].json()
    for body in (
        {},
        {"all": True, "partitions": [1]},
        {"offsets": {"-1": 0}},
        {"offsets": {"x": 0}},
    ):
        answer = client.post(f"{_STREAMS}/a/reset", json=body, headers=ada)
        assert answer.status_code == 422, answer.text
    with db.connect() as connection:
        requests = select(func.count()).select_from(t.supervisor_command)
        assert connection.scalar(requests) == 1
