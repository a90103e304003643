"""Reads a row of `t_ds_datasource` for Spark: the options of its `jdbc` source, or its fault.

Pure. A task names its data sources in `params.datasources`: an object from the names that the task
uses to the ids of rows, or a list of ids, whose rows' own names count. `connection_params` is read
in the original's form (`jdbcUrl`, or `address` and `database`, `user`, `password`, `other`) for
every database, and in ours, an SQLAlchemy URL, for those whose JDBC URL follows from it; a row may
have `jdbcUrl` and `driver` beside `url`, and these count for Spark. Parameters by which a driver
would load code or read files are refused. A password leaves this module only as an option of its
own, never inside a URL, and no message repeats what stands in the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from common.model.connection_params import ConnectionParamsError, read_connection_params
from common.model.datasource_references import SparkSource, spark_sources
from common.model.grants import GrantKind
from worker.launching.base import NotGrantedError, TaskParameterError
from worker.launching.keys import MAX_DATASOURCES, is_catalog_name

if TYPE_CHECKING:
    from common.store.worker.ports import DataSource

_JDBC = re.compile(r"jdbc:([a-z0-9]+):\S+", re.IGNORECASE)
_SUBPROTOCOLS: Final = (
    "mysql", "postgresql", "hive2", "hive2", "clickhouse", "oracle", "sqlserver", "db2",
)  # fmt: skip
"""By the code of DbType (contract §2.1)."""
_DRIVERS: Final[Mapping[str, str]] = {
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "postgresql": "org.postgresql.Driver",
    "hive2": "org.apache.hive.jdbc.HiveDriver",
    "clickhouse": "com.clickhouse.jdbc.ClickHouseDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "sqlite": "org.sqlite.JDBC",
    "derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}
_OF_DIALECT: Final[Mapping[str, str]] = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mariadb",
    "mssql": "sqlserver",
    "oracle": "oracle",
    "clickhouse": "clickhouse",
    "hive": "hive2",
    "ibm_db_sa": "db2",
    "db2": "db2",
    "sqlite": "sqlite",
}
_URL = re.compile(r"([a-z][a-z0-9_]*)(?:\+[a-z0-9_]+)?://", re.IGNORECASE)
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+")
_HOST = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_DATABASE = re.compile(r"[\w$.-]{0,63}")

# By these a driver loads a class, reads a file, runs a script or asks a name server for an object.
_DANGEROUS = re.compile(
    r"autodeserialize|allowloadlocalinfile\w*|allowurlinlocalinfile|(query|statement)interceptors"
    r"|detectcustomcollations|socketfactory\w*|sslfactory\w*|sslhostnameverifier"
    r"|sslpasswordcallback|authenticationpluginclassname|defaultauthenticationplugin"
    r"|authenticationplugins|propertiestransform|clientinfoprovider|connectionlifecycleinterceptors"
    r"|exceptioninterceptors|loadbalance\w+|loggerfile|logger|init|\w*jndiname|plugin\w*"
    r"|jaasapplicationname|xmlfactoryfactory|kerberosservername|tracefile|tracedirectory"
)
_PASSWORDS: Final = frozenset({"password", "pass", "pwd", "passwd", "user", "username"})
# Known to SQLAlchemy's drivers, and nothing to JDBC's.
_PYTHON_ONLY: Final = frozenset({"charset", "driver", "client_encoding"})
_OF_LIBPQ: Final[Mapping[str, str]] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDatasource:
    """A data source as a task's process is given it."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def wanted_sources(params: Mapping[str, Any]) -> tuple[SparkSource, ...]:
    """Return the sources in `params.datasources`; `TaskParameterError` if they can't be read."""
    found = []
    for each in spark_sources(params):
        if each.problem:
            raise TaskParameterError(f"params.{each.key}: {each.problem}")
        if isinstance(each.source, str):
            raise TaskParameterError(
                f"params.{each.key}: must be the id of a data source; `orcaflow definition import`"
                " puts ids for names"
            )
        found.append(each)
    if len(found) > MAX_DATASOURCES:
        raise TaskParameterError(
            f"params.datasources names {len(found)} data sources; {MAX_DATASOURCES} are allowed"
        )
    return tuple(found)


def spark_datasources(
    params: Mapping[str, Any], rows: Mapping[int, DataSource]
) -> tuple[SparkDatasource, ...]:
    """Return the data sources of a task; `TaskParameterError` with what is wrong with one."""
    found: dict[str, SparkDatasource] = {}
    for each in wanted_sources(params):
        row = rows.get(int(each.source))
        if row is None:
            raise NotGrantedError(GrantKind.DATASOURCE, each.source, key=f"params.{each.key}")
        name = each.name or row.name
        if not is_catalog_name(name):
            raise TaskParameterError(
                f"params.{each.key}: {name[:80]!r} can't be the name of a catalog: give the data"
                ' source another for this task, as in {"sales": 3}'
            )
        if name in found:
            raise TaskParameterError(f"params.{each.key}: {name!r} is named twice")
        found[name] = _options(name, row)
    return tuple(found.values())


