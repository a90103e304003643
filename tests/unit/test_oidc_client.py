"""The settings of a login provider: safe ones are taken, others stop the start with the cure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.oidc.client import client_of, roles_of
from common.config import ApiConfig, Config, OidcConfig
from common.errors import ConfigurationError

GOOD = OidcConfig(issuer="https://login.example/realms/main", client_id="orcaflow")


def config(api: dict[str, Any] | None = None, **oidc: Any) -> Config:
    return Config(
        api=replace(ApiConfig(url="https://flows.example"), **(api or {})),
        oidc=replace(GOOD, **oidc),
    )


def test_without_an_issuer_there_is_no_provider() -> None:
    assert client_of(Config()) is None


def test_a_client_comes_back_to_its_own_address_and_shows_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2-hunter2\n")
    file.chmod(0o600)
    client = client_of(config(client_secret_file=str(file)))
    assert client is not None
    assert client.redirect_uri == "https://flows.example/oidc/callback"
    assert client.client_secret == "hunter2-hunter2"
    assert "hunter2" not in repr(client)
    by_loopback = client_of(config({"url": "", "http_host": "::1"}))
    assert by_loopback is not None
    assert by_loopback.redirect_uri == "http://[::1]:12345/oidc/callback"
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600") as caught:
        client_of(config(client_secret_file=str(file)))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.example",
        "login.example",
        "ftp://127.0.0.1",
        "https://",
        "https://user:password@login.example",
        "https://login.example/#x",
        "https://login.example/?realm=x",
        "https://login.example:99999",
        "https://login example",
        "https://login.example\\@evil.example",
        "https://login.example/" + "x" * 255,
        "http://127.0.0.1.evil.example",
    ],
)
def test_an_issuer_that_is_no_encrypted_address_is_refused(issuer: str) -> None:
    with pytest.raises(ConfigurationError, match=r"oidc\.issuer is"):
        client_of(config(issuer=issuer))


@pytest.mark.parametrize(
    ("api", "oidc", "reason"),
    [
        ({}, {"client_id": ""}, r"oidc\.client_id"),
        ({}, {"scopes": "profile email"}, "without openid"),
        ({}, {"client_secret_file": "/nonexistent"}, "can't be read"),
        ({}, {"ca_file": "/nonexistent"}, r"oidc\.ca_file"),
        ({}, {"client_secret_file": "/dev/null"}, "others may read"),
        ({"url": "http://flows.example"}, {}, r"set api\.url"),
        ({"url": "", "http_host": "0.0.0.0"}, {}, r"set api\.url"),
        ({}, {"roles": "data"}, r"oidc\.roles"),
        ({}, {"roles": "data=default"}, r"oidc\.roles"),
        ({}, {"roles": "data=default:owner"}, "roles are viewer"),
        ({}, {"roles": "=default:viewer"}, r"oidc\.roles"),
        ({}, {"roles": "data=:viewer"}, r"oidc\.roles"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    api: dict[str, Any], oidc: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        client_of(config(api, **oidc))


def test_the_roles_of_groups_are_read() -> None:
    assert roles_of("") == {}
    assert roles_of(" data = default:author ;cn=ops,ou=x=a b:viewer; data=n:admin;") == {
        "data": (("default", "author"), ("n", "admin")),
        "cn=ops,ou=x": (("a b", "viewer"),),
    }
