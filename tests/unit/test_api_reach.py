"""From where an api-server is reached: settings that are not safe, names, and who asks by a proxy."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.gate import _fault
from api.reach import NotThroughProxyError, Reach, reach_of
from common.config import ApiConfig
from common.errors import ConfigurationError

CERTIFICATES = Path(__file__).parents[1] / "integration" / "certificates"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "own.key"
    path.write_bytes((CERTIFICATES / "server.key").read_bytes())
    path.chmod(0o600)
    return path


@pytest.fixture
def tls(key: Path) -> ApiConfig:
    return ApiConfig(tls_cert_file=str(CERTIFICATES / "server.pem"), tls_key_file=str(key))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_an_address_that_others_reach_takes_tls_or_a_proxy(host: str, tls: ApiConfig) -> None:
    with pytest.raises(ConfigurationError, match="no loopback address"):
        reach_of(ApiConfig(http_host=host))
    url = "https://flows.example"
    for safe in (tls, ApiConfig(behind_proxy=True)):
        reach = reach_of(replace(safe, http_host=host, url=url))
        assert reach.is_own(["flows.example"])
        assert reach.is_own(["Flows.Example:443"])
        assert not reach.is_own(["evil.example"])
        if host in ("0.0.0.0", "::", ""):
            with pytest.raises(ConfigurationError, match=r"set api\.url"):
                reach_of(replace(safe, http_host=host))
        else:
            assert reach_of(replace(safe, http_host=host)).is_own([f"{host}:12345"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"url": "flows.example"}, "no address like https://"),
        ({"url": "https://user:hunter2@flows.example"}, "no address"),
        ({"url": "https://flows.example/path"}, "no address"),
        ({"url": "https://flows.example:port"}, "no address"),
        ({"allowed_hosts": "a, b/c"}, "no name of a host"),
        ({"allowed_hosts": "*.example"}, "no name of a host"),
        ({"behind_proxy": True, "trusted_proxies": " "}, r"set api\.trusted_proxies"),
        ({"behind_proxy": True, "trusted_proxies": "proxy.example"}, "no network"),
        ({"behind_proxy": True, "trusted_proxies": "10.0.0.1/8"}, "no network"),
        ({"behind_proxy": True, "proxy_accounts": "nginx, nobody-here"}, "account 'nobody-here'"),
        ({"tls_cert_file": "/x"}, "go together"),
        ({"tls_cert_file": "/x", "tls_key_file": "/nonexistent"}, "no certificate and its key"),
    ],
)
def test_settings_that_can_not_be_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        reach_of(ApiConfig(**wrong))  # type: ignore[arg-type]


def test_a_key_is_its_owners_alone_fits_and_has_no_passphrase(
    tls: ApiConfig, key: Path, tmp_path: Path
) -> None:
    assert reach_of(tls).tls
    key.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        reach_of(tls)
    key.chmod(0o600)
    with pytest.raises(ConfigurationError, match="no certificate and its key"):
        reach_of(replace(tls, tls_cert_file=str(CERTIFICATES / "elsewhere.pem")))
    closed = [
        "openssl",
        "pkey",
        "-in",
        key,
        "-aes128",
        "-passout",
        "pass:x",
        "-out",
        tmp_path / "c",
    ]
    subprocess.run(closed, check=True, capture_output=True)
    (tmp_path / "c").chmod(0o600)
    with pytest.raises(ConfigurationError, match="without a passphrase"):
        reach_of(replace(tls, tls_key_file=str(tmp_path / "c")))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["192.0.2.1, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["192.0.2.1", "203.0.113.9, 10.9.9.9"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8::1]:80"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["192.0.2.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1, <script>, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.1," * 100_000 + "203.0.113.9"], "203.0.113.9"),
    ],
)
def test_who_asks_is_what_the_last_trusted_proxy_saw(
    peer: str, forwarded: list[str], client: str
) -> None:
    reach = reach_of(ApiConfig(behind_proxy=True, trusted_proxies="10.0.0.0/8"))
    assert reach.client_of(peer, forwarded, ["https"]) == client


@contextmanager
def connected(uid: int, place: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[dict[str, Any]]:
    """Yield the scope of a request with headers of a proxy, which an account has sent."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with socket.create_server(place, family=family, dualstack_ipv6=place[0] == "::") as server:
        os.seteuid(uid)  # The kernel notes the account that opens a socket.
        try:
            client = socket.socket(socket.AF_INET6 if place[0] == "::1" else socket.AF_INET)
        finally:
            os.seteuid(0)
        client.connect(("127.0.0.1" if place[0] == "::" else place[0], server.getsockname()[1]))
        with client, server.accept()[0] as accepted:
            yield {
                "client": accepted.getpeername()[:2],
                "server": accepted.getsockname()[:2],
                "scheme": "http",
                "state": {},
                "headers": [
                    (b"host", b"localhost"),
                    (b"x-forwarded-for", b"203.0.113.7"),
                    (b"x-forwarded-proto", b"https"),
                ],
                "socket": client,
            }


