"""Users, tokens, projects and what belongs to no project, over HTTP, on a real database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select

from api.policy import BASE
from common.datasource_keys import DatasourceKeys, key_file
from common.environment_config import changed_secrets
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.session import Session
from operations.tokens import create_token
from operations.users import create_user, grant
from tests.integration.cli_rows import a_definition, an_attempt, an_instance

pytestmark = pytest.mark.usefixtures("audited")

PASSWORD = "correct horse battery"
OTHER = "staple and some more"
Headers = dict[str, str]


def token_of(owner: Session, user: str, **limits: Any) -> Headers:
    given = {"name": "test", "role": "admin", "projects": (), "life": timedelta(days=1), **limits}
    made = create_token(owner, user, **given, now=datetime.now(UTC))
    return {"Authorization": f"Bearer {made.text}"}


def a_user(owner: Session, name: str, role: str = "none", password: str | None = None) -> Headers:
    create_user(owner, name, is_admin=False, password=password, tenant=None)
    grant(owner, name, project="default", role=role)
    return token_of(owner, name)


@pytest.fixture
def root(owner: Session) -> Headers:
    """The headers of the first administrator."""
    return token_of(owner, "admin")


def last_line(db: Engine) -> tuple[Any, ...]:
    line = t.audit_log.c
    with db.connect() as connection:
        row = connection.execute(
            select(line.user_name, line.action, line.object_name, line.outcome, line.detail)
            .order_by(line.id.desc())
            .limit(1)
        ).one()
    return tuple(row)


def test_a_user_is_made_once_changed_as_read_and_the_last_administrator_stays(
    client: TestClient, root: Headers, db: Engine
) -> None:
    path = f"{BASE}/users"
    body = {"name": "ada", "password": PASSWORD}
    once = {**root, "Idempotency-Key": "k"}
    made = client.post(path, json=body, headers=once)
    assert made.status_code == 201, made.text
    assert PASSWORD not in made.text
    assert (made.json()["password"], made.json()["admin"]) == (True, False)
    one = made.headers["location"]
    # Neither the password nor a quick hash of it is in what a repetition is known by.
    again = client.post(path, json={**body, "password": OTHER}, headers=once)
    assert (again.status_code, again.json()["id"]) == (201, made.json()["id"])
    assert client.post(path, json={"name": "bob"}, headers=once).status_code == 422
    taken = client.post(path, json={"name": "ADA"}, headers=root)
    assert (taken.status_code, "already" in taken.json()["detail"]) == (409, True)
    tag = client.get(one, headers=root).headers["etag"]
    assert tag == made.headers["etag"]
    change = {"admin": True}
    assert client.patch(one, json=change, headers=root).status_code == 428
    changed = client.patch(one, json=change, headers={**root, "If-Match": tag})
    assert (changed.status_code, changed.json()["admin"]) == (200, True), changed.text
    late = client.patch(one, json={"admin": False}, headers={**root, "If-Match": tag})
    assert (late.status_code, late.headers["etag"]) == (412, changed.headers["etag"])
    disabled = client.post(f"{path}/1/disable", headers=root)
    assert disabled.json() == {"id": 1, "name": "admin", "enabled": False, "changed": True}
    assert client.get(path, headers=root).status_code == 401
    with db.begin() as connection:
        connection.execute(t.user.update().where(t.user.c.id == 1).values(state=1))
    any_ = {**root, "If-Match": "*"}
    assert client.patch(one, json={"admin": False}, headers=any_).status_code == 200
    for refused in (
        client.patch(f"{path}/1", json={"admin": False}, headers=any_),
        client.post(f"{path}/1/disable", headers=root),
    ):
        assert (refused.status_code, "last administrator" in refused.json()["detail"]) == (
            409,
            True,
        )
    assert last_line(db)[:4] == ("admin", "user.disable", None, "refused")
    assert client.patch(one, json={"tenant": "nobody's"}, headers=any_).status_code == 404
    named = client.get(path, params={"name": "ada"}, headers=root).json()["items"]
    assert [each["name"] for each in named] == ["ada"]
    near = client.get(path, params={"name": "adda"}, headers=root)
    assert (near.status_code, "did you mean 'ada'" in near.json()["detail"]) == (404, True)


def test_a_new_password_ends_the_other_sessions_and_stands_nowhere(
    client: TestClient, owner: Session, root: Headers, db: Engine
) -> None:
    a_user(owner, "ada", password=PASSWORD)

    def logged_in() -> Headers:
        client.cookies.clear()
        begun = client.post(f"{BASE}/login", json={"name": "ada", "password": PASSWORD})
        assert begun.status_code == 200, begun.text
        name, _, value = begun.headers["set-cookie"].partition(";")[0].partition("=")
        client.cookies.clear()
        return {"Cookie": f"{name}={value}", "X-CSRF-Token": begun.json()["csrf_token"]}

    first, second = logged_in(), logged_in()
    me = f"{BASE}/me"
    wrong = client.post(f"{me}/password", json={"old": OTHER, "new": OTHER}, headers=first)
    assert (wrong.status_code, wrong.json()["mistakes"][0]["place"]) == (422, "old")
    assert OTHER not in wrong.text
    weak = client.post(f"{me}/password", json={"old": PASSWORD, "new": "a" * 12}, headers=first)
    assert weak.status_code == 422
    done = client.post(f"{me}/password", json={"old": PASSWORD, "new": OTHER}, headers=first)
    assert done.json() == {"changed": True}, done.text
    assert [client.get(me, headers=each).status_code for each in (first, second)] == [200, 401]
    # Guesses are those of log-ins.
    for _ in range(5):
        client.post(f"{me}/password", json={"old": PASSWORD, "new": OTHER}, headers=first)
    guess = client.post(f"{me}/password", json={"old": OTHER, "new": PASSWORD}, headers=first)
    assert (guess.status_code, "retry-after" in guess.headers) == (429, True)
    limited = token_of(owner, "ada", role="viewer")
    refused = client.post(f"{me}/password", json={"old": OTHER, "new": PASSWORD}, headers=limited)
    assert refused.status_code == 403
    number = client.get(me, headers=first).json()["id"]
    path = f"{BASE}/users/{number}/password"
    assert client.post(path, json={"password": "ada"}, headers=root).status_code == 422
    assert client.post(path, json={"password": PASSWORD}, headers=root).status_code == 200
    assert client.get(me, headers=first).status_code == 401
    with db.connect() as connection:
        lines = json.dumps(
            [tuple(each) for each in connection.execute(select(t.audit_log))], default=str
        )
    assert PASSWORD not in lines
    assert OTHER not in lines
    assert "argon2" not in lines


def test_a_token_is_its_user_s_own_and_never_good_for_more_than_the_one_that_makes_it(
    client: TestClient, owner: Session, root: Headers, db: Engine
) -> None:
    ada, _bob = a_user(owner, "ada", "author"), a_user(owner, "bob", "admin")
    path = f"{BASE}/tokens"

    def make(headers: Headers, **body: Any) -> httpx.Response:
        return client.post(path, json={"name": "x", "expires": 60, **body}, headers=headers)

    made = make({**ada, "Idempotency-Key": "k"})
    assert made.status_code == 201, made.text
    own = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get(f"{BASE}/me", headers=own).json()["name"] == "ada"
    again = make({**ada, "Idempotency-Key": "k"})
    assert (again.status_code, f"token {made.json()['id']}," in again.json()["detail"]) == (
        409,
        True,
    )
    # For others, for longer, for more: administrators alone.
    assert make(ada, user="bob").status_code == 403
    assert make(ada, user="nobody").status_code == 403
    assert make(root, user="nobody").status_code == 404
    assert make(root, user="bob").json()["user"] == "bob"
    assert make(own, expires=3600).json()["mistakes"][0]["place"] == "expires"
    viewer = token_of(owner, "ada", role="viewer", projects=("default",))
    assert make(viewer).status_code == 403
    assert make(viewer, role="viewer").status_code == 403
    limited = make(viewer, role="viewer", projects=["default"])
    assert (limited.status_code, limited.json()["projects"]) == (201, [1])
    hidden = make(ada, projects=["foreign"])
    assert (hidden.status_code, "foreign" in hidden.json()["detail"].partition(";")[2]) == (
        404,
        False,
    )
    client.post(f"{BASE}/projects", json={"name": "foreign"}, headers=root)
    said = set()
    for name in ("foreign", "foreigm", "nothing"):
        body = {"name": "x", "expires": 60, "projects": [name]}
        answer = client.post(path, json=body, headers=ada)
        assert answer.status_code == 404
        said.add(answer.json()["detail"].replace(name, ""))
    # A foreign project is as one that there is not, whose name is proposed to nobody.
    assert len(said) == 1
    items = client.get(path, headers=ada).json()["items"]
    assert {each["user"] for each in items} == {"ada"}
    assert "of_" not in client.get(path, headers=root).text
    assert client.get(path, params={"user": "bob"}, headers=ada).status_code == 403
    everybody = client.get(path, params={"limit": 1}, headers=root).json()
    after = {"after": everybody["next"], "limit": 500}
    rest = client.get(path, params=after, headers=root).json()["items"]
    assert {each["user"] for each in rest} == {"ada", "bob"}
    of_bob = client.get(path, params={"user": "bob"}, headers=root).json()["items"][0]["id"]
    assert client.post(f"{path}/{of_bob}/revoke", headers=ada).status_code == 404
    assert client.post(f"{path}/{made.json()['id']}/revoke", headers=viewer).status_code == 403
    gone = client.post(f"{path}/{made.json()['id']}/revoke", headers=own)
    assert gone.json()["revoked"] is True
    assert client.get(f"{BASE}/me", headers=own).status_code == 401
    assert last_line(db)[:4] == ("ada", "token.revoke", "x", "done")


def test_a_project_is_granted_by_its_admins_and_deleted_once_it_is_empty(
    client: TestClient, owner: Session, root: Headers, db: Engine
) -> None:
    path = f"{BASE}/projects"
    made = client.post(path, json={"name": "team"}, headers={**root, "Idempotency-Key": "k"})
    assert made.status_code == 201, made.text
    one, number = made.headers["location"], made.json()["id"]
    assert (
        client.post(path, json={"name": "team"}, headers={**root, "Idempotency-Key": "k"}).json()
        == made.json()
    )
    assert client.post(path, json={"name": "team"}, headers=root).status_code == 409
    ada = a_user(owner, "ada", "viewer")
    a_user(owner, "bob", "viewer")
    assert client.get(one, headers=ada).status_code == 404
    role = {"user": "ada", "role": "admin"}
    detail = client.post(f"{one}/members", json=role, headers=root).json()
    assert [each["project"] for each in detail["projects"]] == ["default", "team"]
    # An admin of the project grants, and sees no role in another one.
    shown = client.post(f"{one}/members", json={"user": "bob", "role": "operator"}, headers=ada)
    assert [each["project"] for each in shown.json()["projects"]] == ["team"]
    missing = client.post(f"{one}/members", json={"user": "bib", "role": "viewer"}, headers=ada)
    assert (missing.status_code, "bob" in missing.text) == (404, False)
    members = client.get(f"{one}/members", headers=ada).json()["items"]
    assert [(each["user"], each["role"]) for each in members] == [
        ("ada", "admin"),
        ("bob", "operator"),
    ]
    assert client.post(f"{path}/1/members", json=role, headers=ada).status_code == 403
    names = [each["name"] for each in client.get(path, headers=ada).json()["items"]]
    assert names == ["default", "team"]
    tag = client.get(one, headers=ada).headers["etag"]
    given = {**ada, "If-Match": tag}
    renamed = client.patch(one, json={"name": "crew", "description": "d"}, headers=given)
    assert (renamed.json()["name"], renamed.json()["role"]) == ("crew", "admin")
    assert client.patch(one, json={"name": "crew"}, headers=given).status_code == 412
    any_ = {**ada, "If-Match": "*"}
    assert client.patch(one, json={"name": "default"}, headers=any_).status_code == 409
    a_definition(db, name="it's", project_id=number)
    full = client.delete(one, headers=any_)
    assert (full.status_code, "orcaflow definition delete" in full.json()["detail"]) == (409, True)
    with db.begin() as connection:
        connection.execute(t.process_definition.delete())
    assert client.delete(one, headers=ada).status_code == 428
    gone = client.delete(one, headers=any_).json()
    assert (gone["id"], gone["name"], gone["deleted"]) == (number, "crew", True)
    assert client.get(one, headers=root).status_code == 404
    first = client.delete(f"{path}/1", headers={**root, "If-Match": "*"})
    assert (first.status_code, "stays" in first.json()["detail"]) == (409, True)


def test_a_pool_is_changed_by_its_maker_and_shows_foreign_users_to_nobody(
    client: TestClient, owner: Session, root: Headers, db: Engine
) -> None:
    path = f"{BASE}/pools"
    ada, bob = a_user(owner, "ada", "author"), a_user(owner, "bob", "author")
    eve = a_user(owner, "eve", "operator")
    made = client.post(path, json={"name": "db", "size": 3, "projects": ["default"]}, headers=ada)
    assert made.status_code == 201, made.text
    one, number = made.headers["location"], made.json()["id"]
    assert client.post(path, json={"name": "x", "size": 3}, headers=eve).status_code == 403
    with db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
    ours = an_instance(db, ProcessState.RUNNING, process_definition_id=a_definition(db))
    theirs = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=a_definition(db, name="theirs", project_id=foreign),
    )
    for run, name in ((ours, "a"), (theirs, "hidden")):
        task = an_attempt(db, run, TaskState.RUNNING, name=name)
        with db.begin() as connection:
            connection.execute(
                insert(t.task_group_queue).values(
                    task_id=task, group_id=number, status=1, weight=1, process_id=run
                )
            )
    seen = client.get(one, headers=ada)
    assert ([each["task"] for each in seen.json()["holders"]], seen.json()["used"]) == (["a"], 2)
    assert "hidden" in client.get(one, headers=root).text
    tag = {"If-Match": seen.headers["etag"]}
    assert client.patch(one, json={"size": 4}, headers={**bob, **tag}).status_code == 403
    assert client.patch(one, json={"size": 4}, headers=ada).status_code == 428
    assert client.patch(one, json={"size": 0}, headers={**ada, **tag}).status_code == 422
    assert client.patch(one, json={"size": 4}, headers={**ada, **tag}).json()["size"] == 4
    assert client.patch(one, json={"size": 5}, headers={**ada, **tag}).status_code == 412
    # Its maker is author no longer, and has it back with the role.
    grant(owner, "ada", project="default", role="operator")
    any_ = {**ada, "If-Match": "*"}
    assert client.patch(one, json={"size": 5}, headers=any_).status_code == 403
    assert client.delete(one, headers=any_).status_code == 403
    grant(owner, "ada", project="default", role="author")
    used = client.delete(one, headers={**ada, "If-Match": "*"})
    assert (used.status_code, "hidden" in used.text) == (409, False)
    with db.begin() as connection:
        row = t.task_group_queue
        connection.execute(row.delete().where(row.c.process_id == ours))
    used = client.delete(one, headers={**ada, "If-Match": "*"})
    assert (used.status_code, "hidden" in used.text) == (409, False)
    assert "is in use by tasks of other projects" in used.json()["detail"]
    with db.begin() as connection:
        connection.execute(t.task_group_queue.delete())
    assert client.delete(one, headers={**root, "If-Match": "*"}).json()["removed"] is True


def test_tenants_and_worker_groups_are_made_once_and_deleted_as_they_were_read(
    client: TestClient, root: Headers, owner: Session
) -> None:
    eve = a_user(owner, "eve", "viewer")
    for kind, body, more in (
        ("tenants", {"code": "etl", "queue": "root.etl"}, {"code": "el;t"}),
        ("worker-groups", {"name": "etl", "addresses": ["10.0.0.7"]}, {"name": "a,b"}),
    ):
        path = f"{BASE}/{kind}"
        once = {**root, "Idempotency-Key": "k-" + kind}
        body["projects"] = ["default"]
        made = client.post(path, json=body, headers=once)
        assert made.status_code == 201, made.text
        assert client.post(path, json=body, headers=once).json() == made.json()
        assert client.post(path, json=body, headers=root).status_code == 409
        assert client.post(path, json=more, headers=root).status_code == 422
        one = made.headers["location"]
        tag = client.get(one, headers=eve).headers["etag"]
        assert tag == made.headers["etag"]
        assert client.delete(one, headers={**eve, "If-Match": tag}).status_code == 403
        assert client.delete(one, headers={**root, "If-Match": '"x"'}).status_code == 412
        gone = client.delete(one, headers={**root, "If-Match": tag})
        assert gone.json() == {"id": made.json()["id"], "deleted": True, "instances": 0}
        assert client.get(one, headers=eve).status_code == 404
        # What the first request has made is gone, and is not made again.
        assert client.post(path, json=body, headers=once).status_code == 404


def test_an_environment_is_made_once_changed_as_read_and_tells_its_names_alone_to_others(
    client: TestClient, root: Headers, owner: Session, db: Engine
) -> None:
    eve = a_user(owner, "eve", "admin")
    path = f"{BASE}/environments"
    config = "export PLACE=moon\nexport DB_PASSWORD='hun ter22'\n"
    body = {"name": "etl", "config": config, "worker_groups": ["default"], "code": 2**40}
    body["projects"] = ["default"]
    once = {**root, "Idempotency-Key": "k-environment"}
    made = client.post(path, json=body, headers=once)
    assert made.status_code == 201, made.text
    assert made.json()["config"] == "export PLACE=moon\nexport DB_PASSWORD=******\n"
    assert (made.json()["code"], made.json()["worker_groups"]) == (2**40, ["default"])
    assert client.post(path, json=body, headers=once).json() == made.json()
    assert client.post(path, json=body, headers=root).status_code == 409
    assert client.post(path, json=body | {"name": "x"}, headers=root).status_code == 409
    one, tag = made.headers["location"], made.headers["etag"]
    shown = client.get(one, headers=eve)
    assert (shown.json()["name"], shown.json()["config"]) == ("etl", None)
    assert shown.headers["etag"] == tag
    change = {"config": "export PLACE=mars\nexport DB_PASSWORD=******\n"}
    assert client.patch(one, json=change, headers={**eve, "If-Match": tag}).status_code == 403
    assert client.patch(one, json=change, headers=root).status_code == 428
    assert client.patch(one, json=change, headers={**root, "If-Match": '"x"'}).status_code == 412
    changed = client.patch(one, json=change, headers={**root, "If-Match": tag})
    assert changed.status_code == 200, changed.text
    assert changed.headers["etag"] != tag
    with db.connect() as connection:
        stored = connection.scalar(select(t.environment.c.config)) or ""
        lines = str(connection.execute(select(t.audit_log)).all())
    opened = changed_secrets(stored, DatasourceKeys(key_file(owner.config)).opened)
    assert opened == "export PLACE=mars\nexport DB_PASSWORD='hun ter22'\n"
    assert "hun" not in stored + lines
    assert "config: PLACE, DB_PASSWORD" in lines
    node = {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}}
    needs = {"tasks": [node | {"environmentCode": str(2**40)}]}
    a_definition(db, name="needs", process_definition_json=json.dumps(needs))
    refused = client.delete(one, headers={**root, "If-Match": "*"})
    assert (refused.status_code, "definition 'needs' names it" in refused.text) == (409, True)
    run = an_instance(
        db, ProcessState.RUNNING, command_param=json.dumps({"environmentCode": str(2**40)})
    )
    with db.begin() as connection:
        connection.execute(t.process_definition.delete())
    refused = client.delete(one, headers={**root, "If-Match": "*"})
    assert (refused.status_code, f"process instance {run} goes on" in refused.text) == (409, True)
    with db.begin() as connection:
        connection.execute(t.process_instance.delete())
    gone = client.delete(one, headers={**root, "If-Match": changed.headers["etag"]})
    assert (gone.status_code, gone.json()["deleted"]) == (200, True)
    assert last_line(db)[1] == "environment.delete"


def test_a_run_is_begun_with_the_environment_that_it_names(
    client: TestClient, root: Headers, db: Engine
) -> None:
    document = json.dumps({"tasks": [{"name": "a", "type": "SHELL"}]})
    number = a_definition(db, name="nightly", process_definition_json=document)
    made = client.post(
        f"{BASE}/environments", json={"name": "etl", "projects": ["default"]}, headers=root
    ).json()
    body = {"definition_id": number, "environment": "elt"}
    near = client.post(f"{BASE}/instances", json=body, headers=root)
    assert (near.status_code, "did you mean 'etl'" in near.text) == (404, True)
    begun = client.post(f"{BASE}/instances", json=body | {"environment": "etl"}, headers=root)
    assert begun.status_code == 202, begun.text
    with db.connect() as connection:
        (param,) = connection.scalars(select(t.command.c.command_param))
    assert json.loads(param) == {"environmentCode": str(made["code"])}
    refused = client.delete(f"{BASE}/environments/{made['id']}", headers={**root, "If-Match": "*"})
    assert (refused.status_code, "names it and waits" in refused.text) == (409, True)


def test_alerts_are_paged_for_administrators(
    client: TestClient, root: Headers, owner: Session, db: Engine
) -> None:
    with db.begin() as connection:
        for number in range(3):
            connection.execute(insert(t.alert).values(title=f"a{number}", alertgroup_id=1))
    path = f"{BASE}/alerts"
    page = client.get(path, params={"limit": 2}, headers=root).json()
    assert [each["title"] for each in page["items"]] == ["a2", "a1"]
    rest = client.get(path, params={"limit": 2, "after": page["next"]}, headers=root).json()
    assert ([each["title"] for each in rest["items"]], rest["next"]) == (["a0"], None)
    assert client.get(path, params={"status": "lost"}, headers=root).status_code == 422
    eve = a_user(owner, "eve", "admin")
    assert client.get(path, headers=eve).status_code == 403
    (group,) = client.get(f"{BASE}/alert-groups", headers=eve).json()["items"]
    assert group["name"] == "default admin warning group"


def test_the_audit_is_paged_for_administrators(
    client: TestClient, root: Headers, owner: Session
) -> None:
    path = f"{BASE}/audit"
    for name in ("eve", "mallory"):
        a_user(owner, name, "admin")
    asked = {"action": "user.create", "limit": 1}
    page = client.get(path, params=asked, headers=root).json()
    rest = client.get(path, params={**asked, "after": page["next"]}, headers=root).json()
    assert [each["object"] for each in (*page["items"], *rest["items"])] == ["mallory", "eve"]
    assert client.get(path, params={"outcome": "maybe"}, headers=root).status_code == 422
    assert client.get(path, params={"after": "x"}, headers=root).status_code == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("users", {"name": "a b"}),
        ("users", {"name": "ada\0"}),
        ("users", {"name": "ada", "password": "short"}),
        ("tokens", {"name": "a\nb"}),
        ("tokens", {"name": ""}),
        ("tokens", {"name": "x", "expires": 0}),
        ("projects", {"name": "a\x1b[31m"}),
        ("projects", {"name": "n" * 101}),
        ("projects", {"name": "x", "description": "\0"}),
        ("tenants", {"code": "$(id)"}),
        ("tenants", {"code": "x", "description": "d" * 257}),
        ("worker-groups", {"name": "x", "addresses": ["a\0"]}),
        ("worker-groups", {"name": "\ud800"}),
        ("environments", {"name": "x", "config": "source /etc/profile"}),
        ("environments", {"name": "x", "worker_groups": ["nobody"]}),
        ("environments", {"name": "x", "code": 7}),
        ("pools", {"name": "p", "size": 0}),
        ("pools", {"name": "p", "size": 2**63}),
        ("pools", {"name": "p", "size": 1, "description": "d" * 256}),
        ("pools", {"name": "p", "size": 1, "unknown": 1}),
    ],
)
def test_wrong_input_is_refused_with_its_place(
    client: TestClient, root: Headers, path: str, body: dict[str, Any]
) -> None:
    as_json = {**root, "Content-Type": "application/json"}
    answer = client.post(f"{BASE}/{path}", content=json.dumps(body), headers=as_json)
    assert (answer.status_code, len(answer.json()["mistakes"])) == (422, 1), answer.text
    assert answer.json()["mistakes"][0]["place"], answer.text
