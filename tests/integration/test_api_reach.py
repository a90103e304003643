"""The api-server from other computers: TLS of its own, a proxy that tells who asks, and strangers."""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import Engine

from api.gate import Gate
from api.policy import BASE, POLICIES
from api.reach import reach_of
from api.server import _HttpServer
from common.config import ApiConfig, Config
from common.errors import ConfigurationError, ServiceUnreachableError
from common.model.states import ProcessState
from common.ports import free_port
from operations.health import health
from operations.session import Session
from operations.tokens import create_token
from operations.users import create_user
from orcaflow.remote.client import Client
from orcaflow.remote.contexts import Server
from tests.integration.cli_rows import an_instance

CERTIFICATES = Path(__file__).parent / "certificates"


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    """The headers of an administrator."""
    token = create_token(
        owner,
        "admin",
        name="test",
        role="admin",
        projects=(),
        life=timedelta(days=1),
        now=datetime.now(UTC),
    )
    return {"Authorization": f"Bearer {token.text}"}


def _key(tmp_path: Path, name: str = "server") -> Path:
    """A key that is the daemons' account's alone, as one from a checkout is not."""
    path = tmp_path / "own.key"
    path.write_bytes((CERTIFICATES / f"{name}.key").read_bytes())
    path.chmod(0o600)
    return path


