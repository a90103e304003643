"""The checks of the doctor: each examines one thing, and names the cure.

A check never changes anything and never raises; what can't be looked at because something before
it failed is left out, so that a person sees the cause and not its echoes.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from common.clock import SystemClock
from common.config import Config, database_url, load
from common.datasource_keys import DatasourceKeys, key_file
from common.errors import ConfigurationError, SchedulerError, ServiceUnreachableError
from common.model.cluster import NodeKind
from common.model.database_needs import DatabaseFacts, faults_of
from common.spark_config import SparkConfig, addresses
from operations.texts import counted
from operations.yarn_probe import ManagerState, configuration_problem, probe

if TYPE_CHECKING:
    from common.store.connect import Engine

_LEAST_FREE_GB = 1.0
_SKEW_WARNING = timedelta(seconds=1)
_SKEW_FAILURE = timedelta(seconds=10)
_BACKLOG_AGE = timedelta(seconds=10)
_START = "bin/orcaflow-daemon.sh start standalone-server"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_QUOTAS: Final = frozenset(
    ("quota", "usrquota", "usrjquota", "uquota", "prjquota", "pquota", "grpquota", "grpjquota")
)
"""Options of mounts that limit accounts or folders."""
_clock = SystemClock()


class Result(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of one check; `cure` is None where nothing is wrong."""

    check: str
    result: Result
    detail: str
    cure: str | None = None


def findings() -> list[Finding]:
    """All checks, causes before their consequences."""
    found = [_python()]
    try:
        config = load()
    except ConfigurationError as error:
        return [*found, _failed("configuration", str(error), "mend the settings that are named")]
    found.append(_ok("configuration", f"ORCAFLOW_HOME is {config.home}"))
    found += [_java(), _spark_submit(config), _shell(config), _disk(config)]
    found += volume_findings(config)
    found += yarn_findings(config.spark, os.environ)
    found += database_findings(config)
    found += _zookeeper(config)
    found += firewall_findings(config)
    return found


def _python() -> Finding:
    # One that is too old could not have come so far.
    return _ok("python", f"{platform.python_version()} ({sys.executable})")


def _java() -> Finding:
    from common.embedded.zookeeper import find_java

    try:
        return _ok("java", str(find_java()))
    except ConfigurationError as error:
        detail, _, cure = str(error).partition(": ")
        return _failed("java", detail, cure)


def _spark_submit(config: Config) -> Finding:
    cure = "install the package pyspark into this environment, or name a Spark in worker.spark_home"
    if config.worker.spark_home:
        folder = Path(config.worker.spark_home).expanduser()
    else:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or not spec.submodule_search_locations:
            return _failed("spark-submit", "there is no Spark", cure)
        folder = Path(spec.submodule_search_locations[0])
    program = folder / "bin" / "spark-submit"
    if not os.access(program, os.X_OK):
        return _failed("spark-submit", f"{program} is not there or no program", cure)
    return _ok("spark-submit", str(program))


