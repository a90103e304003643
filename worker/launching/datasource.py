"""Reads a row of `t_ds_datasource`: the database to connect to, or the fault of the row.

Pure. `connection_params` is JSON, in the original's form (`address`, `database`, `jdbcUrl`, `user`,
`password`, `other`) for PostgreSQL, or in ours for everything that SQLAlchemy has a driver for:
`{"url": "<SQLAlchemy URL>"}`. The original's form is taken apart and checked: host, port and
database are what they seem to be, and only parameters that are known to be harmless reach the
driver. A URL of ours obeys a rule as strict (`common.model.datasource_urls`). A password leaves
this module only in a `Target`, and no message repeats what stands in the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from common.masking import secrets_in_json
from common.model import datasource_references
from common.model.connection_params import ConnectionParamsError, read_connection_params
from common.model.datasource_urls import RefusedUrlError, check_url, is_below, split_url
from common.model.grants import GrantKind
from common.model.task_type import DatasourceUse, Key, Shape, ValueFaultError
from worker.launching.base import NotGrantedError, TaskParameterError, fault_at, read_node

if TYPE_CHECKING:
    from common.store.worker.ports import ClaimedTask, DataSource

_DB_TYPES: Final = (
    "MYSQL", "POSTGRESQL", "HIVE", "SPARK", "CLICKHOUSE", "ORACLE", "SQLSERVER", "DB2",
)  # fmt: skip
_POSTGRESQL: Final = 1

_URL = re.compile(r"([a-z][a-z0-9_]*)(\+[a-z0-9_]+)?://", re.IGNORECASE)
_JDBC = re.compile(r"jdbc:postgresql://([^/?#]+)(?:/([^/?#]*))?(?:\?(.*))?")
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_DATABASE = re.compile(r"[\w$.-]{1,63}")

# What a parameter of the JDBC driver, or of libpq, is to psycopg2. All others are refused: some
# drivers load code or read files by a parameter.
_PARAMETERS: Final[Mapping[str, str]] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connecttimeout": "connect_timeout",
    "connect_timeout": "connect_timeout",
    "logintimeout": "connect_timeout",
    "applicationname": "application_name",
    "application_name": "application_name",
    "tcpkeepalive": "keepalives",
}
# Said by the original's form for every database, and nothing that psycopg2 would need to know.
_IGNORED: Final = frozenset({"useunicode", "characterencoding", "stringtype", "preparethreshold"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A database to connect to: either a whole URL, or its parts."""

    name: str
    dialect: str
    """As SQLAlchemy calls it, without a driver: `postgresql`, `sqlite`, …"""
    url: str = field(default="", repr=False)
    host: str = ""
    port: int | None = None
    database: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that must never be shown, in every spelling."""

    def to_json(self) -> dict[str, object]:
        """Return the part of a job that names the database to connect to."""
        return {
            "name": self.name,
            "dialect": self.dialect,
            "url": self.url,
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "user": self.user,
            "password": self.password,
            "query": dict(self.query),
        }


def datasource_ids(task: ClaimedTask, use: DatasourceUse) -> tuple[int, ...]:
    """Return the ids of the data sources that a node names; none that could not exist."""
    try:
        params, _ = read_node(task)
        if use is DatasourceUse.ONE:
            return (_id(params),)
        found = datasource_references.spark_sources(params)
        return tuple(each.source for each in found if isinstance(each.source, int) and each.source)
    except TaskParameterError:
        return ()  # Said when the attempt is started.


def target(params: Mapping[str, Any], source: DataSource | None, *, data_dir: str = "") -> Target:
    """Return the database that a task connects to; `TaskParameterError` with what is wrong.

    `data_dir`: the folder in which files of data sources must be.
    """
    wanted = _id(params)
    if source is None:
        raise NotGrantedError(GrantKind.DATASOURCE, wanted, key="params.datasource")
    return target_of(source, data_dir=data_dir)


def target_of(source: DataSource, *, data_dir: str = "") -> Target:
    """Return the database of a row; `TaskParameterError` with what is wrong with the row."""
    place = f"data source {source.name!r}"
    try:
        given = read_connection_params(source.connection_params)
    except ConnectionParamsError as error:
        raise TaskParameterError(f"{place}: connection_params {error}") from None
    if given.get("url"):
        return _of_url(source.name, place, _text(place, given, "url"), data_dir)
    if source.type != _POSTGRESQL:
        known = 0 <= source.type < len(_DB_TYPES)
        kind = _DB_TYPES[source.type] if known else f"{source.type}"
        raise TaskParameterError(
            f"{place}: a database of type {kind} is reached by an SQLAlchemy URL, to be given as"
            ' {"url": "…"} in its connection_params'
        )
    return _of_address(source.name, place, given, data_dir)


def passwords_of(source: DataSource) -> tuple[str, ...]:
    """Return the passwords in a row, in every spelling; none of one that can't be read."""
    try:
        url = read_connection_params(source.connection_params).get("url")
        in_url = split_url(url).password if isinstance(url, str) else None
    except ValueError:
        return ()
    found = secrets_in_json(source.connection_params)
    return tuple(dict.fromkeys(each for one in (*found, in_url or "") for each in _spellings(one)))


