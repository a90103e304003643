"""What can be set, its defaults, and where a value came from.

Read once, at start, into frozen dataclasses: the code's defaults, then the shipped `conf/*.toml`,
then the files of the folder that `ORCAFLOW_CONF_DIR` names, then environment variables
(`ORCAFLOW_MASTER__EXEC_THREADS`), then what a caller was given on its command line; the later
wins. All mistakes are reported together, each with its place, and no secret is ever repeated.

A *setting* is a field here with a default and a docstring; `conf/*.toml` is rendered from them
(`python -m common.config conf/`), and a test keeps it so. An empty `database.url` or
`zookeeper.hosts` means the embedded server, whose address is looked up when it is asked for.
pydantic is imported only while loading, because most commands must start without it;
pydantic-settings is not used, since it takes longer to import than the whole command line may take
to start.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from annotated_types import Ge, Gt, Le

from common.errors import ConfigurationError
from common.spark_config import (
    DEFAULT,
    PROFILES,
    SparkConfig,
    SparkProfile,
    conf_from,
    is_conf,
    profile_keys,
    profile_of,
    shown_conf,
)
from common.spark_config import mistakes as spark_mistakes

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MASK = "***"
_HOME = "~/.orcaflow"
ENVIRONMENT_PREFIX = "ORCAFLOW_"
CONF_DIR_VARIABLE = "ORCAFLOW_CONF_DIR"

_FORBID_UNKNOWN: dict[str, object] = {"extra": "forbid"}

Port = Annotated[int, Ge(1), Le(65535)]
PortOrFree = Annotated[int, Ge(0), Le(65535)]
Positive = Annotated[int, Ge(1)]
Seconds = Annotated[float, Gt(0), Le(86_400)]
WholeSeconds = Annotated[int, Ge(1), Le(86_400)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """PostgreSQL: where it is and how patient we are with it."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    url: str = field(default="", repr=False)
    """As postgresql+psycopg2://user:password@host:port/name; empty uses the embedded server."""
    pool_size: Positive = 5
    """Connections that a daemon keeps open."""
    statement_timeout_seconds: Seconds = 30
    """A statement that takes longer is given up: nothing that a loop asks for should."""
    connect_timeout_seconds: WholeSeconds = 5
    """A server that does not answer for so long counts as unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperConfig:
    """ZooKeeper: where it is and how soon a silent daemon counts as dead."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    hosts: str = ""
    """As host:port,host:port; empty uses the embedded server."""
    root: str = "/dolphinscheduler"
    """Everything that Orcaflow keeps in ZooKeeper is below this node."""
    session_timeout_seconds: Annotated[float, Ge(2), Le(86_400)] = 10
    """A daemon that is silent for so long counts as dead, and others take its work over."""
    connection_timeout_seconds: Seconds = 10
    """A start fails when ZooKeeper does not answer for so long."""
    digest: str = field(default="", repr=False)
    """user:password for ZooKeeper's digest scheme; empty does without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """What a row of `t_ds_command` may be."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    param_limit_bytes: Positive = 1_000_000
    """A longer command_param is refused unread, so that one row can't eat the master's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The PostgreSQL and the ZooKeeper that Orcaflow starts itself if none are named."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    postgres_port: PortOrFree = 0
    """Port of the embedded PostgreSQL; 0 takes a free one and keeps it while it is free."""
    zookeeper_port: PortOrFree = 0
    """Port of the embedded ZooKeeper; 0 takes a free one and keeps it while it is free."""
    zookeeper_tick_ms: Annotated[int, Ge(50)] = 500
    """ZooKeeper's own unit of time: half a second lets sessions be as short as a second."""
    zookeeper_heap_mb: Annotated[int, Ge(32)] = 128
    """Memory for ZooKeeper's Java heap; the queue of a hundred thousand tasks fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConfig:
    """A master daemon."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    host: str = "127.0.0.1"
    """The master's name to others: host:port is its identity in the tables and in ZooKeeper."""
    port: Port = 5678
    """Serves health and metrics; several masters on one host differ by it."""
    exec_threads: Positive = 100
    """Process instances that do work at the same time (not threads); sites set 1000 or more."""
    exec_task_num: Annotated[int, Ge(0)] = 0
    """Tasks of one process instance on workers at the same time; 0 is no limit but the slots."""
    fetch_size: Positive = 50
    """Commands taken at once: fewer spread the work better, more cost less."""
    heartbeat_interval_seconds: Seconds = 10
    """How often load and memory are told to others; being alive is told by the session."""
    command_poll_seconds: Seconds = 1.0
    """Commands are noticed at once; this finds the one whose notification was missed."""
    repair_interval_seconds: Seconds = 1.0
    """How often the queue and the timers are compared with the tables and put right."""
    failover_interval_seconds: Seconds = 2.0
    """How often owners in the tables are compared with living daemons."""
    hold_interval_seconds: Seconds = 2.0
    """How often delays, pools and waiting instances are looked at if nothing tells of them."""
    timeout_interval_seconds: Seconds = 1.0
    """How often it is looked for tasks and processes that take too long."""
    dependent_interval_seconds: Seconds = 5.0
    """How often DEPENDENT tasks look at their upstream if nothing tells of it."""
    schedule_interval_seconds: Seconds = 5.0
    """How often schedules are looked at if none is due and nothing tells of a change."""
    misfire_threshold_seconds: Annotated[float, Gt(0), Le(86_400)] = 60
    """A fire later than this is a misfire; what becomes of it is the schedule's policy."""
    complement_interval_seconds: Seconds = 1.0
    """How often complements that go on are looked at if nothing tells of a change."""
    stop_deadline_seconds: Annotated[float, Gt(0), Le(86_400)] = 13
    """A stop is over after this, whatever workers do; take worker.kill_grace_seconds + 8."""
    max_cpuload_avg: Annotated[float, Gt(0)] = 100
    """Above this load average no new command is taken."""
    reserved_memory_gb: Annotated[float, Ge(0)] = 0.1
    """With less available memory than this no new command is taken."""
    http_host: str = "127.0.0.1"
    """Where health and metrics are served; other than loopback shows them to the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A worker daemon."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    host: str = "127.0.0.1"
    """The worker's name to others: host:port is its identity in the tables and in ZooKeeper."""
    port: Port = 1234
    """Serves health and metrics; several workers on one host differ by it."""
    exec_threads: Positive = 100
    """Slots: tasks at the same time (not threads). Those of complements don't keep others out."""
    complement_threads: Annotated[int, Ge(0)] = 0
    """Tasks of complements at the same time, in slots that are empty; 0 is as many as slots."""
    complement_niceness: Annotated[int, Ge(0), Le(19)] = 5
    """How far complement tasks stand back for the processor: 0 not at all, 19 all the way."""
    groups: str = ""
    """Worker groups that it serves, as a,b; empty serves only tasks that ask for no group."""
    heartbeat_interval_seconds: Seconds = 10
    """How often load and memory are told to others; being alive is told by the session."""
    fetch_task_num: Positive = 20
    """Tasks claimed in one go: more cost less, fewer spread the work better."""
    max_cpuload_avg: Annotated[float, Gt(0)] = 100
    """Above this load average no new task is claimed."""
    reserved_memory_gb: Annotated[float, Ge(0)] = 0.1
    """With less available memory than this no new task is claimed."""
    kill_grace_seconds: Annotated[float, Ge(0), Le(86_400)] = 5
    """A stopped task has so long to end by itself after TERM before it is killed."""
    log_limit_bytes: Annotated[int, Ge(10_000)] = 100_000_000
    """A task's log is cut off here, so that one task can't fill the disk."""
    working_directory_policy: Literal["never", "on_success", "always"] = "on_success"
    """When an attempt's own directory is removed: never, on_success (failures are kept), always."""
    tenant_mode: Literal["single", "tenant"] = "single"
    """Whose account runs tasks: the worker's own (single) or the tenant's (tenant; needs sudo)."""
    python: str = ""
    """Interpreter for PYTHON and PYSPARK tasks; empty is the worker's own."""
    spark_home: str = ""
    """A Spark installation; empty uses the one inside the pyspark package."""
    env_path: str = ""
    """A shell file that is sourced before each SHELL task; empty sources nothing."""
    http_denied: str = "169.254.0.0/16,fe80::/10"
    """Networks that HTTP tasks may not reach, as a,b: here those with a cloud's own secrets."""
    data_dir: str = ""
    """Where tasks keep what they share; empty is $ORCAFLOW_HOME/data."""
    http_host: str = "127.0.0.1"
    """Where health and metrics are served; other than loopback shows them to the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set. Code gets the part it needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    home: Path = Path(_HOME)
    """Data, logs, pid files and tasks' directories are below it; usually set as ORCAFLOW_HOME."""
    time_zone: str = ""
    """Zone of schedules and of times in parameters that name none; empty is this computer's."""
    complement_uses_chosen_date: bool = True
    """Whether a complement run's business date is the chosen date itself, or the day before it."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severity that a daemon's log holds."""
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    zookeeper: ZookeeperConfig = field(default_factory=ZookeeperConfig)
    command: CommandConfig = field(default_factory=CommandConfig)
    embedded: EmbeddedConfig = field(default_factory=EmbeddedConfig)
    master: MasterConfig = field(default_factory=MasterConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)


