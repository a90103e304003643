"""HTTP tasks against a real server: requests, success conditions, refusals."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.destinations import destinations
from common.model.states import TaskState
from common.params import response_name
from common.store.worker.ports import AttemptEnd
from tests.integration.answering_server import ANSWERS, Request, Server
from tests.integration.worker_host import Host
from worker.launching.base import TaskSettings
from worker.runners.http import GuardedNetwork
from worker.runners.job import JobError

BOTH = ("93.184.216.34", "10.0.0.1")
LOOPBACK = ("127.0.0.0/8", "::1/128")


class Client:
    """A host, and a server for its HTTP tasks."""

    def __init__(self, home: Path, settings: TaskSettings | None = None) -> None:
        self.host = Host(home, settings=settings or TaskSettings(http_allowed=LOOPBACK))
        self.server = Server()
        self._count = 0

    def run(self, path: str = "/hello", *, local: Any = (), **params: Any) -> AttemptEnd:
        self._count += 1
        url = path if "://" in path else self.server.url + path
        given = {"url": url, "httpMethod": "GET", **params}
        task = self.host.task(self._count, task_type="HTTP", params=given, local=local)
        return self.host.run(task)

    @property
    def log(self) -> str:
        return self.host.log(self._count)

    @property
    def last(self) -> Request:
        return self.server.requests[-1]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    client.host.supervisor.close()
    client.server.close()


def sent(name: str, place: str, value: str) -> dict[str, str]:
    return {"prop": name, "httpParametersType": place, "value": value}


def text(name: str, value: str, direct: str = "IN") -> dict[str, str]:
    return {"prop": name, "direct": direct, "type": "VARCHAR", "value": value}


def test_parameters_go_where_their_type_says(client: Client) -> None:
    end = client.run(
        "/hello?x=${day}",
        httpMethod="POST",
        httpParams=[
            sent("q", "PARAMETER", "${day} &=ü"),
            sent("n", "BODY", "${day}"),
            sent("X-Day", "HEADERS", "$[yyyy]"),
        ],
        local=[text("day", "2026")],
    )
    assert end.state is TaskState.SUCCESS, client.log
    assert client.last.method == "POST"
    assert client.last.path == "/hello?x=2026&q=2026+%26%3D%C3%BC"
    assert json.loads(client.last.body) == {"n": "2026"}
    assert client.last.headers["Content-Type"] == "application/json"
    assert client.last.headers["X-Day"] == "2026"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD"])
def test_without_body_parameters_no_body_is_sent_t58(client: Client, method: str) -> None:
    end = client.run(httpMethod=method, httpParams=[sent("q", "PARAMETER", "1")])
    assert end.state is TaskState.SUCCESS, client.log
    assert client.last.method == method
    assert client.last.headers.get("Content-Length", "0") == "0"
    assert "Content-Type" not in client.last.headers


@pytest.mark.parametrize(
    ("path", "check", "condition", "reason"),
    [
        ("/hello", "STATUS_CODE_DEFAULT", "", None),
        ("/made", "STATUS_CODE_DEFAULT", "", "the status is 201, not 200"),
        ("/made", "STATUS_CODE_CUSTOM", " ${wanted} ", None),
        ("/hello", "STATUS_CODE_CUSTOM", "204", "the status is 200, not 204"),
        ("/hello", "BODY_CONTAINS", "ell", None),
        ("/nowhere", "BODY_CONTAINS", "nothing", None),
        ("/hello", "BODY_CONTAINS", "hell!", "the body does not have 'hell!'"),
        ("/hello", "BODY_NOT_CONTAINS", "hell!", None),
        ("/hello", "BODY_NOT_CONTAINS", "ell", "the body has 'ell'"),
        ("/empty", "BODY_NOT_CONTAINS", "x", "the body is empty"),
        ("/flood", "BODY_NOT_CONTAINS", "x", "not all was looked at"),
    ],
)
def test_the_check_decides(
    client: Client, path: str, check: str, condition: str, reason: str | None
) -> None:
    end = client.run(
        path, httpCheckCondition=check, condition=condition, local=[text("wanted", "201")]
    )
    assert end.state is (TaskState.FAILURE if reason else TaskState.SUCCESS), client.log
    assert (reason or "") in (end.reason or "")


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"url": ""}, "params.url"),
        ({"url": "file:///etc/passwd"}, "params.url"),
        ({"url": "gopher://h/"}, "params.url"),
        ({"url": "http://"}, "params.url"),
        ({"url": "http://h:99999/"}, "params.url"),
        ({"url": "http://h/a b"}, "params.url"),
        ({"url": "http://h/\r\nX: y"}, "params.url"),
        ({"httpMethod": "TRACE"}, "params.httpMethod"),
        ({"httpCheckCondition": "MAYBE"}, "params.httpCheckCondition"),
        ({"httpCheckCondition": "STATUS_CODE_CUSTOM", "condition": "ok"}, "params.condition"),
        ({"httpCheckCondition": "BODY_CONTAINS"}, "params.condition"),
        ({"connectTimeout": "soon"}, "params.connectTimeout"),
        ({"socketTimeout": -1}, "params.socketTimeout"),
        ({"httpParams": {"q": 1}}, "params.httpParams"),
        ({"httpParams": ["q"]}, "params.httpParams[0]"),
        ({"httpParams": [{"prop": "q", "value": "1"}]}, "httpParametersType"),
        ({"httpParams": [sent("", "BODY", "1")]}, "prop"),
        ({"httpParams": [sent("X", "HEADERS", "a\r\nEvil: 1")]}, "the value of X has a line end"),
        ({"httpParams": [sent("X", "HEADERS", "${evil}")]}, "the value of X has a line end"),
        ({"httpParams": [sent("X\nY", "HEADERS", "1")]}, "no name of a header"),
        ({"httpParams": [sent("Content-Length", "HEADERS", "5")]}, "can't be chosen"),
    ],
)
def test_a_mistake_is_named_before_anything_is_sent(
    client: Client, params: Mapping[str, Any], key: str
) -> None:
    end = client.run(local=[text("evil", "a\nEvil: 1")], **params)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert key in (end.reason or "")
    assert client.server.requests == []


def test_secrets_are_in_no_log(client: Client) -> None:
    end = client.run(
        "/made?token=tok-en&x=1",
        httpCheckCondition="STATUS_CODE_CUSTOM",
        condition="201",
        httpParams=[sent("Authorization", "HEADERS", "Bearer ${api_key}")],
        local=[text("api_key", "hunter2+")],
    )
    assert end.state is TaskState.SUCCESS, client.log
    assert client.last.headers["Authorization"] == "Bearer hunter2+"
    assert "hunter2" not in client.log
    assert "tok-en" not in client.log
    assert "/made?token=******&x=1" in client.log
    assert "set-cookie: ******" in client.log.lower()


def test_a_redirect_to_another_server_gets_no_header_of_the_task(client: Client) -> None:
    end = client.run("/away", httpParams=[sent("X-Api-Key", "HEADERS", "hunter2+")])
    assert end.state is TaskState.SUCCESS, client.log
    first, second = client.server.requests
    assert first.headers["X-Api-Key"] == "hunter2+"
    assert "X-Api-Key" not in second.headers
    assert second.headers["Host"] == f"localhost:{client.server.port}"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/round", "more than 5 redirects"),
        ("/file", "redirect"),
        ("/cloud", "HTTP tasks may not connect to 169.254.169.254: "),
        ("http://169.254.169.254/keys", "HTTP tasks may not connect to 169.254.169.254: "),
        ("http://[::ffff:169.254.169.254]/keys", "HTTP tasks may not connect to ::ffff:"),
        ("http://127.0.0.1:1/", "refused"),
        ("http://0.0.0.0:1/", "HTTP tasks may not connect to 0.0.0.0: it is no address"),
        ("http://10.255.255.1/", "may not connect to 10.255.255.1: it is no address of the"),
        ("http://[fd00:ec2::254]/", "HTTP tasks may not connect to fd00:ec2::254: "),
    ],
)
def test_where_nobody_should_go_no_request_goes_x16(client: Client, path: str, reason: str) -> None:
    end = client.run(path)
    assert end.state is TaskState.FAILURE
    assert reason in (end.reason or "").lower() or reason in (end.reason or ""), end.reason


def test_an_operator_may_deny_other_networks(tmp_path: Path) -> None:
    settings = TaskSettings(http_allowed=LOOPBACK, http_denied=("127.0.0.0/8",))
    client = Client(tmp_path, settings)
    end = client.run()
    assert "HTTP tasks may not connect to 127.0.0.1: worker.http_denied" in (end.reason or "")
    assert client.server.requests == []
    client.host.supervisor.close()
    client.server.close()


def test_by_default_a_task_reaches_no_server_of_its_own_host(tmp_path: Path) -> None:
    client = Client(tmp_path, TaskSettings())
    for host in ("127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]"):
        end = client.run(f"http://{host}:{client.server.port}/hello")
        assert end.state is TaskState.FAILURE
        assert "an operator can allow it or the host in worker.http_allowed" in (end.reason or "")
    assert client.server.requests == []
    client.host.supervisor.close()
    client.server.close()


def test_a_name_is_resolved_once_and_the_address_that_was_judged_is_connected_to() -> None:
    asked: list[str] = []

    def answer(host: str, port: int, **_: object) -> list[Any]:
        # A name server that gives a harmless address first and a forbidden one afterwards.
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    with socket.create_server(("127.0.0.1", 0)) as server:
        reachable = destinations(allowed=("127.0.0.1",), denied=("127.0.0.2",))
        network = GuardedNetwork(reachable, resolve=answer)
        stream = network.connect_tcp("rebinds.example", server.getsockname()[1], timeout=5)
        assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
        stream.close()
        assert asked == ["rebinds.example"]
        with pytest.raises(JobError, match=r"connect to 127.0.0.2, an address of rebinds.example:"):
            network.connect_tcp("rebinds.example", server.getsockname()[1], timeout=5)


def test_a_name_of_which_one_address_is_forbidden_is_refused_before_any_connection() -> None:
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 1)) for each in BOTH]
    network = GuardedNetwork(
        destinations(allowed=(), denied=()), resolve=lambda *_, **__: addresses
    )
    with pytest.raises(JobError, match=r"connect to 10.0.0.1, an address of both.example:"):
        network.connect_tcp("both.example", 1, timeout=5)


def test_a_host_that_is_allowed_is_so_by_this_name_alone_also_after_a_redirect(
    tmp_path: Path,
) -> None:
    client = Client(tmp_path, TaskSettings(http_allowed=("localhost",)))
    url = f"http://localhost:{client.server.port}"
    assert client.run(f"{url}/hello").state is TaskState.SUCCESS, client.log
    answered = len(client.server.requests)
    assert client.run(f"{url}/back").state is TaskState.FAILURE
    assert "HTTP tasks may not connect to 127.0.0.1: it is no address" in client.log
    assert len(client.server.requests) == answered + 1
    client.host.supervisor.close()
    client.server.close()


def test_a_server_that_never_answers_takes_no_longer_than_the_time_allowed(client: Client) -> None:
    end = client.run("/endless", socketTimeout="50", connectTimeout=60_000)
    assert end.state is TaskState.FAILURE
    assert "it took too long to answer (socketTimeout)" in (end.reason or "")


def test_the_answer_is_put_out_if_it_is_declared(client: Client) -> None:
    end = client.run(local=[text("response", "", "OUT"), text("status", "", "OUT")])
    found = {each["prop"]: each["value"] for each in json.loads(end.var_pool or "[]")}
    assert found == {"response": "hello", "status": "200"}


def test_the_answer_is_put_out_by_the_name_of_3_x(client: Client) -> None:
    name = response_name(client.host.task(1).name)
    end = client.run(local=[text(name, "", "OUT")])
    found = {each["prop"]: each["value"] for each in json.loads(end.var_pool or "[]")}
    assert found == {name: "hello"}


def test_what_a_server_says_puts_out_nothing_and_commands_no_terminal(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "/evil", (200, {}, b"\x1b[2J #{setValue(n=666)} \xff"))
    end = client.run("/evil", local=[text("n", "", "OUT")])
    assert (end.state, end.var_pool) == (TaskState.SUCCESS, None)
    assert "\\x1b[2J #{setValue(n=666)}" in client.log


def test_a_large_body_is_read_and_shown_in_part(client: Client) -> None:
    end = client.run("/flood", httpCheckCondition="BODY_CONTAINS", condition="0123456789")
    assert end.state is TaskState.SUCCESS
    assert "10,485,760 bytes and more" in client.log
    assert len(client.log) < 70_000


def test_a_certificate_that_nobody_vouches_for_is_refused_x17(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    try:
        subprocess.run(
            (
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                ),
                *("-nodes", "-subj", "/CN=localhost"),
                *("-keyout", str(key), "-out", str(certificate)),
            ),
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate")
    client = Client(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    client.server.encrypt(context)
    end = client.run(f"https://localhost:{client.server.port}/hello")
    assert end.state is TaskState.FAILURE
    assert "CERTIFICATE_VERIFY_FAILED" in (end.reason or "")
    assert client.server.requests == []
    client.host.supervisor.close()
    client.server.close()