def passed(scope: dict[str, Any], **settings: Any) -> tuple[str, str]:
    """Return the address and the scheme that a request gets by its gate."""
    trusted = "127.0.0.0/8,::1"
    reach = reach_of(ApiConfig(behind_proxy=True, trusted_proxies=trusted, **settings))
    scope["app"] = SimpleNamespace(state=SimpleNamespace(reach=reach))
    assert _fault(scope) is None
    return scope["client"][0], scope["scheme"]


@pytest.mark.skipif(os.geteuid() != 0, reason="connects as another account")
@pytest.mark.parametrize("place", ["127.0.0.1", "127.0.0.2", "::1", "::"])
def test_x117_a_program_of_another_account_on_this_computer_is_no_proxy(place: str) -> None:
    if ":" in place and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this computer does not have IPv6")
    with connected(65534, (place, 0)) as scope:
        own = scope["client"][0]
        assert passed(scope) == (own, "http")
        assert "proxied" not in scope["state"]
    with connected(0, (place, 0)) as scope:
        assert passed(scope) == ("203.0.113.7", "https")
    with connected(65534, (place, 0)) as scope:
        assert passed(scope, proxy_accounts="65534") == ("203.0.113.7", "https")


@pytest.mark.skipif(os.geteuid() != 0, reason="connects as another account")
def test_x117_a_program_that_has_closed_its_end_is_no_proxy() -> None:
    # The kernel shows what is left of such a connection as one of root.
    with connected(65534) as scope:
        scope["socket"].close()
        assert passed(scope) == ("127.0.0.1", "http")


def test_the_usual_accounts_of_proxies_may_be_missing_and_others_are_names_or_numbers() -> None:
    assert {0, os.geteuid()} <= reach_of(ApiConfig(behind_proxy=True)).proxy_uids
    reach = reach_of(ApiConfig(behind_proxy=True, proxy_accounts="nginx, 4711, nobody"))
    assert {4711, pwd.getpwnam("nobody").pw_uid} <= reach.proxy_uids


def test_what_comes_by_another_way_or_in_the_clear_is_refused(tls: ApiConfig) -> None:
    behind = ApiConfig(behind_proxy=True, trusted_proxies="10.0.0.1")
    for peer, protocol in (
        ("203.0.113.9", ["https"]),
        ("no address", ["https"]),
        ("10.0.0.1", ["http"]),
        ("10.0.0.1", []),
        ("10.0.0.1", ["https", "http"]),
    ):
        with pytest.raises(NotThroughProxyError):
            reach_of(behind).client_of(peer, ["192.0.2.1"], protocol)
    # With TLS of its own nothing is in the clear, and nobody else's header is believed.
    both = reach_of(replace(behind, tls_cert_file=tls.tls_cert_file, tls_key_file=tls.tls_key_file))
    assert both.client_of("203.0.113.9", ["192.0.2.1"], ["http"]) == "203.0.113.9"
    # Without the setting no header counts.
    assert reach_of(ApiConfig()).client_of("10.0.0.1", ["192.0.2.1"], []) == "10.0.0.1"


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1", "127.0.0.1"],
        ["127.0.0.1:80@evil"],
        ["evil@127.0.0.1"],
        ["127.0.0.1:80:80"],
        ["127.0.0.1:"],
        ["127.0.0.1:x"],
        ["127.0.0.1:123456"],
        ["127.0.0.1:٣"],
        ["127.0.0.1 "],
        [" localhost"],
        ["local host"],
        ["localhost."],
        ["localhost.:80"],
        ["localhost\n"],
        ["localhost,evil"],
        ["localhost/evil"],
        ["localhost#evil"],
        ["[::1%25lo]"],
        ["[::1%lo]:80"],
        ["[::1"],
        ["::1"],
        ["[::1]evil"],
        ["evil"],
    ],
)
def test_a_host_that_is_not_exactly_a_name_and_a_port_is_refused_x64(hosts: list[str]) -> None:
    assert not Reach(names=frozenset({"127.0.0.1", "localhost", "[::1]"})).is_own(hosts)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:80", "LocalHost:12345", "[::1]", "[::1]:80"]
)
def test_a_host_is_a_name_of_the_server_with_any_port(host: str) -> None:
    assert reach_of(ApiConfig()).is_own([host])


def test_a_page_is_ours_by_the_host_or_by_the_address_that_people_use() -> None:
    reach = reach_of(ApiConfig(url="https://flows.example:8443/"))
    assert reach.is_own_origin("https://flows.example:8443", "127.0.0.1:12345")
    assert reach.is_own_origin("http://127.0.0.1:12345", "127.0.0.1:12345")
    for other in ("https://flows.example", "https://evil.example", "null", ""):
        assert not reach.is_own_origin(other, "127.0.0.1:12345"), other
