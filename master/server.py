"""The master daemon: starts its parts in order, and stops them in reverse.

`python -m master.server --home DIR --port N`. It stays in the foreground; the launcher detaches it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from zoneinfo import ZoneInfo

from setproctitle import setproctitle
from tzlocal import get_localzone

from common import config as configuration
from common import log as logs
from common import metrics
from common.clock import SystemClock
from common.config import Config, MasterConfig
from common.errors import SchedulerError
from common.host import host_load
from common.model.cluster import Heartbeat, NodeKind
from common.patience import Patient
from common.pid_file import holding, pid_file
from common.registry.config import RegistryConfig
from common.registry.connect import connect as connect_registry
from common.registry.protocol import Registry, Standing
from common.service import HealthServer, Service
from common.store import connect, schema
from common.store.commands import PostgresCommandStore
from common.store.failover import PostgresFailoverStore
from common.store.listen import Notifications
from common.store.runs import PostgresRunStore
from master.assembly import Master, Stores
from master.notice_loop import CHANNELS, NoticeLoop

NAME = "master-server"

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run a master until it is told to stop; the exit code of the operator's interface."""
    parser = argparse.ArgumentParser(prog=NAME, description="Runs an Orcaflow master.")
    parser.add_argument("--home", type=Path, help="ORCAFLOW_HOME; default ~/.orcaflow")
    parser.add_argument("--host", help="the name that others know this master by")
    parser.add_argument("--port", type=int, help="serves health and metrics; part of its identity")
    options = parser.parse_args(arguments)
    overrides: dict[str, object] = {
        "home": str(options.home.resolve()) if options.home else None,
        "master.host": options.host,
        "master.port": options.port,
    }
    try:
        given = {key: value for key, value in overrides.items() if value is not None}
        return run(configuration.load(overrides=given))
    except SchedulerError as error:
        log.error("daemon could not run", extra={"cause": str(error)})  # noqa: TRY400  # No trace.
        sys.stderr.write(f"{NAME}: {error}\n")
        return error.exit_code


def run(config: Config) -> int:
    """Start every part, wait for the end, and stop in reverse order."""
    settings = config.master
    logs.configure(home=config.home, name=NAME, port=settings.port, level=config.log_level)
    setproctitle(f"orcaflow {NAME} {settings.host}:{settings.port}")
    metrics.tell_build(daemon=NAME, version=version("orcaflow"))
    clock = SystemClock()
    zone = ZoneInfo(config.time_zone) if config.time_zone else get_localzone()
    with ExitStack() as stack:
        stack.enter_context(holding(pid_file(config.home, NAME, settings.port)))
        service = Service(clock=clock)
        health = HealthServer(
            service, host=settings.http_host, port=settings.port, setting="master.port"
        )
        health.start()
        stack.callback(health.stop)
        url = configuration.database_url(config)
        engine = connect.engine(
            url,
            pool_size=config.database.pool_size,
            application_name=f"{NAME}-{settings.port}",
            connect_timeout=timedelta(seconds=config.database.connect_timeout_seconds),
            statement_timeout=timedelta(seconds=config.database.statement_timeout_seconds),
        )
        stack.callback(engine.dispose)
        schema.check(engine)
        registry = connect_registry(_registry_config(config), clock=clock)
        stack.callback(registry.close)
        master = Master(
            settings,
            zone=zone,
            clock=clock,
            registry=registry,
            stores=Stores(
                commands=PostgresCommandStore(
                    engine, param_limit_bytes=config.command.param_limit_bytes
                ),
                runs=PostgresRunStore(engine),
                failover=PostgresFailoverStore(engine),
            ),
            heartbeat_text=_heartbeat_text(settings.host, clock.now(), zone),
            admitted=_admitted(settings),
        )
        notices = Notifications(url, CHANNELS, application_name=f"{NAME}-{settings.port}-listen")
        stack.callback(notices.close)
        # Once in the foreground, so that a start that can't succeed says so and ends.
        master.heartbeat.run_once()
        stack.callback(registry.membership.leave)
        _add_loops(service, master, registry, notices)
        return service.run()


def _add_loops(
    service: Service, master: Master, registry: Registry, notices: Notifications
) -> None:
    notice = NoticeLoop(
        notices,
        runs=master.runs,
        command_waiting=lambda: master.wakes.wake(master.commands.name),
    )
    for loop in (*master.loops, notice):
        master.wakes.by_name[loop.name] = service.add(Patient(loop)).wake
    service.on_stop("notice", notice.stop)
    metrics.runs.set_function(lambda: master.runs.active)
    service.ready_if("zookeeper", lambda: _standing_problem(registry))
    registry.membership.watch(
        NodeKind.MASTER, lambda: master.wakes.wake("heartbeat", "failover", "command")
    )
    registry.membership.watch(NodeKind.WORKER, lambda: master.wakes.wake("failover"))


def _standing_problem(registry: Registry) -> str | None:
    standing = registry.membership.standing()
    return None if standing is Standing.TRUSTED else f"the session is {standing.value}"


def _registry_config(config: Config) -> RegistryConfig:
    return RegistryConfig(
        hosts=configuration.zookeeper_hosts(config),
        root=config.zookeeper.root,
        session_timeout=timedelta(seconds=config.zookeeper.session_timeout_seconds),
        connection_timeout=timedelta(seconds=config.zookeeper.connection_timeout_seconds),
        digest=config.zookeeper.digest,
    )


def _heartbeat_text(host: str, created: datetime, zone: ZoneInfo) -> Callable[[], str]:
    clock = SystemClock()

    def text() -> str:
        load = host_load()
        return Heartbeat(
            host=host,
            pid=os.getpid(),
            cpu=load.cpu_usage,
            memory=load.memory_usage,
            load=load.load_average,
            created=created.astimezone(zone),
            beaten=clock.now().astimezone(zone),
        ).text()

    return text


def _admitted(settings: MasterConfig) -> Callable[[], bool]:
    """Whether the host has room for more (§5.0); equality is room."""

    def admitted() -> bool:
        load = host_load()
        return (
            load.load_average <= settings.max_cpuload_avg
            and load.available_memory_gb >= settings.reserved_memory_gb
        )

    return admitted


if __name__ == "__main__":
    sys.exit(main())