FILES: Mapping[str, tuple[str, ...]] = {
    "common.toml": ("", "database", "zookeeper", "command", "embedded"),
    "master.toml": ("master",),
    "worker.toml": ("worker", "spark", f"{PROFILES}.{DEFAULT}"),
}
"""Which sections each file holds; the section without a name is the head of the file."""

DERIVED_KEYS = ("database.dsn", "database.url", "zookeeper.hosts")
"""Keys that `get` answers with what is to be used, be it configured or embedded."""


def load(*, overrides: Mapping[str, object] | None = None) -> Config:
    """The configuration in force, or one `ConfigurationError` that lists every mistake.

    `overrides` are options of a command line, by full key (`master.port`).
    """
    mistakes: list[str] = []
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for origin, layer in _layers(mistakes):
        for key, value, place in layer:
            values[key] = value
            origins[key] = place or origin
    for key, value in (overrides or {}).items():
        values[key] = value
        origins[key] = "command line"
    config = _validated(values, origins, mistakes)
    if mistakes or config is None:
        raise ConfigurationError("\n".join(["the configuration is wrong:", *_indented(mistakes)]))
    return config


def default_conf_dir() -> Path | None:
    """The shipped folder: beside the packages in a checkout, inside `orcaflow` if installed."""
    top = Path(__file__).resolve().parent.parent
    for folder in (top / "conf", top / "orcaflow" / "_conf"):
        if (folder / "common.toml").is_file():
            return folder
    return None


