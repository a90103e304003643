"""The HTTP API in this process, on a real database: rights, problems, pages, and orders."""

from __future__ import annotations

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from anyio import to_thread
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, insert, select, text

from api import matrix, openapi
from api.app import ROUTES, build
from api.known_tokens import KnownTokens
from api.matrix import CALLERS, Outcome, outcome
from api.pace import Pace
from api.policy import BASE, LIST, POLICIES
from api.server import listen
from common.config import Config
from common.errors import ConfigurationError
from common.model.rights import ROLES as IN_PROJECT
from common.model.states import ProcessState
from common.store import tables as t
from common.store.connect import engine
from operations.session import Session
from operations.tokens import create_token, revoke_token
from operations.users import create_user, grant, set_enabled
from tests.builders import a_definition_json
from tests.house.tree import ROOT
from tests.integration.api_worlds import (
    ORDER_NOTHING,
    a_request,
    a_wait,
    a_world,
    check_audit,
    further_requests,
    is_named,
    to_delete,
    worlds,
)
from tests.integration.cli_rows import a_definition, an_instance
from tests.integration.rights_mistakes import (
    BY_OTHERS,
    LEFT_OUT_OF_LISTS,
    NEEDLESS_FILTERS,
    REPEATED,
    Plants,
    functions,
    lists_of_everybody,
)
from tests.simulation.virtual_clock import VirtualClock

PORT = 12345
_MOVING = re.compile(r'"(?:duration|request_id)":[^,}]*')


def a_token(owner: Session, user: str, **limits: Any) -> str:
    return create_token(
        owner,
        user,
        **{
            "name": "test",
            "role": "admin",
            "projects": (),
            "life": timedelta(days=1),
            "now": datetime.now(UTC),
            **limits,
        },
    ).text


def people(owner: Session) -> dict[str, dict[str, str]]:
    """The headers of one person a role; `nobody` has no grant, `anyone` no token."""
    headers: dict[str, dict[str, str]] = {"anyone": {}}
    for role in (*IN_PROJECT, "nobody", "administrator"):
        name = f"the-{role}"
        create_user(owner, name, is_admin=role == "administrator", password=None, tenant=None)
        if role in IN_PROJECT:
            grant(owner, name, project="default", role=role)
        headers[role] = {"Authorization": f"Bearer {a_token(owner, name)}"}
    return headers


