"""The rule for data sources' own URLs: drivers and parameters that are known to be harmless.

Pure. As strict as DolphinScheduler's form, which has a host, a port, a database and checked
parameters: an SQLAlchemy URL could otherwise name a file of the host, a socket, a service file, a
program's library or options that a driver would follow. Everything that is not listed here is
refused, with the place and without repeating a value, which may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_SCHEME = re.compile(r"([a-z][a-z0-9_]*)(?:\+([a-z0-9_]+))?", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_DATABASE = re.compile(r"[\w$.-]{0,63}")
_FORBIDDEN = re.compile(r"[\s\\#\x00-\x1f\x7f]")

_NUMBER = re.compile(r"[0-9]{1,6}")
_FLAG = re.compile(r"true|false|yes|no|on|off|0|1|strict|mandatory|optional", re.IGNORECASE)
_WORD = re.compile(r"[\w .:@-]{1,100}")
_NAMES = re.compile(r"[\w$.,]{1,200}")
_FILE = re.compile(r"[\w./-]{1,500}")
"""The value of a parameter that names a file, which has a rule of its own."""

_POSTGRESQL: Final[Mapping[str, re.Pattern[str]]] = {
    "sslmode": re.compile(r"disable|allow|prefer|require|verify-ca|verify-full"),
    "sslrootcert": _FILE,
    "sslcert": _FILE,
    "sslkey": _FILE,
    "connect_timeout": _NUMBER,
    "application_name": _WORD,
    "client_encoding": re.compile(r"[\w-]{1,30}"),
    "keepalives": _FLAG,
    "options": re.compile(r"-c ?search_path=[\w$,]{1,200}"),
}
_MYSQL: Final[Mapping[str, re.Pattern[str]]] = {
    "charset": re.compile(r"\w{1,30}"),
    "connect_timeout": _NUMBER,
    "read_timeout": _NUMBER,
    "write_timeout": _NUMBER,
    "ssl_ca": _FILE,
    "ssl_cert": _FILE,
    "ssl_key": _FILE,
    "ssl_check_hostname": _FLAG,
    "ssl_verify_cert": _FLAG,
    "ssl_verify_identity": _FLAG,
    "ssl_disabled": _FLAG,
}
_SQLSERVER: Final[Mapping[str, re.Pattern[str]]] = {
    # A name from odbcinst.ini, never the path of a library.
    "driver": re.compile(r"ODBC Driver(?: [0-9]{1,2})?(?: for SQL Server)?|SQL Server|FreeTDS"),
    "Encrypt": _FLAG,
    "TrustServerCertificate": _FLAG,
    "ApplicationIntent": re.compile(r"ReadOnly|ReadWrite"),
    "charset": re.compile(r"[\w-]{1,30}"),
    "timeout": _NUMBER,
    "login_timeout": _NUMBER,
    "tds_version": re.compile(r"[0-9]\.[0-9]"),
}
_ORACLE: Final[Mapping[str, re.Pattern[str]]] = {
    "service_name": _NAMES,
    "sid": _NAMES,
    "encoding": re.compile(r"[\w-]{1,30}"),
}
_CLICKHOUSE: Final[Mapping[str, re.Pattern[str]]] = {
    "secure": _FLAG,
    "verify": _FLAG,
    "protocol": re.compile(r"https?"),
    "compression": re.compile(r"\w{1,10}"),
    "connect_timeout": _NUMBER,
    "send_receive_timeout": _NUMBER,
    "timeout": _NUMBER,
}
_HIVE: Final[Mapping[str, re.Pattern[str]]] = {
    "auth": re.compile(r"NONE|NOSASL|LDAP|KERBEROS|CUSTOM"),
    "kerberos_service_name": re.compile(r"\w{1,60}"),
}
_DB2: Final[Mapping[str, re.Pattern[str]]] = {
    "CurrentSchema": _NAMES,
    "ConnectTimeout": _NUMBER,
    "Security": re.compile(r"SSL"),
}
_SQLITE: Final[Mapping[str, re.Pattern[str]]] = {"timeout": _NUMBER}

_PG_DRIVERS: Final = ("", "psycopg2", "psycopg", "pg8000")
_MYSQL_DRIVERS: Final = ("", "pymysql", "mysqldb", "mysqlconnector", "mariadbconnector")
_DIALECTS: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, re.Pattern[str]]]]] = {
    "postgresql": (_PG_DRIVERS, _POSTGRESQL),
    "postgres": (_PG_DRIVERS, _POSTGRESQL),
    "mysql": (_MYSQL_DRIVERS, _MYSQL),
    "mariadb": (_MYSQL_DRIVERS, _MYSQL),
    "mssql": (("", "pyodbc", "pymssql"), _SQLSERVER),
    "oracle": (("", "oracledb", "cx_oracle"), _ORACLE),
    "clickhouse": (("", "native", "http"), _CLICKHOUSE),
    "clickhousedb": (("", "connect"), _CLICKHOUSE),
    "hive": (("", "http", "https"), _HIVE),
    "ibm_db_sa": (("", "ibm_db"), _DB2),
    "db2": (("", "ibm_db"), _DB2),
    "sqlite": (("", "pysqlite"), _SQLITE),
}
_PUBLIC_FILES: Final = frozenset({"sslrootcert", "ssl_ca"})
"""Certificates of authorities, which are no secret and stand anywhere."""


class RefusedUrlError(ValueError):
    """A URL breaks the rule; the text says how, after the words "its url"."""


def check_url(url: str, *, data_dir: str) -> None:
    """Refuse a URL that names more than a database; `RefusedUrlError` with the reason.

    Files must be below `data_dir`, the folder of the data that tasks share.
    """
    if _FORBIDDEN.search(url):
        raise RefusedUrlError("has a blank, a #, a backslash or a control character: escape it")
    try:
        parts = split_url(url)
        port = parts.port
    except ValueError:
        raise RefusedUrlError("is malformed") from None
    scheme = _SCHEME.fullmatch(url.partition("://")[0])
    if scheme is None or "://" not in url:
        raise RefusedUrlError("must begin like postgresql://, mysql+pymysql:// or sqlite:///")
    dialect, driver = scheme[1].lower(), (scheme[2] or "").lower()
    if dialect not in _DIALECTS:
        raise RefusedUrlError(
            f"has the dialect {dialect[:40]!r}; known are {', '.join(sorted(_DIALECTS))}"
        )
    drivers, parameters = _DIALECTS[dialect]
    if driver not in drivers:
        known = ", ".join(each for each in drivers if each)
        raise RefusedUrlError(f"has the driver {driver[:40]!r}; known for {dialect} are {known}")
    if dialect == "sqlite":
        _check_file_of(parts, data_dir)
    else:
        _check_place(parts, port)
    _check_parameters(parts.query, dialect, parameters, data_dir)


def split_url(url: str) -> SplitResult:
    """Return the parts behind the scheme, which is not looked at: it may have an underscore.

    Raises `ValueError` for a malformed URL.
    """
    return urlsplit(f"//{url.partition('://')[2]}")


def with_netloc(url: str, netloc: str) -> str:
    """Return the URL with another account, host and port."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{netloc}{rest[len(split_url(url).netloc) :]}"