def effective(config: Config) -> list[tuple[str, str, str]]:
    """Every key with its value and origin, as they may be shown: secrets are masked."""
    return [
        (key, shown(key, value), config.origins.get(key, "default"))
        for key, value in _flattened(config)
    ]


def get(config: Config, key: str) -> str:
    """One value as it is, secrets included, for scripts; `KeyError` if there is no such key.

    `database.dsn` (for libpq), `database.url` (for SQLAlchemy) and `zookeeper.hosts` are those of
    the embedded servers if none are configured; `ServiceUnreachableError` if they are not running.
    """
    match key:
        case "database.dsn":
            return database_dsn(config)
        case "database.url":
            return database_url(config)
        case "zookeeper.hosts":
            return zookeeper_hosts(config)
        case _:
            known = dict(_flattened(config))
            map_key, _, setting = key.partition(".conf.")
            if setting and isinstance(conf := known.get(f"{map_key}.conf"), Mapping):
                return _text(conf[setting])
            return _text(known[key])


def database_url(config: Config) -> str:
    """For SQLAlchemy: the configured server, or the embedded one that is running."""
    if config.database.url:
        return re.sub(
            r"^postgres(ql)?(\+psycopg2)?://", "postgresql+psycopg2://", config.database.url
        )
    # Not needed by those who only read settings, and slow to import.
    from common.embedded.addresses import postgres_address

    return postgres_address(config.home).url


def database_dsn(config: Config) -> str:
    """For libpq, hence psql and psycopg2: the same server as `database_url`."""
    if config.database.url:
        return libpq_dsn(config.database.url)
    from common.embedded.addresses import postgres_address

    return postgres_address(config.home).dsn


def zookeeper_hosts(config: Config) -> str:
    """For clients: the configured ensemble, or the embedded server that is running."""
    if config.zookeeper.hosts:
        return config.zookeeper.hosts
    from common.embedded.addresses import zookeeper_address

    return zookeeper_address(config.home).hosts


def libpq_dsn(url: str) -> str:
    """An SQLAlchemy URL of PostgreSQL as libpq's `name=value` pairs; `ValueError` if it is none."""
    # Messages must not repeat the URL: its password is a secret, and a broken URL hides where it
    # is.
    form = "it must be like postgresql+psycopg2://user:password@host:port/name"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(form) from None
    if parts.scheme not in ("postgresql+psycopg2", "postgresql", "postgres"):
        raise ValueError(form)
    escapes = f"{form}; signs like @ : / ? # in the password are written as %40 %3A %2F %3F %23"
    try:
        port = parts.port
    except ValueError:
        # A password with such a sign in it ends up here, or as a part of the path.
        raise ValueError(escapes) from None
    if "@" in parts.path or "@" in parts.query or parts.fragment:
        raise ValueError(escapes)
    pairs = {
        "host": unquote(parts.hostname or ""),
        "port": str(port or ""),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "dbname": unquote(parts.path.lstrip("/")),
        **dict(parse_qsl(parts.query)),
    }
    if not pairs["dbname"]:
        raise ValueError(f"it names no database; {form}")
    return " ".join(f"{name}={_dsn_value(value)}" for name, value in pairs.items() if value)