def test_every_route_answers_every_role_as_its_policy_says(
    client: TestClient, owner: Session, db: Engine, plants: Plants
) -> None:
    ours, theirs = worlds(db)
    headers = people(owner)
    wrong = []
    planted: set[tuple[str, int]] = set()
    orders: list[tuple[str, str, int, str]] = []
    told = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    for name, policy in POLICIES.items():
        method, _, path = name.partition(" ")
        # Whoever may do the most comes last, since what is done changes the objects.
        for role in CALLERS:
            for own, world in ((False, theirs), (True, ours)):
                number = world.objects.get(policy.thing or "", 1)
                number = to_delete(db, name, world) or number
                body, params = a_request(name, number, f"{role} in {number}")
                ask = partial(
                    client.request,
                    method,
                    path.format(id=number, **world.places),
                    json=body,
                    params=params,
                    headers={**headers[role], "If-Match": "*"},
                )
                plants.refused = None
                answer = ask()
                wanted = outcome(policy, role, own=own)
                if method != "GET" and name not in ORDER_NOTHING and role != "anyone":
                    request = answer.headers["x-request-id"]
                    orders.append((name, role, answer.status_code, request))
                # 409: allowed, but not in the present state. 503: ZooKeeper is away.
                done = answer.status_code in (200, 201, 202, 409) or (
                    answer.status_code == 503
                    and path.endswith(("/servers", "/workers", "/readyz", "/datasources/{id}/test"))
                )
                # Nobody here has a session, a link or a password.
                done = done or (answer.status_code == 404 and "/sessions/" in path)
                done = done or (answer.status_code == 422 and path.endswith(("/login", "/console")))
                # Nor a good new one.
                done = done or (answer.status_code == 422 and path.endswith("/password"))
                if name.endswith("/why") and policy.thing == "command":
                    done = done or answer.status_code == 404
                if not (
                    done if wanted is Outcome.DONE else answer.status_code == int(wanted.value)
                ):
                    wrong.append((name, role, own, wanted, answer.status_code, answer.text[:200]))
                refusal = answer.status_code
                if wanted.value == str(refusal) != "401" and (name, refusal) not in planted:
                    planted.add((name, refusal))
                    plants.plant(
                        name, lambda ask=ask, refusal=refusal: ask().status_code == refusal
                    )
                if path in told:
                    documented = told[path][method.lower()]["responses"]
                    assert str(answer.status_code) in documented, (name, role, answer.text)
                if policy == LIST and role not in ("anyone", "administrator"):
                    assert "theirs" not in answer.text, (name, role)
                    assert ("ours" in answer.text) == (role in IN_PROJECT), (name, role)
    assert wrong == []
    check_audit(db, orders)
    for path, params, given in further_requests(db, ours, theirs):
        ask = partial(
            client.request,
            "GET" if given is None else "POST",
            f"{BASE}/{path}",
            params=params,
            json=given,
            headers=headers["admin"],
        )
        refusal = ask().status_code
        assert refusal in (403, 404), path
        plants.plant(path, lambda ask=ask, refusal=refusal: ask().status_code == refusal)
    assert set(plants.unexplained) == LEFT_OUT_OF_LISTS
    assert plants.undecided() == BY_OTHERS | set(REPEATED)
    assert set(NEEDLESS_FILTERS) <= functions()
    with lists_of_everybody():
        shown = {
            name: "theirs" in client.get(name.partition(" ")[2], headers=headers["nobody"]).text
            for name, policy in POLICIES.items()
            if policy == LIST
        }
    assert set(shown.values()) == {True}, shown


def test_a_route_without_a_policy_stops_the_start_and_so_does_a_policy_without_a_route(
    config: Config, db: Engine
) -> None:
    for name in POLICIES:
        rest = {key: value for key, value in POLICIES.items() if key != name}
        with pytest.raises(ConfigurationError, match=re.escape(f"{name} has no policy")):
            build(config, db, version="1", policies=rest)
    more = {**POLICIES, f"GET {BASE}/secrets": LIST}
    with pytest.raises(ConfigurationError, match="has no route"):
        build(config, db, version="1", policies=more)


def test_the_openapi_document_is_the_one_in_the_tree() -> None:
    kept = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert kept == openapi.document(), "write it anew: python -m api.openapi > docs/openapi.json"
    assert {f"{BASE}{each.path}" for each in ROUTES} == set(json.loads(kept)["paths"])


def test_the_matrix_of_rights_is_the_one_in_the_tree() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = page[page.index("| route |") :].partition("\n\n")[0].rstrip("\n") + "\n"
    assert table == matrix.table(), "write it anew: python -m api.matrix"


def test_a_token_is_needed_and_its_limits_hold_at_once(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ours, _ = worlds(db)
    create_user(owner, "ada", is_admin=False, password=None, tenant=None)
    grant(owner, "ada", project="default", role="author")
    token = a_token(owner, "ada", role="viewer")
    me = f"{BASE}/me"
    for value in (
        "",
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        f"Bearer {token[:-1]}",
        "Bearer of_" + "a" * 43,
    ):
        answer = client.get(me, headers={"Authorization": value})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), value
        assert token not in answer.text
    reading = {"Authorization": f"Bearer {token}"}
    answer = client.get(me, headers=reading)
    assert (answer.json()["name"], answer.json()["token_role"]) == ("ada", "viewer")
    run = {"definition_id": ours.objects["definition"]}
    assert client.post(f"{BASE}/instances", json=run, headers=reading).status_code == 403
    elsewhere = {"Authorization": f"Bearer {a_token(owner, 'ada', projects=('foreign',))}"}
    assert client.get(f"{BASE}/definitions", headers=elsewhere).json()["items"] == []
    set_enabled(owner, "ada", enabled=False, at=datetime.now(UTC))
    assert client.get(me, headers=reading).status_code == 401


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    """The headers of an administrator."""
    return {"Authorization": f"Bearer {a_token(owner, 'admin')}"}


