"""The api-server as a client of an OpenID provider: the settings, checked at the start.

`client_of` refuses settings by which a code or a secret would cross a network in the clear, and
reads the secret's file. The rest of this package is imported only if there is a provider.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from common.config import Config
from common.errors import ConfigurationError
from common.model.rights import ROLES
from operations.identities import LONGEST_ISSUER, Admission

LOGIN: Final = "/oidc/login"
CALLBACK: Final = "/oidc/callback"
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """This server as the provider knows it, and its rules for whoever comes from there."""

    issuer: str
    client_id: str
    client_secret: str | None = field(repr=False)
    redirect_uri: str
    scopes: str
    tls: ssl.SSLContext = field(repr=False)
    name_claim: str
    groups_claim: str
    admission: Admission


def client_of(config: Config) -> Client | None:
    """Return what the settings say, None without a provider; `ConfigurationError` with the cure."""
    settings = config.oidc
    if not settings.issuer:
        return None
    issuer = settings.issuer
    if not is_safe_address(issuer) or urlsplit(issuer).query or len(issuer) > LONGEST_ISSUER:
        raise ConfigurationError(
            f"oidc.issuer is {issuer!r:.300}, which is no address of a provider: like"
            " https://login.example.org/realms/main, without a query"
        )
    if not settings.client_id:
        raise ConfigurationError(
            "oidc.issuer needs oidc.client_id, the name of this server at the provider"
        )
    if "openid" not in settings.scopes.split():
        raise ConfigurationError(
            f"oidc.scopes is {settings.scopes!r:.200}, without openid: set it to openid profile"
        )
    return Client(
        issuer=issuer,
        client_id=settings.client_id,
        client_secret=_secret_in(settings.client_secret_file),
        redirect_uri=_own_address(config) + CALLBACK,
        scopes=" ".join(settings.scopes.split()),
        tls=_authorities(settings.ca_file),
        name_claim=settings.name_claim,
        groups_claim=settings.groups_claim,
        admission=Admission(
            creates_users=settings.creates_users,
            roles=roles_of(settings.roles),
            longest=timedelta(hours=settings.session_hours),
        ),
    )


def is_safe_address(url: str, *, or_loopback: bool = True) -> bool:
    """Return True for an https address, and for http on loopback if that may be."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # A port that is none raises.
        if parts.username is not None or parts.fragment or not host or (parts.port or 1) < 1:
            return False
    except ValueError:
        return False
    if not url.isprintable() or " " in url or "\\" in url:
        return False
    return parts.scheme == "https" or (
        or_loopback and parts.scheme == "http" and _is_loopback(host)
    )


def roles_of(text: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Read `group=project:role;…`: the grants of each group. A group's own name may hold `=`."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for each in filter(None, (part.strip() for part in text.split(";"))):
        group, _, grant = each.rpartition("=")
        project, _, role = (part.strip() for part in grant.rpartition(":"))
        if not group.strip() or not project or role not in ROLES:
            raise ConfigurationError(
                f"oidc.roles: {each!r:.200} is no group=project:role; roles are {', '.join(ROLES)}"
            )
        found[group.strip()] = (*found.get(group.strip(), ()), (project, role))
    return found


def _own_address(config: Config) -> str:
    """Return the address by which browsers come back: that of `api.url`, else that on loopback."""
    settings = config.api
    scheme = "https" if settings.tls_cert_file else "http"
    host = f"[{settings.http_host}]" if ":" in settings.http_host else settings.http_host
    url = settings.url.rstrip("/") or f"{scheme}://{host}:{settings.port}"
    if not is_safe_address(url):
        raise ConfigurationError(
            f"oidc.issuer needs the https address of this server, and it is {url!r:.200}: set"
            " api.url"
        )
    return url


def _secret_in(path: str) -> str | None:
    if not path:
        return None
    try:
        if stat.S_IMODE(Path(path).stat().st_mode) & _OTHERS:
            raise ConfigurationError(
                f"others may read {path} (oidc.client_secret_file); close it: chmod 600 {path}"
            )
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"oidc.client_secret_file {path} can't be read ({type(error).__name__})"
        ) from error
    if not secret or not secret.isprintable():
        raise ConfigurationError(f"oidc.client_secret_file {path} holds no secret in one line")
    return secret


def _authorities(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"oidc.ca_file {path} has no certificates in PEM ({type(error).__name__})"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