def test_a_server_with_tls_is_asked_by_its_name_and_no_other_certificate(
    app: FastAPI, client: TestClient, config: Config, admin: dict[str, str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(admin["Authorization"].partition(" ")[2])
    token.chmod(0o600)
    certificate = str(CERTIFICATES / "server.pem")
    settings = replace(
        config.api, port=free_port(), tls_cert_file=certificate, tls_key_file=str(_key(tmp_path))
    )
    assert reach_of(settings).tls
    server = _HttpServer(app, settings)
    server.start()
    begun = Event()
    while not server._server.started:
        assert server._thread.is_alive()
        begun.wait(0.01)
    try:
        url = f"https://127.0.0.1:{settings.port}"
        known = Server(url=url, token_file=str(token), ca_file=str(CERTIFICATES / "ca.pem"))
        assert Client(known).get("/me")["name"] == "admin"
        others = str(CERTIFICATES / "other.pem")
        for unknown in (replace(known, ca_file=""), replace(known, ca_file=others)):
            with pytest.raises(ServiceUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                Client(unknown).get("/me")
        with pytest.raises(ConfigurationError, match="no certificates"):
            Client(replace(known, ca_file=str(token)))
        assert health("127.0.0.1", settings.port, certificate=certificate)[0] == "ready"
        assert health("127.0.0.1", settings.port, certificate=others)[0] == "not answering"
        assert health("127.0.0.1", settings.port)[0] == "not answering"
        with ExitStack() as stack:  # Silent clients: the oldest are closed for others.
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
                for _ in range(300)
            ]
            assert Client(known).get("/me")["name"] == "admin"
            silent[0].settimeout(4)  # Shorter than the time limit of a handshake.
            assert silent[0].recv(1) == b""
    finally:
        server.stop()


def test_a_proxy_that_is_trusted_tells_who_asks_and_no_other_does(
    app: FastAPI, client: TestClient, admin: dict[str, str]
) -> None:
    settings = ApiConfig(
        behind_proxy=True, trusted_proxies="10.0.0.0/8", url="https://flows.example"
    )
    app.state.reach = reach_of(settings)

    def asked(peer: str, **headers: str) -> Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        sent = {"Host": "flows.example", **named}
        return TestClient(app, base_url="http://127.0.0.1", client=(peer, 1)).get(
            f"{BASE}/me", headers={**admin, **sent}
        )

    def log_in(address: str) -> Response:
        through = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.7", 1))
        return through.post(
            f"{BASE}/login",
            json={"name": "nobody", "password": "wrong"},
            headers={
                "Host": "127.0.0.1:12345",  # The proxy's own way to call it.
                "Origin": "https://flows.example",
                "X-Forwarded-For": f"192.0.2.1, {address}",
                "X-Forwarded-Proto": "https",
            },
        )

    through = {"X_Forwarded_For": "203.0.113.9", "X_Forwarded_Proto": "https"}
    assert asked("10.0.0.7", **through).status_code == 200
    assert asked("10.0.0.7").status_code == 200  # Its own question.
    assert asked("203.0.113.9", **through).status_code == 403
    in_the_clear = {**through, "X_Forwarded_Proto": "http"}
    assert "https" in asked("10.0.0.7", **in_the_clear).json()["detail"]
    assert asked("10.0.0.7", X_Forwarded_For="203.0.113.9").status_code == 403
    assert asked("10.0.0.7", **through, Host="evil.example").status_code == 421
    # Guesses count for the address that the proxy has seen, whatever is written before it.
    address = "203.0.113.9"
    answers = [log_in(address).status_code for _ in range(6)]
    assert answers == [401] * 5 + [429]


@pytest.mark.skipif(os.geteuid() != 0, reason="connects as another account")
def test_x117_a_task_on_the_computer_of_the_proxy_is_no_proxy(
    app: FastAPI, client: TestClient, config: Config, admin: dict[str, str]
) -> None:
    settings = replace(config.api, port=free_port(), behind_proxy=True)
    app.state.reach = reach_of(settings)
    own = socket.socket()
    os.seteuid(65534)  # All threads change with it, so the server is started later.
    try:
        foreign = socket.socket()
    finally:
        os.seteuid(0)
    server = _HttpServer(app, settings)
    server.start()
    begun = Event()
    while not server._server.started:
        assert server._thread.is_alive()
        begun.wait(0.01)
    lines = (
        f"GET {BASE}/me HTTP/1.1",
        "Host: localhost",
        f"Authorization: {admin['Authorization']}",
        "X-Forwarded-For: 203.0.113.7",
        "X-Forwarded-Proto: http",
        "Connection: close",
    )
    try:
        # A proxy that was not called by https is refused. Headers of other accounts are ignored.
        for made, status in ((own, b"403"), (foreign, b"200")):
            with made:
                made.settimeout(20)
                made.connect(("127.0.0.1", settings.port))
                made.sendall("\r\n".join((*lines, "", "")).encode())
                assert made.recv(12) == b"HTTP/1.1 " + status
    finally:
        server.stop()


@pytest.mark.parametrize("is_proxied", [False, True])
def test_a_session_by_https_has_a_cookie_that_no_other_host_can_set_x65(
    app: FastAPI, client: TestClient, owner: Session, *, is_proxied: bool
) -> None:
    headers = {}
    host, peer, name = "127.0.0.1", "127.0.0.1", "orcaflow_session"
    if is_proxied:
        headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
        host, peer, name = "flows.example", "10.0.0.7", "__Host-orcaflow_session"
    create_user(owner, "ada", is_admin=True, password="correct horse", tenant=None)
    app.state.reach = reach_of(
        ApiConfig(
            behind_proxy=True, trusted_proxies="10.0.0.0/8,127.0.0.1", url="https://flows.example"
        )
    )
    browser = TestClient(app, base_url=f"http://{host}", client=(peer, 1))
    entered = {"name": "ada", "password": "correct horse"}
    answer = browser.post(f"{BASE}/login", json=entered, headers=headers)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{name}=")
    assert {"Secure", "Path=/"} < set(cookie.split("; "))
    text = cookie.partition(";")[0].partition("=")[2]
    for each in ("orcaflow_session", "__Host-orcaflow_session"):
        sent = {**headers, "Cookie": f"{each}={text}"}
        assert browser.get(f"{BASE}/me", headers=sent).is_success == (each == name)
    classic = browser.post(
        "/dolphinscheduler/login",
        data={"userName": "ada", "userPassword": "correct horse"},
        headers=headers,
    )
    assert ("Secure" in classic.headers["set-cookie"].split("; ")) == is_proxied


def test_no_page_of_another_origin_logs_in_by_any_form_x65(
    client: TestClient, owner: Session
) -> None:
    create_user(owner, "ada", is_admin=True, password="correct horse", tenant=None)
    form = {"userName": "ada", "userPassword": "correct horse"}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/dolphinscheduler/login", data=form, headers=headers)
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_a_client_of_a_proxy_has_a_number_of_requests_and_others_are_served_x63(
    app: FastAPI, client: TestClient, config: Config, admin: dict[str, str]
) -> None:
    app.state.reach = reach_of(
        ApiConfig(behind_proxy=True, trusted_proxies="10.0.0.7", url="https://flows.example")
    )
    app.state.config = replace(config, api=replace(config.api, connections_per_address=1))
    through = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.7", 1))

    def ask(client_address: str) -> Response:
        sent = {"X-Forwarded-For": client_address, "X-Forwarded-Proto": "https"}
        return through.get(f"{BASE}/me", headers={**admin, **sent})

    gate = app.front
    assert isinstance(gate, Gate)
    assert ask("203.0.113.9").status_code == 200
    assert not gate._of_proxies
    gate._of_proxies["203.0.113.9"] = 1
    try:
        refused = ask("203.0.113.9")
        assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
        assert ask("203.0.113.8").status_code == 200
    finally:
        gate._of_proxies.clear()


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/instances",
        "/%61pi/v1/instances",
        "/api/v1/;x=/instances",
        "/api/v1/%2e%2e/v1/instances",
        "/api%2fv1%2finstances",
        "/api/v1/instances%00",
        "/%2561pi/v1/instances",
        "/livez/../api/v1/instances",
        "/API/V1/INSTANCES",
    ],
)
def test_no_spelling_of_a_path_goes_around_the_rights_x3(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (401, 404), answer.text
    other = {"X-Original-URL": path, "X-Rewrite-URL": path, "X-HTTP-Method-Override": "POST"}
    assert client.get("/livez", headers=other).json() == {"status": "ok"}


def test_no_other_origin_reads_an_answer_or_frames_it_x8(
    client: TestClient, admin: dict[str, str]
) -> None:
    evil = {**admin, "Origin": "https://evil.example"}
    asked = {**evil, "Access-Control-Request-Method": "POST"}
    for answer in (
        client.get(f"{BASE}/me", headers=evil),
        client.options(f"{BASE}/instances", headers=asked),
    ):
        assert not [each for each in answer.headers if each.startswith("access-control-")]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("definition=x'; DROP TABLE t_ds_command; --", 200),
        ("definition=1) or 1=1", 200),
        ("definition=" + "%25" * 2_000, 422),
        ("definition=%25", 200),
        ("state=1) or 1=1", 422),
        ("sort=id;--", 422),
        ("limit=1000000000", 422),
        ("after=x", 422),
        ("project_id=1 or 1=1", 422),
        ("definition=a%00b", 422),
    ],
)
def test_a_filter_is_a_value_and_nothing_else_x14(
    client: TestClient, admin: dict[str, str], db: Engine, query: str, status: int
) -> None:
    an_instance(db, ProcessState.SUCCESS)
    answer = client.get(f"{BASE}/instances?{query}", headers=admin)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["items"] == []


def test_what_everybody_may_read_names_nobody_x21(client: TestClient, owner: Session) -> None:
    create_user(owner, "ada-lovelace", is_admin=True, password=None, tenant=None)
    for path in ("/livez", "/readyz", "/metrics", f"{BASE}/openapi.json"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "ada-lovelace" not in answer.text
    assert client.get("/metrics/../debug").status_code == 404


def test_every_path_tells_all_of_its_methods_to_a_wrong_one(client: TestClient) -> None:
    methods: dict[str, set[str]] = {}
    for name in POLICIES:
        method, _, path = name.partition(" ")
        methods.setdefault(re.sub(r"{\w+}", "1", path), set()).add(method)
    wrong = [
        (method, path, answer.status_code, answer.headers.get("allow"))
        for path, known in methods.items()
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if method not in known
        and ((answer := client.request(method, path)).status_code, answer.headers.get("allow"))
        != (405, ", ".join(sorted(known)))
    ]
    assert wrong == []
    # A word beside ids is a path of its own, and no id that is spelt wrongly.
    assert {f"{BASE}/schedules/release", f"{BASE}/complements/plan"} <= set(methods)
