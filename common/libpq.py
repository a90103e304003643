"""Reads the URL of a PostgreSQL server, or of several, as libpq's parameters.

All connections take their parameters from here: pooled ones, the one for LISTEN, and `psql`.
Several hosts are written as SQLAlchemy has them, `?host=a:5432&host=b:5432`, or as libpq has them,
`?host=a,b&port=5432,5433`. The first host that accepts is used. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_SCHEMES: Final = ("postgresql+psycopg2", "postgresql", "postgres")
_FORM: Final = "it must be like postgresql+psycopg2://user:password@host:port/name"
_ESCAPES: Final = (
    f"{_FORM}; signs like @ : / ? # in the password are written as %40 %3A %2F %3F %23"
)
_DEFAULT_PORT: Final = "5432"


def parameters(url: str) -> dict[str, str]:
    """Return the parameters; several hosts and ports are separated by commas.

    `ValueError` if the URL can't be read. Its text does not repeat the URL, because a broken URL
    may have its password in any place.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(_FORM) from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(_FORM)
    try:
        port = parts.port
    except ValueError:
        # A password with such a sign in it ends up here, or as a part of the path.
        raise ValueError(_ESCAPES) from None
    if "@" in parts.path or "@" in parts.query or parts.fragment:
        raise ValueError(_ESCAPES)
    query = parse_qs(parts.query)
    hosts, ports = _places(query.pop("host", []), query.pop("port", []))
    # Options add up; of any other parameter that is written twice the last counts.
    more = {name: " ".join(v) if name == "options" else v[-1] for name, v in query.items()}
    found = {
        "host": hosts or unquote(parts.hostname or ""),
        "port": ports or str(port or ""),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "dbname": unquote(parts.path.lstrip("/")),
        **more,
    }
    if "," in found["host"]:
        # A standby accepts connections too, and refuses every change.
        found.setdefault("target_session_attrs", "read-write")
    return {name: value for name, value in found.items() if value}


def dsn(url: str) -> str:
    """Return the parameters as libpq's pairs; `ValueError` if the URL names no database."""
    pairs = parameters(url)
    if "dbname" not in pairs:
        raise ValueError(f"it names no database; {_FORM}")
    return " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())


def has_several_hosts(found: dict[str, str]) -> bool:
    """Return True if these parameters name more than one host."""
    return "," in found.get("host", "")


def place(found: dict[str, str]) -> str:
    """Return `host:port/database` of these parameters, with all hosts, for messages."""
    hosts = found.get("host", "localhost").split(",")
    ports = found.get("port", _DEFAULT_PORT).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    pairs = zip(hosts, ports, strict=False)
    named = ",".join(f"{host or 'localhost'}:{port or _DEFAULT_PORT}" for host, port in pairs)
    return f"{named}/{found.get('dbname', '')}"


def _places(hosts: Sequence[str], ports: Sequence[str]) -> tuple[str, str]:
    """Return the hosts and the ports of a query, each separated by commas."""
    tokens = [_split(token) for written in hosts for token in written.split(",")]
    given = [port for written in ports for port in written.split(",")]
    own = [port for _, port in tokens]
    if any(own) and given:
        raise ValueError("ports are written with the hosts (host=a:5432) or apart, not both")
    wanted = own if any(own) else given
    if any(port and not port.isdecimal() for port in wanted):
        raise ValueError(_ESCAPES)
    if len(wanted) > 1 and len(wanted) != len(tokens):
        raise ValueError(f"it names {len(tokens)} hosts and {len(wanted)} ports")
    named = ",".join(host for host, _ in tokens)
    return named, ",".join(wanted) if any(wanted) else ""


def _split(token: str) -> tuple[str, str]:
    """Split `host:port`; a folder of sockets and a bare IPv6 address come without a port."""
    if token.startswith("["):
        host, _, port = token[1:].partition("]")
        return host, port.removeprefix(":")
    if token.startswith("/") or token.count(":") != 1:
        return token, ""
    host, _, port = token.partition(":")
    return host, port


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w./:@%+,-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