def test_a_run_is_begun_once_however_often_it_is_asked_for(
    client: TestClient, admin: dict[str, str], db: Engine
) -> None:
    ours, _ = worlds(db)
    body = {"definition_id": ours.objects["definition"], "params": {"day": "1"}}
    once = {**admin, "Idempotency-Key": "k-1"}
    first = client.post(f"{BASE}/instances", json=body, headers=once)
    again = client.post(f"{BASE}/instances", json=body, headers=once)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["command"]["id"] == again.json()["command"]["id"]
    other = client.post(f"{BASE}/instances", json={**body, "params": {}}, headers=once)
    assert (other.status_code, other.json()["mistakes"][0]["place"]) == (422, "Idempotency-Key")
    more = client.post(f"{BASE}/instances", json=body, headers={**admin, "Idempotency-Key": "k-2"})
    assert more.json()["command"]["id"] != first.json()["command"]["id"]
    with db.connect() as connection:
        rows = connection.execute(
            select(t.command.c.command_param, t.command.c.executor_id).order_by(t.command.c.id)
        ).all()
    assert len(rows) == 4  # Two of the worlds, two of the requests.
    assert (json.loads(rows[-1].command_param)["StartParams"], rows[-1].executor_id) == (
        {"day": "1"},
        1,
    )


def test_a_run_that_exists_by_then_is_answered_with_the_instance(
    client: TestClient, admin: dict[str, str], db: Engine
) -> None:
    """A key whose command a master has taken: the answer is the run."""
    ours, _ = worlds(db)
    body = {"definition_id": ours.objects["definition"]}
    once = {**admin, "Idempotency-Key": "k", "Prefer": "wait=0"}
    command = client.post(f"{BASE}/instances", json=body, headers=once).json()["command"]["id"]
    run = an_instance(db, ProcessState.RUNNING, command_id=command)
    with db.begin() as connection:
        connection.execute(t.command.delete().where(t.command.c.id == command))
        connection.execute(
            insert(t.command_ledger).values(
                command_id=command, outcome=1, process_instance_id=run,
                process_definition_id=ours.objects["definition"],
            )
        )  # fmt: skip
    answer = client.post(f"{BASE}/instances", json=body, headers={**once, "Prefer": "wait=5"})
    assert (answer.status_code, answer.json()["instance"]["id"]) == (201, run)
    assert answer.json()["instance"]["state"] == {"code": 1, "name": "RUNNING"}


def test_a_list_is_read_page_by_page(client: TestClient, admin: dict[str, str], db: Engine) -> None:
    ids = [an_instance(db, ProcessState.SUCCESS) for _ in range(5)]
    seen: list[int] = []
    after = ""
    for _ in range(3):
        answer = client.get(f"{BASE}/instances?limit=2{after}", headers=admin).json()
        seen += [each["id"] for each in answer["items"]]
        after = f"&after={answer['next']}"
    assert (seen, answer["next"]) == (list(reversed(ids)), None)
    assert [
        client.get(f"{BASE}/instances?{query}", headers=admin).status_code
        for query in (
            "state=success",
            "state=nothing",
            "limit=501",
            "limit=0",
            "after=x",
            "sort=id",
        )
    ] == [200, 422, 422, 422, 422, 422]
    cursor = client.get(f"{BASE}/instances?limit=2", headers=admin).json()["next"]
    assert client.get(f"{BASE}/complements?after={cursor}", headers=admin).status_code == 422


