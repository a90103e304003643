"""The data sources of a PYTHON task: what its file of connections says of each.

Pure. A task names its data sources in `params.datasources`, as a Spark task does. The file is one
JSON object from their names to connections, each with `url` (as SQLAlchemy takes it), `dialect`,
`host`, `port`, `database`, `user`, `password` and `query`. It holds passwords, so only the account
of the task can read it, and the worker removes it when the attempt has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from common.model.datasource_urls import split_url
from common.model.grants import GrantKind
from worker.launching.base import NotGrantedError, TaskParameterError
from worker.launching.datasource import Target, target_of
from worker.launching.spark_datasource import wanted_sources

if TYPE_CHECKING:
    from common.store.worker.ports import DataSource

_FILES: Final = frozenset({"sslcert", "sslkey", "sslrootcert", "ssl_ca", "ssl_cert", "ssl_key"})
_NO_FILES: Final = frozenset({"", ":memory:", "system"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The connections of a task by name, and the texts in them that must never be shown."""

    documents: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def connections(
    params: Mapping[str, Any], rows: Mapping[int, DataSource], *, data_dir: str
) -> Connections:
    """Return the connections of a task; `TaskParameterError` with what is wrong with one.

    `data_dir`: the folder in which files of data sources must be.
    """
    documents: dict[str, Mapping[str, object]] = {}
    secrets: list[str] = []
    for each in wanted_sources(params):
        row = rows.get(int(each.source))
        if row is None:
            raise NotGrantedError(GrantKind.DATASOURCE, each.source, key=f"params.{each.key}")
        name = each.name or row.name
        if name in documents:
            raise TaskParameterError(f"params.{each.key}: {name!r:.80} is named twice")
        target = target_of(row, data_dir=data_dir)
        documents[name] = _document(target, data_dir)
        secrets += target.secrets
    return Connections(documents=documents, secrets=tuple(secrets))


def _document(target: Target, data_dir: str) -> Mapping[str, object]:
    if target.url:
        return _of_url(target, data_dir)
    query = {key: _file(key, value, data_dir) for key, value in target.query.items()}
    return {
        "url": _url(target, query),
        "dialect": target.dialect,
        "host": target.host,
        "port": target.port,
        "database": target.database,
        "user": target.user,
        "password": target.password,
        "query": query,
    }


def _of_url(target: Target, data_dir: str) -> Mapping[str, object]:
    parts = split_url(target.url)
    scheme = target.url.partition("://")[0]
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    query = {key: _file(key, value, data_dir) for key, value in given.items()}
    more = f"?{urlencode(query)}" if query else ""
    database = unquote(parts.path.removeprefix("/"))
    path = parts.path
    if target.dialect == "sqlite":
        database = _below(data_dir, database)
        path = f"/{database}"
    return {
        "url": f"{scheme}://{parts.netloc}{path}{more}",
        "dialect": target.dialect,
        "host": parts.hostname or "",
        "port": parts.port,
        "database": database,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "query": query,
    }


def _url(target: Target, query: Mapping[str, str]) -> str:
    password = f":{quote(target.password, safe='')}" if target.password else ""
    account = f"{quote(target.user, safe='')}{password}@" if target.user or password else ""
    host = f"[{target.host}]" if ":" in target.host else target.host
    more = f"?{urlencode(query)}" if query else ""
    port = "" if target.port is None else f":{target.port}"
    return f"postgresql+psycopg2://{account}{host}{port}/{quote(target.database)}{more}"


def _file(key: str, value: str, data_dir: str) -> str:
    return _below(data_dir, value) if key in _FILES else value


def _below(folder: str, path: str) -> str:
    """Return the path of a file of the shared folder, from which a relative path starts."""
    if path in _NO_FILES or path.startswith("/") or not folder:
        return path
    return f"{folder}/{path}"