def shown(key: str, value: object) -> str:
    """The value as a person may see it."""
    if isinstance(value, Mapping):
        return shown_conf(value)
    text = _text(value)
    if key == "database.url":
        masked = re.sub(r"(://[^:/?#]*:).*@", rf"\1{MASK}@", text)
        return re.sub(r"((?:^|[?&])(?:ssl)?password=)[^&]*", rf"\1{MASK}", masked)
    if key == "zookeeper.digest" and text:
        return MASK
    return text


def documented_settings(section: str) -> list[tuple[str, object, str]]:
    """Name, default and docstring of each setting of a section, in the order of the code."""
    owner = _section(section)
    why = _field_docstrings(type(owner))
    return [
        (item.name, getattr(owner, item.name), why[item.name])
        for item in fields(owner)
        if item.name in why
    ]


def rendered(file: str) -> str:
    """The text of a shipped file: every key, its default, and one line why."""
    lines = [
        f"# Settings of Orcaflow, {file}: each key with its default and why one would change it."
    ]
    lines += [
        "# Rendered from common/config.py; own values belong in a folder of your own, named by"
    ]
    lines += [f"# {CONF_DIR_VARIABLE}, or in variables like {ENVIRONMENT_PREFIX}DATABASE__URL."]
    for section in FILES[file]:
        if section:
            summary = (type(_section(section)).__doc__ or "").strip()
            lines += ["", f"# {summary}", f"[{section}]"]
        for name, default, why in documented_settings(section):
            lines += [*([] if section else [""]), f"# {why}", f"{name} = {_toml(default)}"]
    return "\n".join(lines) + "\n"


def _layers(
    mistakes: list[str],
) -> Iterator[tuple[str, list[tuple[str, object, str]]]]:
    """Each source, weakest first: its name, and its (key, value, place) triples."""
    folders = []
    shipped = default_conf_dir()
    if shipped is not None:
        folders.append(shipped)
    named = os.environ.get(CONF_DIR_VARIABLE)
    if named:
        folder = Path(named).expanduser()
        if folder.is_dir():
            folders.append(folder)
        else:
            mistakes.append(f"{CONF_DIR_VARIABLE}: {folder} is not a folder")
    for folder in folders:
        for file in FILES:
            path = folder / file
            if path.exists():
                yield str(path), _of_file(path, mistakes)
    yield "environment", _of_environment()


def _of_file(path: Path, mistakes: list[str]) -> list[tuple[str, object, str]]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        mistakes.append(f"{path}: {error}")
        return []
    found: list[tuple[str, object, str]] = []
    for key, value in _pairs(document):
        # All profiles are where the one is that is always there.
        section = f"{PROFILES}.{DEFAULT}" if profile_of(key) else key.rpartition(".")[0]
        home = next((file for file, own in FILES.items() if section in own), None)
        if home is not None and home != path.name and key in _known_keys({key: value}):
            mistakes.append(f"{path}: {key} belongs into {home}")
        else:
            found.append((key, value, ""))
    return found