def test_a_read_is_few_statements_without_a_transaction_and_passes_the_framework_by(
    client: TestClient,
    app: FastAPI,
    admin: dict[str, str],
    db: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = a_world(db, 1, "ours").objects
    run = f"{BASE}/instances/{ours['instance']}"
    threads: list[object] = []
    hand_over = to_thread.run_sync

    async def counted(work: Any, *values: Any, **options: Any) -> Any:
        threads.append(work)
        return await hand_over(work, *values, **options)

    modes: list[bool] = []

    def noted(made: Any, *_: Any) -> None:
        modes.append(made.connection.driver_connection.autocommit)

    def work_of(path: str) -> int:
        modes.clear()
        assert client.get(path, headers=admin).status_code == 200
        assert all(modes)
        return len(modes)

    paths = {run: 3, f"{run}/tasks": 3, f"{BASE}/instances": 2, f"{BASE}/definitions": 2}
    for path in paths:
        assert client.get(path, headers=admin).status_code == 200  # Prepares its statements.
    monkeypatch.setattr(to_thread, "run_sync", counted)
    # The driver tells nobody of what it executes for itself.
    monkeypatch.setattr(
        "common.store.fixed_statement.rows_alone",
        lambda db, statement, values, **_: list(db.exec_driver_sql(statement, dict(values))),
    )
    event.listen(app.state.reading_engine, "before_cursor_execute", noted)
    assert {path: work_of(path) for path in paths} == paths
    app.state.known_tokens = KnownTokens(clock=VirtualClock())
    assert client.get(run, headers=admin).status_code == 200
    assert {path: work_of(path) + 1 for path in paths} == paths
    assert threads == []
    assert client.get(f"{run}/why", headers=admin).status_code == 200
    assert len(threads) == 1


def test_a_quick_route_answers_as_the_framework_would(
    client: TestClient, admin: dict[str, str], owner: Session, db: Engine
) -> None:
    ours = a_world(db, 1, "ours").objects
    create_user(owner, "bob", is_admin=False, password=None, tenant=None)
    other = {"Authorization": f"Bearer {a_token(owner, 'bob')}"}
    queries = (
        *("?limit=2", "?limit=0", "?limit=x", "?limit=1&limit=2", "?Limit=1", "?limit=", "?x=1"),
        *("?state=FAILURE&state=SUCCESS", "?state=NONE", "?after=x", "?definition=ours", "?%00"),
        *(
            "?definition=%E2%82%AC",
            "?definition=\u20ac",
            "?definition=a+b",
            "?state=STOP",
            "?state=FAILURE",
        ),
    )
    asked = [(f"{BASE}/instances{query}", admin) for query in queries]
    for path in [f"{BASE}{each.path}" for each in ROUTES if each.is_quick]:
        number = ours[path.split("/")[3].removesuffix("s")]
        asked += [(path.replace("{id}", str(number)), who) for who in (admin, other, {})]
        if "{id}" in path:
            odd = (f"0{number}", "99999999999", "%31")
            asked += [(path.replace("{id}", each), admin) for each in odd]
    assert len(asked) > 60
    with client:
        for path, headers in asked:
            # One with a body, however short, is none of the quick.
            answers = [
                client.get(path, headers=each)
                for each in (headers, {**headers, "Content-Length": "0"})
            ]
            texts = [_MOVING.sub("", each.text) for each in answers]
            assert texts[0] == texts[1], path
            assert answers[0].status_code == answers[1].status_code, path
            names = [sorted(set(each.headers) - {"date"}) for each in answers]
            assert names[0] == names[1], path


def test_a_revoked_token_reads_for_a_second_more_at_most_and_changes_nothing(
    client: TestClient, app: FastAPI, owner: Session, db: Engine
) -> None:
    ours = a_world(db, 1, "ours").objects
    create_user(owner, "ada", is_admin=False, password=None, tenant=None)
    grant(owner, "ada", project="default", role="operator")
    made = create_token(
        owner,
        "ada",
        name="test",
        role="operator",
        projects=(),
        life=timedelta(days=1),
        now=datetime.now(UTC),
    )
    clock = VirtualClock()
    app.state.known_tokens = KnownTokens(clock=clock)
    headers = {"Authorization": f"Bearer {made.text}"}
    run = f"{BASE}/instances/{ours['instance']}"
    assert client.get(run, headers=headers).status_code == 200
    # Rights are asked at each read, the token's own ones too as long as it is good.
    grant(owner, "ada", project="default", role="none")
    assert client.get(run, headers=headers).status_code == 404
    grant(owner, "ada", project="default", role="operator")
    revoke_token(owner, made.view.id)
    assert client.post(f"{run}/stop", headers=headers).status_code == 401
    assert client.get(f"{BASE}/me", headers=headers).status_code == 401
    assert client.get(run, headers=headers).status_code == 200
    clock.move_to(timedelta(seconds=1))
    assert client.get(run, headers=headers).status_code == 401


@pytest.mark.parametrize("query", ["?limit=x", "?stat=RUNNING"])
def test_who_may_not_ask_is_told_nothing_of_the_mistakes(client: TestClient, query: str) -> None:
    answer = client.get(f"{BASE}/instances{query}", headers={"Authorization": "Bearer of_none"})
    assert (answer.status_code, "mistakes" in answer.text) == (401, True)
    assert answer.json()["mistakes"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/api/v1", 404),
        ("GET", "//api/v1/me", 404),
        ("GET", "/api/v1/;x=/me", 404),
        ("GET", "/api/v1/me/", 404),
        ("DELETE", "/api/v1/me", 405),
        ("GET", "/api/v1/instances/0", 422),
        ("GET", "/api/v1/instances/x", 422),
        ("GET", "/api/v1/instances/99999999999", 422),
        ("GET", "/api/v1/instances/2147483647", 404),
        ("GET", "/problems/nothing", 404),
    ],
)
def test_a_wrong_path_is_a_problem_with_a_cure(
    client: TestClient, admin: dict[str, str], method: str, path: str, status: int
) -> None:
    answer = client.request(method, path, headers=admin)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["cure"]
    assert document["request_id"] == answer.headers["x-request-id"]
    assert client.get(document["type"]).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"definition_id": "x"}', b'{"definition_id": 1e400}',
        b'{"definition_id": 1, "unknown": 1}', b'{"definition_id": 1, "params": {"a": {}}}',
        b'{"definition_id": 1, "priority": "URGENT"}', b"[" * 100_000, b"\xff\xfe",
        b'{"definition_id": -1}', b'{"definition_id": 1, "params": {"a": "\\u0000"}}',
        b'{"definition_id": 1, "params": {"a": "\\ud800"}}', b'{"definition_id": 1, "date": "2013-13-13"}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_invalid(
    client: TestClient, admin: dict[str, str], db: Engine, body: bytes
) -> None:
    a_definition(db, id=1, process_definition_json=a_definition_json("a"))
    json_body = {**admin, "Content-Type": "application/json"}
    answer = client.post(f"{BASE}/instances", content=body, headers=json_body)
    assert answer.status_code == 422, answer.text
    assert "Traceback" not in answer.text
    with db.connect() as connection:
        assert connection.execute(select(t.command.c.id)).all() == []


