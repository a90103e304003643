"""Log-ins at an OpenID provider: the way there and back, and everything that others try on it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import Engine, func, select, update

from api.app import build
from api.cookies import COOKIE
from api.oidc.client import client_of
from api.oidc.flow import cookie_name
from api.oidc.provider import Provider as Asked
from api.policy import BASE
from common.config import Config, OidcConfig
from common.errors import ConfigurationError
from common.store import tables as t
from operations.session import Session
from operations.users import create_user, grant, set_enabled
from tests.integration.conftest import Cli
from tests.integration.oidc_provider import CLIENT, SECRET, Person, Provider, provider
from tests.simulation.virtual_clock import VirtualClock

LOGIN, CALLBACK, ME = "/oidc/login", "/oidc/callback", f"{BASE}/me"
FLOW = "orcaflow_oidc"


@dataclass
class Scene:
    """A server, its provider, and a browser that follows nothing by itself."""

    client: TestClient
    provider: Provider
    clock: VirtualClock
    config: Config
    app: FastAPI

    def set(self, **settings: Any) -> None:
        """Start the server anew with other settings of its provider."""
        config = replace(self.config, oidc=replace(self.config.oidc, **settings))
        client = client_of(config)
        assert client is not None
        self.app.state.oidc = Asked(client, self.clock)

    def begun(self) -> tuple[str, str]:
        """Go to the provider: the cookie of the log-in, and the query to come back with."""
        answer = self.client.get(LOGIN, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        self.client.cookies.clear()
        flow = answer.headers["set-cookie"].partition(";")[0]
        return flow, self.provider.visited(answer.headers["location"])

    def back(self, cookie: str, query: str) -> Response:
        answer = self.client.get(
            f"{CALLBACK}?{query}", headers={"Cookie": cookie}, follow_redirects=False
        )
        self.client.cookies.clear()
        return answer

    def log_in(self) -> Response:
        return self.back(*self.begun())

    def who(self, answer: Response) -> dict[str, Any]:
        """The user of the session that an answer has begun."""
        assert answer.status_code == 303, answer.text
        found = self.client.get(ME, headers={"Cookie": session_of(answer)})
        assert found.status_code == 200, found.text
        document: dict[str, Any] = found.json()
        return document


def session_of(answer: Response) -> str:
    (cookie,) = [
        each.partition(";")[0]
        for each in answer.headers.get_list("set-cookie")
        if each.startswith(f"{COOKIE}=")
    ]
    return cookie


def audited(db: Engine) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    with db.connect() as connection:
        rows = connection.execute(
            select(line.action, line.outcome, line.user_name).order_by(line.id)
        )
        return [tuple(row) for row in rows]


def counted(db: Engine, table: Any) -> int:
    with db.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(table)) or 0)


def sessions(db: Engine) -> int:
    with db.connect() as connection:
        living = select(func.count()).where(t.session.c.last_login_time.is_not(None))
        return int(connection.scalar(living) or 0)


@pytest.fixture
def scene(app: FastAPI, client: TestClient, config: Config, tmp_path: Path) -> Iterator[Scene]:
    secret = tmp_path / "client.secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    clock = VirtualClock()
    with provider(clock.now) as made:
        settings = OidcConfig(
            issuer=made.url,
            client_id=CLIENT,
            client_secret_file=str(secret),
            creates_users=True,
        )
        scene = Scene(client, made, clock, replace(config, oidc=settings), app)
        scene.set()
        yield scene
        app.state.oidc = None


def test_the_first_log_in_makes_the_provider_and_others_have_the_same(scene: Scene) -> None:
    scene.app.state.oidc = client_of(scene.config)
    scene.begun()
    made = scene.app.state.oidc
    assert isinstance(made, Asked)
    scene.begun()
    assert scene.app.state.oidc is made


def test_a_log_in_at_the_provider_ends_in_a_session_like_any_other(
    scene: Scene, db: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    there = scene.client.get(LOGIN, follow_redirects=False)
    scene.client.cookies.clear()
    flow, *attributes = there.headers["set-cookie"].split("; ")
    assert sorted(each.lower() for each in attributes) == [
        "httponly", "max-age=600", "path=/", "samesite=lax", "secure"
    ]  # fmt: skip
    place = urlsplit(there.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(place.query).items()}
    assert f"{place.scheme}://{place.netloc}{place.path}" == f"{scene.provider.url}/authorize"
    assert asked["kind"] == "person"
    assert asked["redirect_uri"] == "http://127.0.0.1:12345/oidc/callback"
    secret = flow.partition("=")[2]
    assert secret not in there.headers["location"]
    assert len({secret, asked["state"], asked["nonce"], asked["code_challenge"]}) == 4

    back = scene.back(flow, scene.provider.visited(there.headers["location"]))
    assert (back.headers["location"], back.text) == (ME, "")
    assert back.headers["referrer-policy"] == "no-referrer"
    (gone,) = [each for each in back.headers.get_list("set-cookie") if each.startswith(FLOW)]
    assert "max-age=0" in gone.lower()
    (given,) = [each for each in back.headers.get_list("set-cookie") if COOKIE in each]
    assert sorted(each.lower() for each in given.split("; ")[1:]) == [
        "httponly", "path=/", "samesite=lax", "secure"
    ]  # fmt: skip
    me = scene.who(back)
    assert (me["name"], me["admin"], me["projects"]) == ("ada", False, [])
    assert me["csrf_token"]
    again = scene.who(scene.log_in())
    assert again["id"] == me["id"]
    assert audited(db) == [
        ("user.create", "done", "ada"),
        ("session.begin", "done", "ada"),
        ("session.begin", "done", "ada"),
    ]
    # Description and keys are asked for once.
    assert sorted(scene.provider.asked) == [
        "/.well-known/openid-configuration", "/jwks", "/token", "/token"
    ]  # fmt: skip
    for hidden in (SECRET, secret, session_of(back).partition("=")[2]):
        assert hidden not in caplog.text


def test_a_log_in_that_this_browser_has_not_begun_asks_nobody_and_blocks_nobody(
    scene: Scene, db: Engine
) -> None:
    flow, query = scene.begun()
    evils, evil_query = scene.begun()
    code = parse_qs(query)["code"][0]
    tries = [
        ("", query),  # Somebody else's answer in a browser that has begun nothing: a forged log-in.
        (flow, evil_query),
        (evils, query),
        (flow, f"code={code}"),
        (flow, f"code={code}&state="),
        (flow, f"code={code}&state=%C3%A4"),
        (f"{FLOW}=x", query),
        (f"{FLOW}={'A' * 43}", query),
        (flow, f"{query}&state=x"),
        (flow, f"{query}&code=x"),
        (flow, "error=access_denied"),
    ]
    for cookie, given in tries:
        answer = scene.back(cookie, given)
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")
        assert "set-cookie" not in answer.headers
    assert "/token" not in scene.provider.asked
    assert (audited(db), counted(db, t.login_failure)) == ([], 0)
    # And the log-in that was begun goes on.
    assert scene.who(scene.back(flow, query))["name"] == "ada"


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"claims": {"nonce": "x" * 43}}, "nonce"),
        ({"claims": {"aud": "another-client"}}, "aud"),
        ({"claims": {"iss": "https://evil.example"}}, "iss"),
        ({"claims": {"exp": 1}}, "exp"),
        ({"claims": {"sub": None}}, "sub"),
        ({"header": {"kid": "of-nobody"}}, "a key that the provider does not have"),
        ({"token": lambda token: re.sub(r"^[^.]*", "eyJhbGciOiJub25lIn0", token)}, "'none'"),
        ({"token": lambda token: token[:-4] + "AAAA"}, "BadSignature"),
        ({"returned": {"iss": "https://evil.example"}}, "another provider"),
        ({"returned": {"code": "of-another-log-in"}}, "400, invalid_grant"),
        ({"description": {"issuer": "https://evil.example"}}, "evil.example"),
        ({"description": {"token_endpoint": "http://evil.example/token"}}, "token_endpoint"),
        ({"description": {"jwks_uri": "file:///etc/passwd"}}, "jwks_uri"),
        ({"description": {"authorization_response_iss_parameter_supported": True}}, "iss"),
        ({"bodies": {"/jwks": b'{"keys": 7}'}}, "no list"),
        ({"bodies": {"/token": b"[]"}}, "no JSON object"),
        ({"bodies": {"/token": b"{}"}}, "no ID token"),
        ({"bodies": {"/token": b"elsewhere"}}, "302"),
        ({"bodies": {"/token": b"[" * 400_000}}, "no JSON object"),
        ({"bodies": {"/token": b" " * 1_000_000}}, "too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_provider_that_lies_logs_nobody_in(
    scene: Scene, db: Engine, lie: dict[str, Any], reason: str
) -> None:
    lies = scene.provider.lies
    # The way there needs a description too, so that one comes before the lies.
    begun = None if "description" in lie else scene.begun()
    for name, value in lie.items():
        setattr(lies, name, value)
    if begun is None:
        answer = scene.client.get(LOGIN, follow_redirects=False)
        if answer.status_code == 303:
            answer = scene.log_in()
    else:
        flow, query = begun
        if "returned" in lie:
            flow, query = scene.begun()
        answer = scene.back(flow, query)
    assert (answer.status_code, answer.json()["type"]) == (502, "/problems/provider")
    assert reason in answer.json()["detail"]
    assert "<b>" not in answer.text
    assert not [each for each in answer.headers.get_list("set-cookie") if COOKIE in each]
    assert sessions(db) == 0
    refused = ("session.begin", "refused", "unknown")
    assert audited(db) == ([] if answer.request.url.path == LOGIN else [refused])


def test_a_log_in_is_good_once_even_at_a_provider_that_takes_codes_again(
    scene: Scene, db: Engine
) -> None:
    flow, query = scene.begun()
    assert scene.back(flow, query).status_code == 303
    assert scene.back(flow, query).status_code == 502
    scene.provider.lies.codes_are_good_again = True
    flow, query = scene.begun()
    assert scene.back(flow, query).status_code == 303
    answer = scene.back(flow, query)
    assert (answer.status_code, "used already" in answer.json()["detail"]) == (403, True)
    assert sessions(db) == 2


def test_a_new_key_of_the_provider_is_looked_for_and_not_too_often(scene: Scene) -> None:
    assert scene.log_in().status_code == 303
    scene.provider.rotate()
    assert scene.log_in().status_code == 502
    scene.clock.move_to(scene.clock.elapsed + timedelta(seconds=10))
    assert scene.who(scene.log_in())["name"] == "ada"
    assert scene.provider.asked.count("/jwks") == 2
    scene.clock.move_to(scene.clock.elapsed + timedelta(hours=1))
    assert scene.log_in().status_code == 303
    assert scene.provider.asked.count("/jwks") == 3


def test_a_provider_that_is_away_is_told_in_time_and_counts_for_no_try(
    scene: Scene, db: Engine
) -> None:
    scene.app.state.oidc.limit_seconds = 0.05
    begun = scene.begun()
    scene.provider.silent.set()
    for _ in range(6):
        answer = scene.back(*begun)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        assert answer.headers["retry-after"]
        assert scene.provider.url in answer.json()["detail"]
    scene.set()
    scene.app.state.oidc.limit_seconds = 0.05
    assert scene.client.get(LOGIN, follow_redirects=False).status_code == 503
    scene.app.state.oidc._busy = 8
    assert scene.client.get(LOGIN, follow_redirects=False).status_code == 429
    scene.provider.silent.clear()
    scene.set(issuer="http://127.0.0.1:1")
    assert scene.client.get(LOGIN, follow_redirects=False).status_code == 503
    scene.set()
    assert scene.back(*begun).status_code == 303


def test_tries_at_the_provider_and_with_passwords_are_counted_together(
    scene: Scene, db: Engine
) -> None:
    for _ in range(6):
        assert scene.log_in().status_code == 303
    for is_last in (False, True):
        flow, query = scene.begun()
        wrong = re.sub("code=[^&]*", "error=access_denied", query)
        answer = scene.back(flow, wrong)
        assert (answer.status_code, "access_denied" in answer.json()["detail"]) == (401, True)
        if not is_last:
            with db.begin() as connection:
                connection.execute(t.login_failure.update().values(failures=29))
    blocked = scene.log_in()
    assert (blocked.status_code, int(blocked.headers["retry-after"]) <= 10) == (429, True)
    asked = scene.client.post(f"{BASE}/login", json={"name": "x", "password": "x"})
    assert asked.status_code == 429


def test_nobody_is_let_in_who_is_not_linked_where_log_ins_make_no_users(
    scene: Scene, db: Engine, owner: Session, cli: Cli
) -> None:
    scene.set(creates_users=False)
    scene.provider.person = Person(subject="s 2", name="zoe")
    assert scene.log_in().status_code == 403
    assert counted(db, t.user_identity) == 0
    scene.provider.person = Person(subject="s 1", name="ada")
    create_user(owner, "ada", is_admin=True, password=None, tenant=None)
    answer = scene.log_in()
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")
    command = answer.json()["cure"].partition("for: ")[2]
    assert command == "orcaflow user link NAME --subject 's 1'"
    arguments = ("user", "link", "ada", "--subject", "s 1", "--issuer", scene.provider.url)
    assert cli(*arguments)[0] == 0
    me = scene.who(scene.log_in())
    assert (me["name"], me["admin"]) == ("ada", True)
    create_user(owner, "bob", is_admin=False, password=None, tenant=None)
    code, _, err = cli("user", "link", "bob", *arguments[3:])
    assert (code, "user ada already" in err) == (4, True)
    page = {"Cookie": session_of(scene.log_in())}
    assert cli("user", "unlink", "ada")[0] == 0
    assert scene.client.get(ME, headers=page).status_code == 401
    assert scene.log_in().status_code == 403
    assert cli("user", "unlink", "ada")[0] == 3


@pytest.mark.parametrize(
    "name", ["ADA", "ada", None, "", "data base", "database", "Unknown", "a" * 65, "ä"]
)
def test_a_name_at_the_provider_makes_nobody_somebody_else_here(
    scene: Scene, db: Engine, owner: Session, name: str | None
) -> None:
    create_user(owner, "ada", is_admin=True, password=None, tenant=None)
    users = counted(db, t.user)
    scene.provider.person = Person(subject="evil", name=name)
    answer = scene.log_in()
    assert (answer.status_code, "orcaflow user link" in answer.json()["cure"]) == (403, True)
    assert (counted(db, t.user), counted(db, t.user_identity), sessions(db)) == (users, 0, 0)
    assert audited(db)[-1] == ("session.begin", "refused", "unknown")


def test_somebody_disabled_is_not_let_in_and_a_session_ends_when_its_settings_say(
    scene: Scene, db: Engine, owner: Session
) -> None:
    page = {"Cookie": session_of(scene.log_in())}
    for hours, status in ((11, 200), (2, 401)):
        with db.begin() as connection:
            ends = t.session.c.expire_time - timedelta(hours=hours)
            connection.execute(update(t.session).values(expire_time=ends))
        assert scene.client.get(ME, headers=page).status_code == status
    set_enabled(owner, "ada", enabled=False, at=datetime.now(UTC))
    answer = scene.log_in()
    assert (answer.status_code, "disabled" in answer.json()["detail"]) == (403, True)


def test_roles_follow_the_groups_where_the_table_says_so_and_nowhere_else(
    scene: Scene, db: Engine, owner: Session
) -> None:
    with db.begin() as connection:
        for project in ("nightly", "private"):
            connection.execute(t.project.insert().values(name=project))
    roles = "data=default:author;cn=ops,ou=x=default:operator; ops=nightly:admin;ops=gone:viewer"
    scene.set(roles=roles)

    def granted(*groups: str) -> dict[str, str]:
        scene.provider.person.groups = list(groups)
        found = scene.who(scene.log_in())["projects"]
        return {each["project"]: each["role"] for each in found}

    assert granted("data", "cn=ops,ou=x", "unknown") == {"default": "author"}
    assert granted("cn=ops,ou=x") == {"default": "operator"}
    grant(owner, "ada", project="private", role="viewer")
    grant(owner, "ada", project="default", role="admin")
    assert granted("ops") == {"nightly": "admin", "private": "viewer"}
    assert granted("ops") == {"nightly": "admin", "private": "viewer"}
    scene.provider.person.groups = None
    assert [each["project"] for each in scene.who(scene.log_in())["projects"]] == ["private"]
    lines = [line for line in audited(db) if line[:2] == ("user.grant", "done")]
    assert lines.count(("user.grant", "done", "ada")) == 5


def test_a_log_in_goes_on_to_no_other_page(scene: Scene) -> None:
    there = scene.client.get(
        f"{LOGIN}?next=https://evil.example&redirect_uri=https://evil.example",
        follow_redirects=False,
        headers={"Host": "127.0.0.1:12345", "X-Forwarded-Host": "evil.example"},
    )
    assert "evil" not in there.headers["location"]
    flow, query = scene.begun()
    back = scene.back(flow, f"{query}&next=https://evil.example&url=//evil.example&scope=x")
    assert back.headers["location"] == ME


def test_a_browser_at_another_name_of_the_server_is_sent_to_that_of_the_cookie_once(
    scene: Scene,
) -> None:
    other = {"Host": "localhost:12345"}
    moved = scene.client.get(LOGIN, headers=other, follow_redirects=False)
    assert moved.headers["location"] == f"http://127.0.0.1:12345{LOGIN}?here=1"
    assert "set-cookie" not in moved.headers
    # By a proxy that writes another Host it is there already.
    again = scene.client.get(f"{LOGIN}?here=1", headers=other, follow_redirects=False)
    assert again.headers["location"].startswith(scene.provider.url)


@pytest.mark.parametrize("methods", [["client_secret_post"], ["client_secret_basic"], None])
def test_the_secret_is_given_as_the_provider_wants_it(
    scene: Scene, methods: list[str] | None
) -> None:
    scene.provider.lies.description = {"token_endpoint_auth_methods_supported": methods}
    assert scene.log_in().status_code == 303
    if methods is None:
        scene.set(client_secret_file="")
        assert scene.log_in().status_code == 502
        scene.provider.client_secret = None
        assert scene.log_in().status_code == 303


def test_a_server_without_a_provider_says_so(client: TestClient) -> None:
    for path in (LOGIN, CALLBACK):
        answer = client.get(path, follow_redirects=False)
        assert (answer.status_code, "oidc.issuer" in answer.json()["detail"]) == (409, True)


def test_a_server_without_the_extra_does_not_start_with_a_provider(
    scene: Scene, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "api.oidc.provider")
    monkeypatch.delitem(sys.modules, "api.oidc.id_token")
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'orcaflow\[oidc\]'"):
        build(scene.config, db, version="1")


def test_the_cookie_of_a_log_in_can_be_set_by_no_neighbour_where_there_is_https() -> None:
    assert cookie_name("https://flows.example/oidc/callback") == f"__Host-{FLOW}"
    assert cookie_name("http://127.0.0.1:12345/oidc/callback") == FLOW