def _of_environment() -> list[tuple[str, object, str]]:
    """The variables with our prefix that are settings.

    A name without a double underscore that is no setting may be something else of Orcaflow's (what
    a task is given, for example), so it is not a mistake.
    """
    found: list[tuple[str, object, str]] = []
    for variable, value in sorted(os.environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONF_DIR_VARIABLE:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if "." in key or key in _known_keys({}):
            found.append((key, value, variable))
    return found


def _validated(
    values: Mapping[str, object], origins: dict[str, str], mistakes: list[str]
) -> Config | None:
    from pydantic import TypeAdapter, ValidationError

    known = _known_keys(values)
    nested: dict[str, Any] = {"spark": {"profiles": {DEFAULT: {}}}}
    for key, value in values.items():
        if key not in known:
            mistakes.append(f"{origins[key]}: {key} is not a setting{_perhaps(key, known)}")
            continue
        if is_conf(key):
            try:
                value = conf_from(value)
            except ValueError as error:
                mistakes.append(f"{origins[key]}: {key}: {error}")
                continue
        if (profile := profile_of(key)) is not None:
            profiles = nested["spark"]["profiles"].setdefault(profile[0], {})
            profiles.update({profile[1]: value} if profile[1] else {})
            continue
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    home = nested.get("home")
    if isinstance(home, str):
        nested["home"] = Path(home or _HOME).expanduser().absolute()
    else:
        nested.setdefault("home", Path(_HOME).expanduser())
    for key, check in _CHECKS.items():
        if isinstance(value := values.get(key), str) and value:
            try:
                check(value)
            except ValueError as error:
                mistakes.append(f"{origins[key]}: {key}: {error}")
    mistakes.extend(f"{origins[key]}: {key}: {wrong}" for key, wrong in spark_mistakes(values))
    try:
        return TypeAdapter(Config).validate_python({**nested, "origins": origins})
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        mistakes.extend(_mistake(detail, origins) for detail in details)
        return None


def _mistake(detail: ErrorDetails, origins: Mapping[str, str]) -> str:
    """One line: where, which key, what is wrong; and the value, unless it is or holds a secret."""
    key = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"]
    value = "" if key in ("database.url", "zookeeper.digest") else f" (it is {detail['input']!r})"
    return f"{origins.get(key, 'default')}: {key}: {message[:1].lower()}{message[1:]}{value}"


def _check_hosts(hosts: str) -> None:
    for host in hosts.split(","):
        name, _, port = host.strip().rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{host.strip()!r} is not host:port")


def _check_root(root: str) -> None:
    # As ZooKeeper itself would refuse it, only later and less clearly.
    parts = root.split("/")
    if parts[0] or not all(parts[1:]) or {".", ".."} & set(parts) or not root.isprintable():
        raise ValueError(f"{root!r} is not the path of a node, as /dolphinscheduler is")


def _check_digest(digest: str) -> None:
    if ":" not in digest:
        raise ValueError("it must be user:password")


def _check_time_zone(name: str) -> None:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        text = f"{name!r} is no zone of the tz database, as Asia/Shanghai is"
        raise ValueError(text) from error


_CHECKS: Mapping[str, Callable[[str], object]] = {
    "time_zone": _check_time_zone,
    "database.url": libpq_dsn,
    "zookeeper.hosts": _check_hosts,
    "zookeeper.root": _check_root,
    "zookeeper.digest": _check_digest,
}
"""What a type can't say; each is given a value that is not empty. Here, so that all are tried."""


def _perhaps(key: str, known: frozenset[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _known_keys(values: Mapping[str, object]) -> frozenset[str]:
    """All keys there are, along with those of the profiles that are named here."""
    known = _closed_keys()
    for key in values:
        if (profile := profile_of(key)) is not None:
            known |= profile_keys(profile[0]) | ({key} if not profile[1] else frozenset())
    return known


@cache
def _closed_keys() -> frozenset[str]:
    return frozenset(key for key, _ in _flattened(Config()))


def _flattened(owner: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    for item in fields(owner):  # type: ignore[arg-type]  # Always one of the classes of settings.
        value = getattr(owner, item.name)
        key = f"{prefix}{item.name}"
        if key == PROFILES:
            for name in sorted(value):
                yield from _flattened(value[name], f"{key}.{name}.")
        elif is_dataclass(value):
            yield from _flattened(value, f"{key}.")
        elif key != "origins":
            yield key, value


def _pairs(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        key = f"{prefix}{name}"
        profile = profile_of(key)
        # A table without a key still makes a profile, and a free map is one value.
        whole = profile is not None and (profile[1] == "conf" or not (profile[1] or value))
        if isinstance(value, dict) and not whole:
            yield from _pairs(value, f"{key}.")
        else:
            yield key, value


def _section(name: str) -> Any:
    """The default of a section by its name; "" is the whole."""
    if name == f"{PROFILES}.{DEFAULT}":
        return SparkProfile()
    return getattr(Config(), name) if name else Config()


def _field_docstrings(owner: type) -> dict[str, str]:
    """The string below each field of a class; Python itself doesn't keep them."""
    import ast

    source = Path(str(sys.modules[owner.__module__].__file__)).read_text(encoding="utf-8")
    (found,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    )
    return {
        statement.target.id: str(following.value.value)
        for statement, following in zip(found.body, found.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }


def _dsn_value(value: str) -> str:
    if re.fullmatch(r"[\w./:@%+-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        import json

        return json.dumps(dict(value))
    return str(value)


def _toml(value: object) -> str:
    if isinstance(value, bool | int | float):
        return _text(value)
    import json

    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return json.dumps(str(value))


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def main() -> None:
    """Write the shipped files into the folder that is named."""
    folder = Path(sys.argv[1])
    for file in FILES:
        (folder / file).write_text(rendered(file), encoding="utf-8")


if __name__ == "__main__":
    main()