def _options(name: str, row: DataSource) -> SparkDatasource:
    place = f"data source {row.name!r}"
    try:
        given = read_connection_params(row.connection_params)
    except ConnectionParamsError as error:
        raise TaskParameterError(f"{place}: connection_params {error}") from None
    user, password = _text(place, given, "user"), _text(place, given, "password")
    alchemy = _text(place, given, "url")
    if alchemy:
        found, known_user, known_password = _of_url(place, alchemy)
        user, password = user or known_user, password or known_password
        url = _text(place, given, "jdbcUrl") or found
        if not url:
            raise TaskParameterError(
                f"{place}: Spark reaches a database by JDBC, and no JDBC URL follows from its url:"
                ' give it as "jdbcUrl" beside it, and its class as "driver"'
            )
    else:
        url = _of_address(place, row.type, given)
    subprotocol = _checked(place, url)
    driver = _text(place, given, "driver") or _DRIVERS.get(subprotocol, "")
    if not _CLASS.fullmatch(driver):
        raise TaskParameterError(
            f'{place}: give the class of its JDBC driver as "driver" in its connection_params'
        )
    options = {"url": url, "driver": driver}
    options |= {"user": user} if user else {}
    options |= {"password": password} if password else {}
    return SparkDatasource(name=name, options=options, secrets=(password,) if password else ())


def _of_address(place: str, kind: int, given: Mapping[str, Any]) -> str:
    """Return the URL in the original's form, which has the database and other parameters apart."""
    url = _text(place, given, "jdbcUrl")
    database = _text(place, given, "database")
    if not url:
        address = _text(place, given, "address").rstrip("/")
        if not address:
            raise TaskParameterError(f"{place}: connection_params has no jdbcUrl, address or url")
        if not _DATABASE.fullmatch(database):
            raise TaskParameterError(
                f"{place}: database must be a name of letters, digits and _ $ . - only"
            )
        known = _SUBPROTOCOLS[kind] if 0 <= kind < len(_SUBPROTOCOLS) else ""
        joint = ";databaseName=" if known == "sqlserver" else "/"
        url = f"{address}{joint}{database}" if database else address
    more = "&".join(f"{key}={value}" for key, value in _other(place, given.get("other")))
    if not more:
        return url
    if url.lower().startswith(("jdbc:sqlserver:", "jdbc:hive2:")):
        return f"{url};{more.replace('&', ';')}"
    if url.lower().startswith("jdbc:db2:"):
        return f"{url}:{more.replace('&', ';')};"
    return f"{url}{'&' if '?' in url else '?'}{more}"


def _of_url(place: str, url: str) -> tuple[str, str, str]:
    """JDBC's URL for one of SQLAlchemy's, "" if none follows; the user and the password in it."""
    match = _URL.match(url)
    try:
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise TaskParameterError(f"{place}: url is malformed") from None
    subprotocol = _OF_DIALECT.get(match[1].lower(), "") if match else ""
    if subprotocol == "sqlite":
        # SQLAlchemy's fourth stroke begins an absolute path.
        path = parts.path[1:]
        return f"jdbc:sqlite:{path}" if path.startswith("/") else "", user, password
    parameters = []
    for key, value in parse_qsl(parts.query):
        if subprotocol == "postgresql" and key in _OF_LIBPQ:
            parameters.append(f"{_OF_LIBPQ[key]}={value}")
        elif key not in _PYTHON_ONLY:
            return "", user, password
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    database = unquote(parts.path.lstrip("/"))
    if not subprotocol or not _HOST.fullmatch(f"{host}{port}") or not _DATABASE.fullmatch(database):
        return "", user, password
    if subprotocol == "sqlserver":
        return f"jdbc:sqlserver://{host}{port};databaseName={database}", user, password
    if subprotocol == "oracle":
        return f"jdbc:oracle:thin:@//{host}{port}/{database}", user, password
    more = f"?{'&'.join(parameters)}" if parameters else ""
    return f"jdbc:{subprotocol}://{host}{port}/{database}{more}", user, password


def _checked(place: str, url: str) -> str:
    """Return the subprotocol of a JDBC URL that has nothing in it which it must not have."""
    match = _JDBC.fullmatch(url)
    if match is None:
        raise TaskParameterError(f"{place}: jdbcUrl must be like jdbc:postgresql://host:5432/name")
    for key in re.findall(r"(?<=[?&;,(:])\s*([\w.-]+)\s*=", unquote(url)):
        known = key.lower().rpartition(".")[2]
        if _DANGEROUS.fullmatch(known):
            raise TaskParameterError(f"{place}: the parameter {key[:40]!r} is not allowed")
        if known in _PASSWORDS:
            raise TaskParameterError(
                f"{place}: {known} stands in the URL, which Spark shows; give it by itself"
            )
    if re.search(r"://[^/?#;]*@", url):
        raise TaskParameterError(
            f"{place}: a user stands in the URL, which Spark shows; give it by itself"
        )
    return match[1].lower()


def _other(place: str, given: object) -> Iterator[tuple[str, str]]:
    if not given:
        return
    if isinstance(given, str) and given.strip().startswith("{"):
        try:
            given = read_connection_params(given)
        except ConnectionParamsError as error:
            raise TaskParameterError(f"{place}: other {error}") from None
    if isinstance(given, str):
        pairs = [part.partition("=")[::2] for part in re.split(r"[&;]", given) if part.strip()]
    elif isinstance(given, Mapping):
        pairs = [(str(key), str(value)) for key, value in given.items()]
    else:
        raise TaskParameterError(f"{place}: other must be text like a=b&c=d, or an object")
    for key, value in pairs:
        if not re.fullmatch(r"[\w.-]+", key.strip()) or re.search(r"[&;?\s]", value):
            raise TaskParameterError(f"{place}: the parameter {key[:40]!r} can't be put into a URL")
        yield key.strip(), value


def _text(place: str, given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int) or "\0" in str(value):
        raise TaskParameterError(f"{place}: {key} must be text")
    return str(value).strip() if key != "password" else str(value)