def test_a_large_body_and_a_foreign_host_are_refused(
    client: TestClient, admin: dict[str, str]
) -> None:
    large = client.post(f"{BASE}/instances", content=b" " * 10_000_001, headers=admin)
    assert large.status_code == 413
    streamed = client.post(f"{BASE}/instances", content=iter([b" " * 6_000_000] * 2), headers=admin)
    assert streamed.status_code in (413, 422)
    for host in ("evil.example", "127.0.0.1.evil.example", "", "evil.example:12345", "0.0.0.0"):
        assert client.get("/livez", headers={"Host": host}).status_code == 421, host
    for host in ("localhost", "localhost:1", "[::1]", "[::1]:12345", "127.0.0.1"):
        assert client.get("/livez", headers={"Host": host}).status_code == 200, host


def test_a_database_that_is_away_is_a_service_that_is_away(
    client: TestClient, app: FastAPI
) -> None:
    app.state.engine = engine(
        "postgresql+psycopg2://nobody@127.0.0.1:1/none", connect_timeout=timedelta(seconds=2)
    )
    answer = client.get(f"{BASE}/me", headers={"Authorization": "Bearer of_" + "a" * 43})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert client.get("/livez").status_code == 200


def test_a_database_that_says_nothing_keeps_nobody_waiting(
    client: TestClient, app: FastAPI, admin: dict[str, str], db: Engine
) -> None:
    app.state.patience_seconds = 0.2
    with client, db.connect() as other:
        other.execute(text("LOCK TABLE t_ds_access_token IN ACCESS EXCLUSIVE MODE"))
        for path in ("me", "instances"):
            answer = client.get(f"{BASE}/{path}", headers=admin)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["type"] == "/problems/unavailable"
        other.rollback()
        app.state.patience_seconds = 60
        assert client.get(f"{BASE}/me", headers=admin).status_code == 200