def yarn_findings(spark: SparkConfig, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether YARN answers, and whether `spark-submit` can find it."""
    urls = addresses(spark.yarn_urls)
    if not urls and not any(environment.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")):
        return
    problem = configuration_problem(environment)
    if problem:
        cure = (
            "set HADOOP_CONF_DIR to YARN's configuration in the environment of the worker daemons"
        )
        yield _warning("yarn configuration", f"spark-submit can't find YARN here: {problem}", cure)
    else:
        yield _ok("yarn configuration", "yarn-site.xml is there")
    if not urls:
        cure = "name the ResourceManagers: spark.yarn_urls of worker.toml"
        detail = "spark.yarn_urls is empty, so tasks on YARN in cluster mode are refused"
        yield _warning("yarn", detail, cure)
        return
    states = {url: probe(url) for url in urls}
    detail = ", ".join(f"{urlsplit(url).netloc} {state}" for url, state in states.items())
    if ManagerState.ACTIVE not in states.values():
        cure = "see whether YARN runs and spark.yarn_urls of worker.toml is right"
        yield _failed("yarn", f"no ResourceManager is active: {detail}", cure)
    elif {*states.values()} <= {ManagerState.ACTIVE, ManagerState.STANDBY}:
        yield _ok("yarn", detail)
    else:
        yield _warning("yarn", detail, "see whether spark.yarn_urls of worker.toml is right")


def _shell(config: Config) -> Finding:
    name = config.worker.shell
    path = shutil.which(name)
    if path is None:
        cure = "install it, or name another shell in worker.shell of worker.toml"
        return _failed("shell", f"there is no {name}, which runs SHELL tasks", cure)
    return _ok("shell", path)


def _disk(config: Config) -> Finding:
    folder = _existing(config.home)
    if not os.access(folder, os.W_OK | os.X_OK):
        return _failed(
            "disk",
            f"{folder} can't be written by this account",
            "choose another ORCAFLOW_HOME, or give the folder to this account",
        )
    free_gb = shutil.disk_usage(folder).free / 1024**3
    detail = f"{free_gb:.1f} GB are free at {folder}"
    if free_gb < _LEAST_FREE_GB:
        return _failed("disk", detail, "make room, or choose another ORCAFLOW_HOME")
    return _ok("disk", detail)


def volume_findings(config: Config, *, mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Yield whether a tenant's task can fill the volume of the embedded PostgreSQL."""
    if config.worker.tenant_mode != "tenant" or config.database.url:
        return
    number = _existing(config.home).stat().st_dev
    if _existing(config.data_dir).stat().st_dev != number:
        yield _ok("volumes", "tasks' data and the embedded PostgreSQL have different volumes")
        return
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    device = f"{os.major(number)}:{os.minor(number)}"
    options = {
        option
        for fields in map(str.split, lines)
        if fields[2:3] == [device]
        for option in fields[-1].split(",")
    }
    if any(each.partition("=")[0] in _QUOTAS for each in options):
        yield _ok("volumes", "the volume of the embedded PostgreSQL has quotas")
    else:
        yield _warning(
            "volumes",
            f"a task can fill the volume of {config.home}, which the embedded PostgreSQL shares"
            " without quotas",
            "set quotas of the tenants' accounts, or use another volume for worker.data_dir or a"
            " PostgreSQL of your own (docs/operations.md)",
        )


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest of its parents that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _secrets(config: Config, *, has_encrypted: bool) -> Finding:
    keys = DatasourceKeys(key_file(config))
    if keys.are_for_parameters():
        return _ok("secrets", f"secret parameters are encrypted by {keys.path}")
    if has_encrypted:
        return _failed(
            "secrets",
            f"secret parameters are encrypted, and {keys.path} is missing or of a former version",
            "copy the file from a host that has it",
        )
    return Finding(
        check="secrets",
        result=Result.WARNING,
        detail="secret parameters are stored in clear",
        cure="run `orcaflow secrets encrypt` once all hosts run this version",
    )


def database_findings(config: Config) -> Iterator[Finding]:
    """Yield what the doctor finds of the database, its schema and its rows."""
    from common.store.connect import engine, place_of, server_time
    from common.store.database_check import facts_of
    from common.store.people.ledger import list_commands
    from common.store.people.sealed_columns import has_encrypted_parameters
    from common.store.schema import REVISION, check

    try:
        url = database_url(config)
        made = engine(url, pool_size=1, connect_timeout=timedelta(seconds=3))
    except SchedulerError as error:
        yield _failed("postgresql", str(error), f"{_START}, or set database.url")
        return
    try:
        with made.connect() as db:
            server_time(db)  # The first question also pays for connecting.
            asked = _clock.now()
            server = server_time(db)
            answered = _clock.now()
        yield _ok("postgresql", place_of(url))
        yield _clock_finding(server - (asked + (answered - asked) / 2))
        yield from _fitness(facts_of(made))
        found = check(made)
        if found == REVISION:
            yield _ok("schema", f"revision {found}")
        else:
            yield Finding(
                check="schema",
                result=Result.WARNING,
                detail=f"revision {found} is newer than {REVISION} of this version, which works"
                " with it",
                cure="update Orcaflow here too",
            )
        with made.connect() as db:
            waiting = list_commands(db, outcomes=(), limit=1000)
        put_before = _clock.now() - _BACKLOG_AGE
        old = [each for each in waiting if each.start_time and each.start_time < put_before]
        if old:
            yield Finding(
                check="commands",
                result=Result.WARNING,
                detail=f"{counted(len(old), 'command')} waiting for longer than"
                f" {_BACKLOG_AGE.seconds} s",
                cure="start a master, or let it run more at once (master.exec_threads)",
            )
        else:
            yield _ok("commands", f"{len(waiting)} wait")
        with made.connect() as db:
            yield _secrets(config, has_encrypted=has_encrypted_parameters(db))
        yield schedules_finding(made, config)
        yield lost_tasks_finding(made)
    except ServiceUnreachableError as error:
        yield _failed("postgresql", str(error), f"start it ({_START}), or mend database.url")
    except ConfigurationError as error:
        # Connected, so it is the schema; else the server refuses this user or database.
        detail, _, cure = str(error).rpartition(": ")
        yield _failed("schema" if "schema" in detail else "postgresql", detail, cure)
    finally:
        made.dispose()


def _fitness(facts: DatabaseFacts) -> Iterator[Finding]:
    """Yield each reason why daemons can't use the database, or one finding that they can."""
    faults = faults_of(facts)
    for each in faults:
        yield _failed("database", each.problem, each.cure)
    if not faults:
        yield _ok(
            "database",
            f"PostgreSQL {facts.version} with {facts.encoding}; the role {facts.role} has the"
            " rights that it needs",
        )


def lost_tasks_finding(made: Engine) -> Finding:
    """The attempts that may run beside those that have taken their place."""
    from common.store.people.views import lost_task_instances

    with made.connect() as db:
        lost = lost_task_instances(db)
    if not lost:
        return _ok("lost tasks", "no process of a lost task is left")
    hosts = ", ".join(sorted({each.host or "?" for each in lost}))
    return Finding(
        check="lost tasks",
        result=Result.WARNING,
        detail=f"{counted(len(lost), 'task')} may still run beside the attempts that have taken"
        f" their place, left by {hosts}",
        cure="start a worker on that host, or end the processes there",
    )


def schedules_finding(made: Engine, config: Config) -> Finding:
    """The first ONLINE schedule that can't fire, or that all can."""
    from common.config import cluster_zone
    from common.store.people.schedule_views import schedules
    from operations.stored_schedules import blocker

    with made.connect() as db:
        found = schedules(db, online_only=True)
    for view in found:
        trouble = blocker(view, zone=cluster_zone(config))
        if trouble is not None:
            return Finding(
                check="schedules",
                result=Result.WARNING,
                detail=f"schedule {view.id}: {trouble}",
                cure=f"mend that, or orcaflow schedule offline {view.id}",
            )
    return _ok("schedules", f"{len(found)} of them ONLINE")


def _clock_finding(skew: timedelta) -> Finding:
    detail = f"{skew.total_seconds():+.3f} s between the database's clock and this computer's"
    cure = "let both computers take their time from the same servers (chrony, systemd-timesyncd)"
    if abs(skew) > _SKEW_FAILURE:
        return _failed("clock", detail, cure)
    if abs(skew) > _SKEW_WARNING:
        return Finding(check="clock", result=Result.WARNING, detail=detail, cure=cure)
    return _ok("clock", detail)


def _zookeeper(config: Config) -> Iterator[Finding]:
    from common.config import zookeeper_hosts
    from common.tls import worker_client_context
    from operations.health import health
    from operations.members import members, without_database

    try:
        found = members(config, zone=None, patience=timedelta(seconds=5))
    except SchedulerError as error:
        yield _failed("zookeeper", str(error), f"{_START}, or set zookeeper.hosts")
        return
    yield _ok("zookeeper", zookeeper_hosts(config))
    for kind, name in ((NodeKind.MASTER, "master"), (NodeKind.WORKER, "worker")):
        alive = [member for member in found if member.kind is kind]
        tls = worker_client_context(config) if kind is NodeKind.WORKER else None
        if not alive:
            yield Finding(
                check=f"{name}s",
                result=Result.WARNING,
                detail=f"there is no {name}, so nothing runs",
                cure=f"bin/orcaflow-daemon.sh start {name}-server",
            )
        for member in alive:
            host, _, port = member.address.rpartition(":")
            state, reason = health(host.strip("[]"), int(port), tls=tls)
            away = without_database(member.beat)
            if away is not None:
                yield without_database_finding(config, member.address, away)
            elif state == "ready":
                yield _ok(name, f"{member.address} is ready")
            else:
                yield Finding(
                    check=name,
                    result=Result.WARNING,
                    detail=f"{member.address} is {state}: {reason}",
                    cure=f"look into {config.home}/logs/{name}-server-{port}.log on its host",
                )


def without_database_finding(config: Config, address: str, away: str) -> Finding:
    """Return the finding about a master that ZooKeeper reaches and that lacks the database."""
    patience = config.master.database_patience_seconds
    return Finding(
        check="master",
        result=Result.WARNING,
        detail=f"{address} {away}; after {patience:g} s another master continues its runs, if one"
        " reaches PostgreSQL",
        cure="look for the reason between its host and PostgreSQL: network, firewall, pg_hba.conf",
    )


def firewall_findings(config: Config) -> Iterator[Finding]:
    """Yield whether tasks of tenants can block embedded servers or take ports of daemons."""
    from common.embedded.firewall import (
        CURE,
        NAMES,
        PORTS_CURE,
        PortGuard,
        firewall_of,
        running_servers,
    )

    if config.worker.tenant_mode != "tenant":
        return
    guard = PortGuard(config)
    if guard.ports_of_daemons():
        reason = guard.missing()
        if reason is None:
            yield _ok("firewall", "tasks of tenants can't answer at the ports of the cluster")
        else:
            yield Finding(
                check="firewall",
                result=Result.WARNING,
                detail=f"tasks of tenants can take the ports of daemons that are down: {reason}",
                cure=PORTS_CURE,
            )
    for server, port in running_servers(config):
        reason = firewall_of(config, server).missing(port)
        if reason is None:
            yield _ok("firewall", f"tasks of tenants can't block the embedded {NAMES[server]}")
        else:
            yield Finding(
                check="firewall",
                result=Result.WARNING,
                detail=f"tasks of tenants can block the embedded {NAMES[server]}: {reason}",
                cure=CURE,
            )


def _ok(check: str, detail: str) -> Finding:
    return Finding(check=check, result=Result.OK, detail=detail)


def _warning(check: str, detail: str, cure: str) -> Finding:
    return Finding(check=check, result=Result.WARNING, detail=detail, cure=cure)


def _failed(check: str, detail: str, cure: str) -> Finding:
    return Finding(check=check, result=Result.FAILED, detail=detail, cure=cure)
