"""Definitions over HTTP: made, replaced by one of two authors, imported, linted, deleted."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select

from api.policy import BASE
from common.model.states import ProcessState
from common.store import tables as t
from operations.session import Session
from operations.users import grant
from tests.builders import a_definition_json
from tests.granting import grant_all
from tests.integration.api_worlds import a_schedule, headers_of, worlds
from tests.integration.cli_rows import a_definition, an_instance

pytestmark = pytest.mark.usefixtures("audited")

PATH = f"{BASE}/definitions"


@pytest.fixture
def ada(owner: Session) -> dict[str, str]:
    """The headers of an author."""
    return headers_of(owner, "ada", "author")


def a_document(name: str = "nightly", graph: str = "a >> b", **more: Any) -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": json.loads(a_definition_json(graph)), **more}


def names(client: TestClient, headers: dict[str, str]) -> list[str]:
    return [each["name"] for each in client.get(PATH, headers=headers).json()["items"]]


def test_a_definition_is_made_read_replaced_and_released(
    client: TestClient, ada: dict[str, str]
) -> None:
    made = client.post(PATH, json=a_document(), headers=ada)
    assert made.status_code == 201, made.text
    number, tag = made.json()["id"], made.headers["etag"]
    assert made.headers["location"] == f"{PATH}/{number}"
    assert (made.json()["version"], made.json()["release_state"]) == (1, "OFFLINE")
    path = f"{PATH}/{number}"
    read = client.get(path, headers=ada)
    assert (read.headers["etag"], [each["name"] for each in read.json()["tasks"]]) == (
        tag,
        ["a", "b"],
    )
    again = client.post(PATH, json=a_document(), headers=ada)
    assert (again.status_code, "already" in again.json()["detail"]) == (409, True)
    exported = client.get(f"{path}/export", headers=ada)
    assert exported.headers["etag"] == tag
    document = exported.json()["document"] | {"name": "daily", "description": "d"}
    assert client.put(path, json=document, headers=ada).status_code == 428
    changed = client.put(path, json=document, headers={**ada, "If-Match": tag})
    assert changed.status_code == 200, changed.text
    # The same graph is no new version, and another document all the same.
    assert (changed.json()["version"], changed.json()["name"]) == (1, "daily")
    assert changed.headers["etag"] != tag
    late = client.put(path, json=a_document(graph="a >> c"), headers={**ada, "If-Match": tag})
    assert (late.status_code, late.headers["etag"]) == (412, changed.headers["etag"])
    assert "saved by ada at" in late.json()["detail"]
    wrong = client.put(path, json=document, headers={**ada, "If-Match": f"W/{tag}"})
    assert wrong.status_code == 412
    assert client.post(f"{path}/online", headers=ada).json()["changed"] is True
    online = client.put(path, json=document, headers={**ada, "If-Match": "*"})
    assert (online.status_code, "OFFLINE first" in online.text) == (409, True)
    both = {"ids": [number], "release_state": "OFFLINE"}
    assert client.post(f"{PATH}/release", json=both, headers=ada).json()["items"][0]["changed"]
    kind = {"ids": [number], "execution_type": "SERIAL_WAIT"}
    set_ = client.post(f"{PATH}/execution-type", json=kind, headers=ada).json()["items"]
    assert set_[0]["execution_type"] == "SERIAL_WAIT"
    assert client.get(path, headers=ada).headers["etag"] != changed.headers["etag"]


def test_a_change_of_a_secret_alone_makes_another_tag(
    client: TestClient, ada: dict[str, str]
) -> None:
    def with_password(value: str) -> dict[str, Any]:
        return a_document(globalParams=[{"prop": "db_password", "value": value}])

    made = client.post(PATH, json=with_password("hunter2"), headers=ada)
    path = f"{PATH}/{made.json()['id']}"
    tag = made.headers["etag"]
    same = client.put(path, json=with_password("hunter2"), headers={**ada, "If-Match": tag})
    assert (same.json()["version"], same.headers["etag"]) == (1, tag)
    other = client.put(path, json=with_password("hunter3"), headers={**ada, "If-Match": tag})
    assert (other.json()["version"], other.headers["etag"] == tag) == (2, False)
    late = client.put(path, json=with_password("hunter4"), headers={**ada, "If-Match": tag})
    assert late.status_code == 412


def test_of_two_authors_who_save_at_once_one_is_told_of_the_other(
    client: TestClient, owner: Session, ada: dict[str, str]
) -> None:
    bob = headers_of(owner, "bob", "author")
    made = client.post(PATH, json=a_document(), headers=ada)
    path = f"{PATH}/{made.json()['id']}"
    answers: dict[str, httpx.Response] = {}
    ready = threading.Barrier(2)

    def save(name: str, headers: dict[str, str]) -> None:
        ready.wait(30)
        answers[name] = client.put(
            path,
            json=a_document(graph=f"a >> {name}"),
            headers={**headers, "If-Match": made.headers["etag"]},
        )

    saving = [threading.Thread(target=save, args=each) for each in (("ada", ada), ("bob", bob))]
    for each in saving:
        each.start()
    for each in saving:
        each.join(60)
    first, second = sorted(answers, key=lambda name: answers[name].status_code)
    assert [answers[each].status_code for each in (first, second)] == [200, 412]
    assert f"at version 2, saved by {first} at" in answers[second].json()["detail"]
    read = client.get(path, headers=ada)
    assert [each["name"] for each in read.json()["tasks"]] == ["a", first]
    assert read.headers["etag"] == answers[first].headers["etag"] == answers[second].headers["etag"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", ""),
        (b"null", ""),
        (b"[]", ""),
        (b"{", ""),
        (b'{"name": "x"}', "x"),
        (b'{"name": "x", "name": "y"}', ""),
        (b'{"name": NaN}', ""),
        (b"[" * 100_000, ""),
        (b'{"name": "\\ud800", "tasks": []}', ""),
        (b'{"name": "a\\u0000", "tasks": []}', ""),
        (json.dumps(a_document("n" * 256)).encode(), "n" * 200 + ", name"),
        (json.dumps(a_document("line\nend")).encode(), "line\nend, name"),
        (json.dumps(a_document("red \x1b[31m")).encode(), "red \x1b[31m, name"),
        (json.dumps(a_document(graph="a >> b >> a")).encode(), "nightly"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_its_place(
    client: TestClient, ada: dict[str, str], content: bytes, place: str
) -> None:
    as_json = {**ada, "Content-Type": "application/json"}
    for path in (PATH, f"{PATH}/import"):
        answer = client.post(path, content=content, headers=as_json)
        assert (answer.status_code, answer.json()["title"]) == (
            422,
            "A definition with mistakes",
        ), answer.text
        assert answer.json()["mistakes"][0]["place"].startswith(place[:200]), answer.text
        assert "\x1b" not in answer.text
    linted = client.post(f"{PATH}/lint", content=content, headers=as_json)
    assert linted.status_code == 200
    assert linted.json()["mistakes"]
    assert names(client, ada) == []


def test_names_of_all_scripts_are_kept_as_they_are(client: TestClient, ada: dict[str, str]) -> None:
    given = ["n" * 200, "日报", "\u062a\u0642", '"><script>alert(1)</script>', "' OR 1=1 --"]
    body = [a_document(each) for each in given]
    made = client.post(f"{PATH}/import", json=body, headers=ada)
    assert made.status_code == 200, made.text
    for each in given:
        (found,) = client.get(PATH, params={"name": each}, headers=ada).json()["items"]
        assert found["name"] == each
    # One that turns the text around it is refused.
    turned = client.post(PATH, json=a_document("a\u202eb"), headers=ada)
    assert turned.status_code == 422


def test_an_import_tells_what_has_no_place_and_is_all_or_nothing(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    exported = {
        "processDefinitionName": "old",
        "projectName": "p",
        "processDefinitionJson": a_definition_json("a >> b"),
        "processDefinitionLocations": "{}",
        "scheduleCrontab": "0 0 3 * * ? *",
        "scheduleStartTime": "2013-01-01 00:00:00",
        "scheduleEndTime": "2113-01-01 00:00:00",
        "scheduleWarningType": "ALL",
        "scheduleFailureStrategy": "CONTINUE",
    }
    answer = client.post(f"{PATH}/import?online=false", json=[exported, a_document()], headers=ada)
    assert answer.status_code == 200, answer.text
    old, new = answer.json()["items"]
    assert (old["name"], new["name"]) == ("old", "nightly")
    assert [each["crontab"] for each in old["schedules"]] == ["0 0 3 * * ? *"]
    assert all(each["key"] and each["problem"] for each in old["unmapped"])
    broken = a_document("other")
    broken["processDefinitionJson"]["tasks"][0]["type"] = "NOTHING"
    refused = client.post(f"{PATH}/import", json=[a_document("third"), broken], headers=ada)
    assert refused.status_code == 422
    assert refused.json()["mistakes"][0]["place"].startswith("other, task a")
    assert sorted(names(client, ada)) == ["nightly", "old"]
    with db.connect() as connection:
        lines = connection.execute(
            select(t.audit_log.c.user_name, t.audit_log.c.action, t.audit_log.c.outcome).order_by(
                t.audit_log.c.id.desc()
            )
        ).all()
    assert [tuple(each) for each in lines[:1]] == [("ada", "definition.import", "done")]
    viewing = {"project_id": 2**31 - 1}
    foreign = client.post(f"{PATH}/import", params=viewing, json=a_document(), headers=ada)
    assert foreign.status_code == 404


def test_a_tenant_whose_account_is_unfit_is_refused_at_every_route_that_saves_one_x50(
    client: TestClient, ada: dict[str, str], owner: Session, db: Engine
) -> None:
    with db.begin() as connection:
        number = connection.scalars(
            insert(t.tenant).values(tenant_code="root").returning(t.tenant.c.id)
        ).one()
        grant_all(connection)
    made = client.post(PATH, json=a_document(), headers=ada)
    path, tag = f"{PATH}/{made.json()['id']}", {"If-Match": made.headers["etag"]}
    app: Any = client.app
    config = app.state.config
    app.state.config = replace(config, worker=replace(config.worker, tenant_mode="tenant"))
    for named in ({"tenantCode": "root"}, {"tenantId": number}):
        document = a_document("as-root")
        document["processDefinitionJson"] |= named
        for refused in (
            client.post(PATH, json=document, headers=ada),
            client.post(f"{PATH}/import", json=document, headers=ada),
            client.put(path, json=document, headers={**ada, **tag}),
        ):
            assert refused.status_code == 422, refused.text
            assert "uid 0 is root" in refused.text
    assert names(client, ada) == ["nightly"]
    root = headers_of(owner, "admin", "admin")
    refused = client.post(f"{BASE}/tenants", json={"code": "daemon"}, headers=root)
    assert refused.status_code == 422
    assert "is a system account" in refused.text


def test_a_secret_stays_here_and_is_kept_by_a_change(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    document = a_document(
        globalParams=[
            {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"}
        ]
    )
    made = client.post(PATH, json=document, headers=ada)
    path = f"{PATH}/{made.json()['id']}"
    exported = client.get(f"{path}/export", headers=ada)
    assert "hunter2" not in exported.text
    assert exported.json()["references"] != []
    again = exported.json()["document"] | {"description": "more"}
    changed = client.put(path, json=again, headers={**ada, "If-Match": made.headers["etag"]})
    assert changed.status_code == 200, changed.text
    assert "hunter2" not in changed.text + client.get(path, headers=ada).text
    with db.connect() as connection:
        kept = connection.scalar(select(t.process_definition.c.global_params))
    assert "hunter2" in str(kept)


def test_placeholders_that_clients_fill_in_are_text_here_x27(
    client: TestClient, ada: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_SECRET_NIGHTLY", "hunter2")
    monkeypatch.setenv("NIGHTLY", "hunter2")
    text = "$FILE{/etc/passwd} $ENV{NIGHTLY} ${CONFIG.database.url} $FILE{'../x'}"
    document = a_document(f"of {text}", description=text)
    (node, *_) = document["processDefinitionJson"]["tasks"]
    node["params"]["rawScript"] = f"echo {text}"
    node["description"] = text
    linted = client.post(f"{PATH}/lint", json=document, headers=ada)
    made = client.post(PATH, json=document, headers=ada)
    assert (linted.status_code, made.status_code) == (200, 201), made.text
    exported = client.get(f"{PATH}/{made.json()['id']}/export", headers=ada)
    kept = exported.json()["document"]
    assert (kept["name"], kept["description"]) == (document["name"], text)
    (shown, *_) = kept["processDefinitionJson"]["tasks"]
    assert (shown["params"]["rawScript"], shown["description"]) == (f"echo {text}", text)
    # A reference to a secret is one, which only whoever has the database fills in from outside.
    node["params"]["rawScript"] = "echo $ENV{ORCAFLOW_SECRET_NIGHTLY}"
    refused = client.post(PATH, json={**document, "name": "other"}, headers=ada)
    assert (refused.status_code, names(client, ada)) == (422, [document["name"]])
    for answer in (linted, made, exported, refused):
        assert "hunter2" not in answer.text
        assert "root:" not in answer.text


def test_a_definition_is_deleted_as_it_was_read(
    client: TestClient, owner: Session, db: Engine
) -> None:
    admin = headers_of(owner, "eve", "admin")
    made = client.post(PATH, json=a_document(), headers=admin)
    path = f"{PATH}/{made.json()['id']}"
    assert client.delete(path, headers=admin).status_code == 428
    assert client.delete(path).status_code == 401
    assert client.delete(path, headers={**admin, "If-Match": '"v1-0"'}).status_code == 412
    done = client.delete(path, headers={**admin, "If-Match": made.headers["etag"]})
    assert [each["name"] for each in done.json()["deleted"]] == ["nightly"]
    assert client.get(path, headers=admin).status_code == 404
    # Several: all or none.
    online = a_definition(db, name="online", process_definition_json=a_definition_json("a"))
    other = client.post(PATH, json=a_document("other"), headers=admin).json()["id"]
    both = {"ids": [other, online]}
    assert client.post(f"{PATH}/delete", json=both, headers=admin).status_code == 409
    assert names(client, admin) == ["online", "other"]


def test_an_order_to_several_runs_is_carried_out_for_all_or_for_none(
    client: TestClient, owner: Session, db: Engine
) -> None:
    eve = headers_of(owner, "eve", "admin")
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    failed, stopped, live = (
        an_instance(db, state, process_definition_id=number)
        for state in (ProcessState.FAILURE, ProcessState.STOP, ProcessState.RUNNING)
    )
    child = an_instance(db, ProcessState.STOP, process_definition_id=number, root_id=failed)
    with db.begin() as connection:
        other = connection.scalar(
            t.project.insert().values(name="foreign").returning(t.project.c.id)
        )
    foreign = an_instance(
        db,
        ProcessState.FAILURE,
        process_definition_id=a_definition(db, project_id=other, name="theirs"),
    )

    def act(action: str, *ids: int) -> tuple[int, int]:
        body = {"action": action, "ids": list(ids)}
        answer = client.post(f"{BASE}/instances/actions", json=body, headers=eve)
        with db.connect() as connection:
            put = connection.execute(select(t.command.c.id)).all()
        return answer.status_code, len(put)

    assert act("recover", failed, live) == (409, 0)
    assert act("recover", failed, foreign) == (404, 0)
    assert act("recover", failed, 2**31 - 1) == (404, 0)
    assert act("stop", failed, live) == (409, 0)
    assert act("stop") == (422, 0)
    assert act("recover", failed, stopped, child, failed) == (202, 2)
    assert act("stop", live) == (202, 3)

    def delete(*ids: int) -> httpx.Response:
        return client.post(f"{BASE}/instances/delete", json={"ids": list(ids)}, headers=eve)

    assert delete(stopped, live).status_code == 409
    assert delete(foreign).status_code == 404
    more = an_instance(db, ProcessState.SUCCESS, process_definition_id=number)
    assert delete(more).json()["deleted"] == [more]


def test_a_schedule_is_made_changed_released_and_deleted(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    path = f"{BASE}/schedules"
    body = {
        "definition_id": number,
        "cron": "0  0 3 * * ? *",
        "zone": "America/New_York",
        "last": "2100-01-01",
        "misfire_policy": "fire_once",
        "execution_type": "SERIAL_WAIT",
        "params": {"day": "1", "password": "hunter2"},
    }
    made = client.post(path, json=body, headers=ada)
    assert made.status_code == 201, made.text
    schedule = made.json()
    assert (schedule["crontab"], schedule["release_state"]) == ("0 0 3 * * ? *", "OFFLINE")
    assert " 03:00:00-0" in schedule["next_fire"]["local"]
    assert "hunter2" not in made.text
    one = f"{path}/{schedule['id']}"
    tag = made.headers["etag"]
    assert client.get(one, headers=ada).headers["etag"] == tag
    secret = {"params": {"day": "1", "password": "hunter3"}}
    assert client.patch(one, json=secret, headers=ada).status_code == 428
    # A tag tells that a secret was changed, though not what it is.
    renewed = client.patch(one, json=secret, headers={**ada, "If-Match": tag})
    assert (renewed.status_code, renewed.headers["etag"] == tag) == (200, False), renewed.text
    change = {"cron": "0 30 4 * * ? *", "params": {}}
    late = client.patch(one, json=change, headers={**ada, "If-Match": tag})
    assert (late.status_code, late.headers["etag"]) == (412, renewed.headers["etag"])
    assert "saved by ada at" in late.json()["detail"]
    assert client.delete(one, headers={**ada, "If-Match": tag}).status_code == 412
    ada_now = {**ada, "If-Match": renewed.headers["etag"]}
    changed = client.patch(one, json=change, headers=ada_now).json()
    assert (changed["crontab"], changed["params"], changed["timezone_id"]) == (
        "0 30 4 * * ? *",
        {},
        "America/New_York",
    )
    both = {"ids": [schedule["id"]], "release_state": "ONLINE"}
    assert client.post(f"{path}/release", json=both, headers=ada).json()["items"][0]["changed"]
    for refused in (
        client.patch(one, json={"priority": "HIGH"}, headers={**ada, "If-Match": "*"}),
        client.delete(one, headers={**ada, "If-Match": "*"}),
        client.post(f"{path}/delete", json={"ids": [schedule["id"]]}, headers=ada),
    ):
        assert (refused.status_code, "schedule offline" in refused.json()["cure"]) == (409, True)
    client.post(f"{path}/release", json={**both, "release_state": "OFFLINE"}, headers=ada)
    missing = {"ids": [schedule["id"], 2**31 - 1]}
    assert client.post(f"{path}/delete", json=missing, headers=ada).status_code == 404
    gone = client.post(f"{path}/delete", json={"ids": [schedule["id"]]}, headers=ada)
    assert gone.json()["items"] == [
        {"id": schedule["id"], "definition": "nightly", "deleted": True}
    ]


def test_schedules_are_previewed_and_played_on_a_virtual_clock(
    client: TestClient, ada: dict[str, str], db: Engine
) -> None:
    path = f"{BASE}/schedules"
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    body: dict[str, Any] = {
        "definition_id": number,
        "cron": "0 30 2 * * ?",
        "zone": "America/New_York",
    }
    body["first"] = "2026-01-01"
    schedule = client.post(path, json=body, headers=ada).json()["id"]
    for given in (
        {"schedule_id": schedule},
        {"definition_id": number},
        {"cron": body["cron"], "zone": body["zone"]},
    ):
        asked = {**given, "from": "2026-03-07", "limit": 2}
        found = client.get(f"{path}/preview", params=asked, headers=ada).json()
        assert [(each["local"], each["clock"]) for each in found["fires"]] == [
            ("2026-03-07 02:30:00-05:00", None),
            ("2026-03-08 03:30:00-04:00", "shifted"),
        ]
        assert found["clock_changes"][0]["after"] == -14400.0
    for wrong in (
        {},
        {"schedule_id": schedule, "cron": body["cron"]},
        {"schedule_id": schedule, "zone": "UTC"},
        {"cron": "0 0 0 31 2 ?"},
        {"cron": body["cron"], "from": "soon"},
        {"cron": body["cron"], "zone": "Mars"},
    ):
        assert client.get(f"{path}/preview", params=wrong, headers=ada).status_code == 422, wrong
    played = {"definition_id": number, "first": "2026-03-01", "days": 10}
    assert client.post(f"{path}/simulate", json=played, headers=ada).status_code == 404
    played["offline_too"] = True
    found = client.post(f"{path}/simulate", json=played, headers=ada).json()
    assert (found["schedules"][0]["fires"], found["schedules"][0]["oddities"][0]["kind"]) == (
        10,
        "shifted",
    )
    for field, value in (
        ("max_fires", 3),
        ("outages", ["x"]),
        ("assume", "long"),
        ("first", "1066-10-14"),
    ):
        wrong_one = client.post(f"{path}/simulate", json={**played, field: value}, headers=ada)
        assert (wrong_one.status_code, field in wrong_one.text) == (422, True), wrong_one.text


def test_fires_are_read_page_by_page(client: TestClient, ada: dict[str, str], db: Engine) -> None:
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    schedules = [a_schedule(db, number) for _ in range(2)]
    with db.begin() as connection:
        for day in (1, 2):
            for schedule in schedules:
                connection.execute(
                    t.schedule_fire.insert().values(
                        schedule_id=schedule,
                        process_definition_id=number,
                        fire_time=datetime(2013, 1, day, 3, tzinfo=UTC),
                        outcome="fired",
                        create_time=datetime(2013, 1, day, 3, tzinfo=UTC),
                    )
                )
        connection.execute(t.schedule.delete().where(t.schedule.c.id == schedules[1]))
    seen: list[tuple[int, str]] = []
    asked: dict[str, Any] = {"limit": 3}
    for _ in range(2):
        found = client.get(f"{PATH}/{number}/fires", params=asked, headers=ada).json()
        seen += [(each["schedule_id"], each["fire_time"][:10]) for each in found["items"]]
        asked["after"] = found["next"]
    assert found["next"] is None
    assert seen == [(schedule, f"2013-01-0{day}") for day in (2, 1) for schedule in schedules]
    one = client.get(f"{BASE}/schedules/{schedules[0]}/fires?limit=1", headers=ada).json()
    rest = {"after": one["next"], "outcome": ["fired", "missed"]}
    behind = client.get(f"{BASE}/schedules/{schedules[0]}/fires", params=rest, headers=ada).json()
    assert [each["fire_time"][:10] for each in behind["items"]] == ["2013-01-01"]


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"cron": "0 0 0 31 2 ?"}, "cron"),
        ({"cron": "* * *"}, "cron"),
        ({"cron": "0 0 3 L-99 * ?"}, "cron"),
        ({"cron": "x" * 1001}, "body.cron"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"first": "soon"}, "from"),
        ({"first": "2100-01-01", "last": "2000-01-01"}, "to"),
        ({"worker_group": "nobody"}, "worker_group"),
        ({"misfire_limit": 0}, "body.misfire_limit"),
        ({"params": {"a": 1}}, "body.params.a"),
        ({"unknown": 1}, "body.unknown"),
    ],
)
def test_a_schedule_that_could_never_fire_is_refused_with_its_place(
    client: TestClient, ada: dict[str, str], db: Engine, settings: dict[str, Any], place: str
) -> None:
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    body = {"definition_id": number, "cron": "0 0 3 * * ? *", **settings}
    answer = client.post(f"{BASE}/schedules", json=body, headers=ada)
    assert answer.status_code in (404, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["mistakes"][0]["place"] == place, answer.text
    assert client.get(f"{BASE}/schedules", headers=ada).json()["items"] == []


def test_x25_a_schedule_fires_as_often_as_the_role_of_who_makes_it_allows(
    client: TestClient, ada: dict[str, str], owner: Session, db: Engine
) -> None:
    number = a_definition(db, process_definition_json=a_definition_json("a"))
    path = f"{BASE}/schedules"
    admins = {"ada": ada, "bob": headers_of(owner, "bob", "admin")}
    admins["root"] = headers_of(owner, "admin", "admin")

    def make(who: str, cron: str) -> tuple[int, str]:
        body = {"definition_id": number, "cron": cron}
        answer = client.post(path, json=body, headers=admins[who])
        return answer.status_code, answer.text

    each_second, each_ten, each_minute = "* * * * * ?", "0/10 * * * * ?", "0 * * * * ?"
    assert [make(who, each_minute)[0] for who in admins] == [201, 201, 201]
    assert [make(who, each_ten)[0] for who in admins] == [422, 201, 201]
    assert [make(who, each_second)[0] for who in admins] == [422, 422, 201]
    _, told = make("ada", each_second)
    assert "at least 60 s apart (api.schedule_seconds_author)" in told
    assert '"place":"cron"' in told
    assert "ask one of its admins" in told
    # Nor does an author change one to it, or bring online what the role may not make.
    made = client.get(path, headers=ada).json()["items"]
    slow, quick = f"{path}/{made[0]['id']}", f"{path}/{made[-1]['id']}"
    change = {"cron": each_second}
    any_ = {"If-Match": "*"}
    assert client.patch(slow, json=change, headers={**ada, **any_}).status_code == 422
    refused = client.post(f"{quick}/online", headers=ada)
    assert (refused.status_code, "1 s apart" in refused.json()["detail"]) == (403, True)
    assert client.post(f"{quick}/online", headers=admins["root"]).status_code == 200
    assert client.post(f"{slow}/online", headers=ada).status_code == 200


def test_a_complement_is_made_once_with_those_downstream(
    client: TestClient, owner: Session, db: Engine
) -> None:
    admin = headers_of(owner, "admin", "admin")
    ours, theirs = worlds(db)
    number = ours.objects["definition"]
    item = {"definitionId": number, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    waits = {"relation": "AND", "dependTaskList": [{"relation": "AND", "dependItemList": [item]}]}
    task = {"name": "d", "type": "DEPENDENT", "params": {}, "dependence": waits}
    tasks = json.dumps({"tasks": [task]})
    a_definition(db, name="later", process_definition_json=tasks)
    body = {"definition_id": number, "dates": ["2013-01-01"], "downstream": "direct"}
    path, once = f"{BASE}/complements", {**admin, "Idempotency-Key": "k"}
    made = client.post(path, json=body, headers=once)
    assert (made.status_code, len(made.json()["items"])) == (201, 2), made.text
    again = client.post(path, json=body, headers=once)
    assert [each["id"] for each in again.json()["items"]] == [
        each["id"] for each in made.json()["items"]
    ]
    other = client.post(path, json={**body, "parallelism": 2}, headers=once)
    assert (other.status_code, other.json()["mistakes"][0]["place"]) == (422, "Idempotency-Key")
    # Definitions are left out if the user may not start runs in their project.
    with db.begin() as connection:
        project = theirs.objects["project"]
        row = t.process_definition
        connection.execute(
            row.update().where(row.c.name == "later").values(project_id=project, name="hidden")
        )
    olga = headers_of(owner, "olga", "operator")
    for role in ("none", "viewer"):
        grant(owner, "olga", project="foreign", role=role)
        for place in (path, f"{path}/plan"):
            answer = client.post(place, json=body, headers=olga)
            assert len(answer.json()["items"]) == 1, answer.text
            assert "hidden" not in answer.text
    alone = client.post(f"{path}/plan", json={**body, "downstream": "none"}, headers=olga)
    assert [each["to_run"] for each in alone.json()["items"]] == [1]