def test_who_asks_too_often_is_told_when_to_ask_again(
    client: TestClient, app: FastAPI, admin: dict[str, str]
) -> None:
    app.state.pace = Pace(per_second=1, clock=VirtualClock())
    answers = [client.get(f"{BASE}/me", headers=admin) for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert (answers[-1].headers["retry-after"], answers[-1].json()["type"]) == (
        "1",
        "/problems/too-many",
    )
    assert client.get("/livez").status_code == 200


def test_an_unforeseen_error_shows_its_request_and_nothing_else(
    client: TestClient, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr("api.routes.cluster.own_detail", fails)
    answer = client.get(f"{BASE}/me", headers=admin)
    assert (answer.status_code, "hunter2" in answer.text) == (500, False)
    assert answer.json()["request_id"]


def test_an_order_leaves_a_line_with_its_token_and_request(
    client: TestClient, admin: dict[str, str], db: Engine
) -> None:
    ours, _ = worlds(db)
    answer = client.post(f"{BASE}/instances/{ours.objects['instance']}/rerun", headers=admin)
    assert answer.status_code == 202
    line = t.audit_log.c
    with db.connect() as connection:
        row = connection.execute(select(t.audit_log).where(line.action == "instance.rerun")).one()
    assert (row.user_name, row.token_id, row.outcome) == ("admin", 1, "done")
    assert row.request == answer.headers["x-request-id"]


def test_the_end_of_an_answer_does_not_wait_for_the_client() -> None:
    with listen("127.0.0.1", 0) as server:
        server.listen()
        with socket.create_connection(server.getsockname()):
            accepted, _ = server.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_why_tells_nothing_of_projects_that_are_not_one_s_own(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ours, theirs = worlds(db)
    definition, foreign = ours.objects["definition"], theirs.objects["definition"]
    run, tasks = a_wait(db, definition, foreign)
    paths = [f"{BASE}/instances/{run}/why", *(f"{BASE}/tasks/{each}/why" for each in tasks)]
    headers = people(owner)
    # An operator of this project, and one who has a grant elsewhere that the token leaves out.
    create_user(owner, "both", is_admin=False, password=None, tenant=None)
    for project in ("default", "foreign"):
        grant(owner, "both", project=project, role="admin")
    limited = {"Authorization": f"Bearer {a_token(owner, 'both', projects=('default',))}"}
    secrets = ("hidden", "theirs", "7001", "7002", "7003", f"{foreign}-ALL")
    for who in (*(headers[role] for role in IN_PROJECT), limited):
        told = ""
        for path in paths:
            answer = client.get(path, headers=who)
            assert answer.status_code == 200, answer.text
            assert [secret for secret in secrets if is_named(secret, answer.text)] == [], path
            told += answer.text
        assert "tasks of projects that are not yours hold 1" in told
        assert "a process instance of a project that is not yours" in told
        assert "its sub process, which is in a project that is not yours" in told
        decisions = [
            client.get(f"{BASE}/tasks/{each}/decision", headers=who) for each in tasks[1:3]
        ]
        assert [each.status_code for each in decisions] == [200, 200]
        shown = "".join(each.text for each in decisions)
        assert [each for each in ("hidden", "7001") if is_named(each, shown)] == []
    both = {"Authorization": f"Bearer {a_token(owner, 'both')}"}
    for who in (both, headers["administrator"]):
        told = "".join(client.get(path, headers=who).text for path in paths)
        assert [secret for secret in secrets if not is_named(secret, told)] == []
        assert "not yours" not in told
