"""Decides which addresses HTTP tasks may connect to.

Those of the public internet, and those that an operator allows, by network or by the host's name.
Some stay denied whatever is allowed: those at which clouds give keys away. An address that carries
another one (IPv4 in IPv6) is judged by both. Pure: names are resolved by whoever connects, who asks
here about every address that a name has, at every connection. Used by the program behind HTTP tasks
and by the check of the settings. The addresses of brokers are checked against `CLOUD_KEYS`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL: Final = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20"))
)
"""Networks for purposes of their own that not every version of Python knows as such."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# The last label has a letter: else it would be a number, by which addresses can be written too.
_HOST: Final = re.compile(
    r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.)*(?=[a-z0-9-]*[a-z])[a-z0-9][a-z0-9-]{0,62}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The networks and hosts that are allowed besides public addresses, and what never is."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()
    """Names in lower case; `*.example.com` is every name below that one."""
    denied: tuple[Network, ...] = ()

    def refusal(self, host: str, address: str) -> str | None:
        """Return the reason for which nobody may connect to a host at this address of it."""
        forms = _forms(ipaddress.ip_address(address.partition("%")[0]))
        if self.is_denied(address):
            return "worker.http_denied forbids it"
        if self._names(host):
            return None
        if all(_is_public(form) or _lies_in(form, self.networks) for form in forms):
            return None
        return (
            "it is no address of the public internet; an operator can allow it or the host in"
            " worker.http_allowed"
        )

    def is_denied(self, address: str) -> bool:
        """Return True if an address, or an address that it contains, is in a denied network."""
        forms = _forms(ipaddress.ip_address(address.partition("%")[0]))
        return any(_lies_in(form, self.denied) for form in forms)

    def _names(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return any(
            name.endswith(each[1:]) if each.startswith("*.") else name == each
            for each in self.hosts
        )


def destinations(*, allowed: Iterable[str], denied: Iterable[str]) -> Destinations:
    """Read networks and hosts as they are written. Raises `ValueError` for what is neither."""
    networks: list[Network] = []
    hosts: list[str] = []
    for each in allowed:
        name = each.lower().rstrip(".")
        if _HOST.fullmatch(name):
            hosts.append(name)
        else:
            networks.append(_network(each))
    return Destinations(
        networks=tuple(networks),
        hosts=tuple(hosts),
        denied=tuple(_network(each) for each in denied),
    )


def is_host_name(text: str) -> bool:
    """Return True for the name of a single host; False for addresses and patterns."""
    return not text.startswith("*") and _HOST.fullmatch(text.lower().rstrip(".")) is not None


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a setting that is written as a,b."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:80]!r} is no network as 10.0.0.0/8 is, and no host: {error}"
        ) from error


def _forms(address: Address) -> tuple[Address, ...]:
    """Return the addresses that packets to this one may go to."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64:
        return (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),)
    inner = address.sixtofour
    return (address,) if inner is None else (address, inner)


def _is_public(address: Address) -> bool:
    if _lies_in(address, _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        # Wider than what Python's versions agree on as private, reserved or site-local.
        return address in _GLOBAL_UNICAST and address.is_global
    return address.is_global and not address.is_multicast


def _lies_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(each.version == address.version and address in each for each in networks)