def _id(params: Mapping[str, Any]) -> int:
    with fault_at("datasource"):
        return _read_id(params.get("datasource"))


def _read_id(given: object) -> int:
    text = str(given).strip() if isinstance(given, str | int) else ""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise ValueFaultError("must be the id of a data source")
    return int(text)


def _check_id(value: Any) -> None:
    _read_id(value)


DATASOURCE_KEYS: Final = (
    Key(
        name="datasource",
        shape=Shape.ANY,
        about="The data source, by its id in this database.",
        check=_check_id,
    ),
    Key(name="datasourceName", about="The data source, by its name; an import puts the id for it."),
)
DATASOURCE_NAMES: Final = tuple(key.name for key in DATASOURCE_KEYS)


def _of_url(name: str, place: str, url: str, data_dir: str) -> Target:
    try:
        check_url(url, data_dir=data_dir)
    except RefusedUrlError as error:
        raise TaskParameterError(f"{place}: its url {error}") from None
    match = _URL.match(url)
    if match is None:
        raise TaskParameterError(f"{place}: url must begin like postgresql:// or sqlite:///")
    dialect, driver = match[1].lower(), match[2] or ""
    if dialect in ("postgres", "postgresql"):
        # SQLAlchemy would take a driver that is not installed with Orcaflow.
        dialect, driver = "postgresql", driver or "+psycopg2"
    try:
        password = split_url(url).password or ""
    except ValueError:
        raise TaskParameterError(f"{place}: url is malformed") from None
    return Target(
        name=name,
        dialect=dialect,
        url=f"{dialect}{driver}://{url[match.end() :]}",
        secrets=_spellings(password),
    )


def _of_address(name: str, place: str, given: Mapping[str, Any], data_dir: str) -> Target:
    address = _text(place, given, "address") or _text(place, given, "jdbcUrl")
    if not address:
        raise TaskParameterError(f"{place}: connection_params has neither address nor url")
    match = _JDBC.fullmatch(address)
    host = _HOST.fullmatch(match[1]) if match else None
    if match is None or host is None:
        raise TaskParameterError(f"{place}: address must be like jdbc:postgresql://host:5432")
    port = int(host[2] or 5432)
    if not 0 < port < 65536:
        raise TaskParameterError(f"{place}: address has no port between 1 and 65535")
    database = _text(place, given, "database") or match[2] or ""
    if not _DATABASE.fullmatch(database):
        raise TaskParameterError(
            f"{place}: database must be a name of letters, digits and _ $ . - only"
        )
    password = _text(place, given, "password")
    query = _query(place, [match[3] or "", given.get("other") or ""])
    for key in ("sslcert", "sslkey"):
        if key in query and not is_below(query[key], data_dir):
            raise TaskParameterError(
                f"{place}: {key} must name a file of the folder of shared data"
                " (worker.data_dir, by default $ORCAFLOW_HOME/data)"
            )
    return Target(
        name=name,
        dialect="postgresql",
        host=host[1].strip("[]"),
        port=port,
        database=database,
        user=_text(place, given, "user"),
        password=password,
        query=query,
        secrets=_spellings(password),
    )


def _query(place: str, given: list[object]) -> dict[str, str]:
    query: dict[str, str] = {}
    for each in given:
        pairs = each.items() if isinstance(each, Mapping) else _pairs(place, each)
        for key, value in pairs:
            known = str(key).strip().lower()
            if known == "ssl":
                if str(value).strip().lower() not in ("", "true"):
                    continue
                query.setdefault("sslmode", "verify-full")
            elif known == "currentschema":
                if not re.fullmatch(r"[\w$,]{1,200}", str(value)):
                    raise TaskParameterError(f"{place}: currentSchema must be a list of names")
                query["options"] = f"-csearch_path={value}"
            elif known in _PARAMETERS:
                text = str(value).strip()
                query[_PARAMETERS[known]] = {"true": "1", "false": "0"}.get(text.lower(), text)
            elif known not in _IGNORED:
                raise TaskParameterError(
                    f"{place}: the parameter {str(key)[:40]!r} is not allowed; known are"
                    f" ssl, currentSchema, {', '.join(sorted(set(_PARAMETERS.values())))}"
                )
    return query


def _pairs(place: str, given: object) -> list[tuple[str, str]]:
    if not isinstance(given, str):
        raise TaskParameterError(f"{place}: other must be text like a=b&c=d, or an object")
    text = given.strip()
    if text.startswith("{"):
        try:
            return [(str(key), str(value)) for key, value in read_connection_params(text).items()]
        except ConnectionParamsError as error:
            raise TaskParameterError(f"{place}: other {error}") from None
    parts = [part.partition("=") for part in re.split(r"[&;]", text) if part.strip()]
    return [(unquote(key), unquote(value)) for key, _, value in parts]


def _text(place: str, given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int) or "\0" in str(value):
        raise TaskParameterError(f"{place}: {key} must be text")
    return str(value)


def _spellings(password: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for each in (password, unquote(password)) if each))