def is_below(path: str, folder: str) -> bool:
    """True for a path that stays below a folder: a relative one, or an absolute one in it."""
    parts = PurePosixPath(path)
    if ".." in parts.parts or not parts.name:
        return False
    if not parts.is_absolute():
        return True
    return bool(folder) and parts.is_relative_to(folder)


def _check_place(parts: SplitResult, port: int | None) -> None:
    user, _, host = parts.netloc.rpartition("@")
    # SQLAlchemy splits at the first such character, and would see another host.
    if "@" in user.partition(":")[2]:
        raise RefusedUrlError("has an @ in its password: write %40")
    if not host or not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise RefusedUrlError("must name a host, as in ://USER@HOST:PORT/DATABASE, and no socket")
    if port == 0:
        raise RefusedUrlError("has no port between 1 and 65535")
    if not _DATABASE.fullmatch(unquote(parts.path.removeprefix("/"))):
        raise RefusedUrlError("must name a database by letters, digits and _ $ . - only")


def _check_file_of(parts: SplitResult, data_dir: str) -> None:
    path = parts.path.removeprefix("/")
    if parts.netloc:
        raise RefusedUrlError("must be like sqlite:///FILE, without a host")
    if path not in ("", ":memory:") and (
        unquote(path) != path or path.startswith("file:") or not is_below(path, data_dir)
    ):
        raise RefusedUrlError(
            "must name a file of the folder of shared data, by a path from there"
            " (worker.data_dir, by default $ORCAFLOW_HOME/data): sqlite:///FILE"
        )


def _check_parameters(
    query: str, dialect: str, known: Mapping[str, re.Pattern[str]], data_dir: str
) -> None:
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise RefusedUrlError(
                f"has the parameter {key[:40]!r}, which is not allowed; known for {dialect} are"
                f" {', '.join(sorted(known))}"
            )
        if not known[key].fullmatch(value):
            raise RefusedUrlError(f"has a value of {key} that is not allowed")
        if known[key] is _FILE and key not in _PUBLIC_FILES and not is_below(value, data_dir):
            raise RefusedUrlError(
                f"names a file by {key} that is not in the folder of shared data"
                " (worker.data_dir, by default $ORCAFLOW_HOME/data)"
            )
