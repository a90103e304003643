"""From where the api-server is reached: by which names, through which proxies, how encrypted.

`reach_of` refuses settings by which a token or a password would cross a network in the clear. Who
asks is told by the connection, unless it is a trusted proxy's: then by what that has added to
`X-Forwarded-For`, read from the end, so that what a client writes there itself counts for nothing.
A program on this computer is a proxy by its account too (`proxy_uids`), which `api.gate` checks.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from common.config import ApiConfig
from common.errors import ConfigurationError
from common.tls import server_context

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MOST_HOPS: Final = 50
_USUAL_PROXIES: Final = frozenset(ApiConfig().proxy_accounts.split(","))
"""Accounts of the default, which may be missing."""
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_.-]+)(?::[0-9]{1,5})?")


class NotThroughProxyError(Exception):
    """The request has not come by a trusted proxy, or not encrypted; the text says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The names in `Host` that are ours, and the proxies whose headers are believed, if any."""

    names: frozenset[str]
    origin: str | None = None
    """The host and port of `api.url`, of which pages are ours whatever `Host` a proxy sends."""
    proxies: tuple[Network, ...] | None = None
    """None believes no header."""
    proxy_uids: frozenset[int] = frozenset()
    """The accounts of proxies on this computer. Headers of its other programs are ignored."""
    tls: bool = False

    def is_own(self, hosts: Sequence[str]) -> bool:
        """Return True if there is exactly one `Host` header and it names this server.

        Case is ignored. So is the port, because a tunnel listens on another one. An account, a
        zone or a trailing dot makes a different name.
        """
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        return found is not None and found[1].lower() in self.names

    def is_proxy(self, address: str) -> bool:
        """Return True for a trusted proxy; many clients share its connections."""
        return self.proxies is not None and _lies_in(address, self.proxies)

    def is_own_origin(self, origin: str, host: str | None) -> bool:
        """Return whether a page of this origin is ours, in a request with this `Host`."""
        place = urlsplit(origin).netloc
        return place == host or (self.origin is not None and place.lower() == self.origin)

    def client_of(
        self, peer: str | None, forwarded_for: Sequence[str], protocol: Sequence[str]
    ) -> str | None:
        """Return the address of who asks; `NotThroughProxyError` if it is not safe to answer.

        Of the headers, each line is given in its order.
        """
        if self.proxies is None:
            return peer
        if peer is None or not _lies_in(peer, self.proxies):
            if self.tls or peer is None:
                return peer
            raise NotThroughProxyError(
                "the request does not come from a proxy of api.trusted_proxies"
            )
        hops = [each.strip() for line in forwarded_for for each in line.split(",")]
        if not hops:
            return peer  # The proxy's own, or that of somebody on this computer.
        if [each.strip().lower() for each in protocol] != ["https"] and not self.tls:
            raise NotThroughProxyError(
                "the proxy was not asked by https, or does not say so: let it set X-Forwarded-Proto"
            )
        client = peer
        for hop in reversed(hops[-_MOST_HOPS:]):
            address = _address(hop)
            if address is None:
                break  # Whoever wrote that is no proxy of ours.
            client = address
            if not _lies_in(address, self.proxies):
                break
        return client


def reach_of(settings: ApiConfig) -> Reach:
    """Return what the settings say; `ConfigurationError` if it is not safe, with the cure."""
    tls = _has_tls(settings)
    proxies = _networks(settings.trusted_proxies) if settings.behind_proxy else None
    if proxies == ():
        raise ConfigurationError(
            "api.behind_proxy needs the addresses of the proxies: set api.trusted_proxies"
        )
    names = {_name(each) for each in settings.allowed_hosts.split(",") if each.strip()}
    origin = None
    if settings.url:
        origin, name = _origin(settings.url)
        names.add(name)
    host = settings.http_host
    if not _is_loopback(host):
        if not tls and proxies is None:
            raise ConfigurationError(
                f"api.http_host is {host!r}, which is no loopback address, and tokens would cross"
                " the network in the clear: set api.tls_cert_file and api.tls_key_file, or let a"
                " proxy with TLS pass requests on and set api.behind_proxy; or set 127.0.0.1"
            )
        if _is_any(host) and not names:
            raise ConfigurationError(
                f"api.http_host is {host!r}: set api.url to the address that people use, so that"
                " the server knows its name"
            )
        if not _is_any(host):
            names.add(_name(host))
    return Reach(
        names=_LOOPBACK | names,
        origin=origin,
        proxies=proxies,
        proxy_uids=frozenset() if proxies is None else _uids(settings.proxy_accounts),
        tls=tls,
    )


def _has_tls(settings: ApiConfig) -> bool:
    """Check certificate and key, and return whether there are any."""
    certificate, key = settings.tls_cert_file, settings.tls_key_file
    if not certificate and not key:
        return False
    server_context(certificate, key, part="api")
    return True


def _networks(text: str) -> tuple[Network, ...]:
    found = []
    for each in filter(None, (each.strip() for each in text.split(","))):
        try:
            found.append(ipaddress.ip_network(each))
        except ValueError as error:
            raise ConfigurationError(
                f"api.trusted_proxies: {each!r:.100} is no network ({error}); it is like"
                " 127.0.0.1,10.0.0.0/8"
            ) from error
    return tuple(found)


def _uids(text: str) -> frozenset[int]:
    """Return the numbers of the named accounts, of root and of this server."""
    found = {0, os.geteuid()}
    for each in filter(None, (each.strip() for each in text.split(","))):
        if each.isascii() and each.isdigit():
            found.add(int(each))
            continue
        try:
            found.add(pwd.getpwnam(each).pw_uid)
        except (KeyError, ValueError) as error:
            if each not in _USUAL_PROXIES:
                raise ConfigurationError(
                    f"api.proxy_accounts: this computer does not have the account {each!r:.100};"
                    " the setting is like nginx,101"
                ) from error
    return frozenset(found)


def _origin(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("https", "http") and parts.hostname and not parts.username
        if not good or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError(
            f"api.url is {url!r:.200}, which is no address like https://orcaflow.example.org"
        ) from None
    name = _name(parts.hostname or "")
    return (name if port is None else f"{name}:{port}"), name


def _name(text: str) -> str:
    """Return a host as it stands in a `Host` header."""
    name = text.strip().lower()
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    if not name or any(each in name for each in "/@ \t*") or (":" in name and "]" not in name):
        raise ConfigurationError(f"api.allowed_hosts: {text!r:.100} is no name of a host")
    return name


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_any(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _address(hop: str) -> str | None:
    """Return the address of an entry of `X-Forwarded-For`, which may have a port."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return None


def _lies_in(address: str, networks: Iterable[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any(each in network for network in networks for each in (found, mapped) if each)
