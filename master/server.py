"""The master daemon: starts its parts in order, and stops them in reverse.

`python -m master.server --home DIR --port N`. It stays in the foreground; the launcher detaches it.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The imports leave no garbage, and looking for it takes a sixth of their time.
    gc.disable()

import argparse
import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from setproctitle import setproctitle

from common import config as configuration
from common.clock import Clock, SystemClock
from common.config import Config, cluster_zone
from common.datasource_keys import DatasourceKeyError, DatasourceKeys, key_file
from common.embedded.servers import postgres_of, zookeeper_of
from common.errors import SchedulerError, ServiceUnreachableError
from common.host import host_load
from common.model.cluster import NodeKind
from common.model.date_rules import DateRule
from common.model.streams.connections import properties_in
from common.model.streams.consumer import ConsumerPropertyError, allowed_environment
from common.model.streams.spec import SupervisorSpec
from common.port_freeing import make_room
from common.registry.config import registry_config
from common.registry.connect import connect as connect_registry
from common.registry.protocol import Registry
from common.runtime import log as logs
from common.runtime import metrics
from common.runtime.admission import Admission
from common.runtime.daemon import (
    engine_of,
    heartbeat_text,
    product_version,
    show_standing,
    standing_problem,
)
from common.runtime.health import HealthServer
from common.runtime.held import StarterGoneError, await_start
from common.runtime.outages import OutageTolerant
from common.runtime.pid_file import holding, pid_file
from common.runtime.service import Service, StopRequestedError
from common.store import schema
from common.store.connect import Engine
from common.store.connect import engine as make_engine
from common.store.listen import Notifications
from common.store.master.assignments import PostgresAssignmentStore
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.notify_queue import NotifyQueue
from common.store.master.runs import PostgresRunStore
from common.store.master.schedules import PostgresScheduleStore
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.retention import PostgresRetentionStore
from common.store.worker_modes import present_modes
from master.assembly import Master, Stores
from master.loops.broker_process import BrokerProcess
from master.loops.database_loop import DatabaseLoop
from master.loops.embedded_loop import EmbeddedLoop
from master.loops.hint_targets import HintTargets
from master.loops.kafka_offsets import KafkaOffsets
from master.loops.notice_loop import CHANNELS, NoticeLoop
from master.supervisors.health import State

NAME = "master-server"

log = logging.getLogger(__name__)

_SWITCH_INTERVAL_SECONDS = 0.0005
"""The switch interval: a thread with an answer waits no longer for one that computes."""
_EMBEDDED_WITHIN = timedelta(minutes=5)
"""The time for a restart of an embedded server. PostgreSQL recovers within it."""


def main(arguments: list[str] | None = None) -> int:
    """Run a master until it is stopped; return the exit code of the operator's interface."""
    parser = argparse.ArgumentParser(prog=NAME, description="Runs an Orcaflow master.")
    parser.add_argument("--home", type=Path, help="ORCAFLOW_HOME; default ~/.orcaflow")
    parser.add_argument("--host", help="the name that others know this master by")
    parser.add_argument("--port", type=int, help="serves health and metrics; part of its identity")
    parser.add_argument("--held", action="store_true", help="begin after a line of standard input")
    options = parser.parse_args(arguments)
    overrides: dict[str, object] = {
        "home": str(options.home.resolve()) if options.home else None,
        "master.host": options.host,
        "master.port": options.port,
    }
    try:
        if options.held:
            await_start()
        given = {key: value for key, value in overrides.items() if value is not None}
        return run(configuration.load(overrides=given))
    except (StopRequestedError, StarterGoneError):
        return 0
    except SchedulerError as error:
        log.error("daemon could not run", extra={"cause": str(error)})  # noqa: TRY400  # No trace.
        sys.stderr.write(f"{NAME}: {error}\n")
        return error.exit_code


def run(config: Config) -> int:
    """Start every part, wait for the end, and stop in reverse order."""
    settings = config.master
    logs.configure(home=config.home, name=NAME, port=settings.port, level=config.log_level)
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    setproctitle(f"orcaflow {NAME} {settings.host}:{settings.port}")
    metrics.tell_build(daemon=NAME, version=product_version())
    clock = SystemClock()
    zone = cluster_zone(config)
    with ExitStack() as stack:
        stack.enter_context(holding(pid_file(config.home, NAME, settings.port)))
        service = Service(clock=clock)
        make_room(settings.http_host, settings.port, home=config.home, server=f"the {NAME}")
        health = HealthServer(
            service, host=settings.http_host, port=settings.port, setting="master.port"
        )
        health.start()
        stack.callback(health.stop)
        engine = engine_of(config, application_name=f"{NAME}-{settings.port}")
        stack.callback(engine.dispose)
        service.reach(lambda: schema.check_as_daemon(engine))
        registry = service.reach(lambda: connect_registry(registry_config(config), clock=clock))
        stack.callback(registry.close)
        probe = _probe(config, f"{NAME}-{settings.port}-probe")
        stack.callback(probe.dispose)
        database = DatabaseLoop(NotifyQueue(probe).shorten, clock=clock)
        hints = HintTargets(registry.membership, lambda: present_modes(engine))
        commands = PostgresCommandStore(
            engine,
            param_limit_bytes=config.command.param_limit_bytes,
            hint_to=hints.target,
            most_sub_processes=settings.sub_process_runs,
        )
        supervisors = PostgresSupervisorStore(engine)
        brokers = BrokerProcess(clock=clock)
        stack.callback(brokers.close)
        master = Master(
            settings,
            zone=zone,
            date_rule=DateRule(config.complement_date_rule),
            clock=clock,
            registry=registry,
            stores=Stores(
                commands=commands,
                runs=PostgresRunStore(
                    engine, hint_to=hints.target, most_sub_processes=settings.sub_process_runs
                ),
                failover=PostgresFailoverStore(engine),
                holds=PostgresHoldStore(engine),
                timeouts=PostgresTimeoutStore(engine),
                dependents=PostgresDependentStore(engine),
                schedules=PostgresScheduleStore(engine),
                complements=PostgresComplementStore(engine),
                retention=PostgresRetentionStore(engine),
                supervisors=supervisors,
                assignments=PostgresAssignmentStore(engine),
            ),
            heartbeat_text=heartbeat_text(
                settings.host,
                created=clock.now(),
                zone=zone,
                clock=clock,
                database_away=database.shown,
            ),
            return_grace=timedelta(seconds=config.zookeeper.session_timeout_seconds),
            admitted=Admission(
                load=host_load,
                max_load_average=settings.max_cpuload_avg,
                reserved_memory_gb=settings.reserved_memory_gb,
                clock=clock,
            ),
            hints=hints,
            database=database,
            ask_stream=_offsets(config, brokers, supervisors).ask,
        )
        if master.supervisors is not None:
            stack.callback(master.supervisors.stop)
            keeper = master.supervisors
            metrics.watch_supervisors(
                lambda: keeper.figures, states=dict.fromkeys(state.basic.value for state in State)
            )
        url = configuration.database_url(config)
        notices = Notifications(url, CHANNELS, application_name=f"{NAME}-{settings.port}-listen")
        stack.callback(notices.close)
        # Once in the foreground, so that a start that can't succeed says so and ends.
        service.reach(master.heartbeat.join)
        stack.callback(_leave, registry)
        _add_loops(service, master, registry, notices, hints)
        for loop in _embedded_loops(config, clock):
            service.add(loop)
        metrics.runs.set_function(lambda: master.runs.active)
        metrics.command_backlog.set_function(lambda: _backlog(commands)[0])
        metrics.command_oldest_seconds.set_function(lambda: _backlog(commands)[1])
        show_standing(registry)
        code = service.run()
        if code == 0:
            # Only after a stop as planned: a crash of a loop is a loss that people have to know.
            _hand_over(master)
        return code


def _embedded_loops(config: Config, clock: Clock) -> Iterator[EmbeddedLoop]:
    """Yield the loops for the embedded servers that the settings use."""
    if not config.database.url:
        server = postgres_of(config, within=_EMBEDDED_WITHIN)
        yield EmbeddedLoop(server, title="PostgreSQL", clock=clock)
    if not config.zookeeper.hosts:
        yield EmbeddedLoop(
            zookeeper_of(config, within=_EMBEDDED_WITHIN), title="ZooKeeper", clock=clock
        )


def _probe(config: Config, name: str) -> Engine:
    """Return the engine of one connection that shows whether the database answers."""
    patience = timedelta(seconds=2)
    return make_engine(
        configuration.database_url(config),
        pool_size=1,
        max_overflow=0,
        application_name=name,
        connect_timeout=patience,
        statement_timeout=patience,
        lock_timeout=patience,
        by_statement=True,
    )


def _offsets(
    config: Config, brokers: BrokerProcess, store: PostgresSupervisorStore
) -> KafkaOffsets:
    keys = DatasourceKeys(key_file(config))

    def connection(spec: SupervisorSpec) -> dict[str, str]:
        name = spec.io.connection
        params = store.connection(spec.id, name)
        try:
            opened = None if params is None else keys.opened(params)
        except DatasourceKeyError as error:
            raise ConsumerPropertyError(f"connection {name!r:.100}: {error}") from None
        return properties_in(opened, name)

    return KafkaOffsets(
        brokers,
        environment=allowed_environment(config.stream_variables, os.environ),
        connection=connection,
    )


def _backlog(commands: PostgresCommandStore) -> tuple[float, float]:
    """Return the count of waiting commands and the age of the oldest in seconds; NaN if unknown."""
    try:
        count, age = commands.backlog()
    except ServiceUnreachableError:
        return math.nan, math.nan
    return count, age.total_seconds()


def _hand_over(master: Master) -> None:
    try:
        count = master.hand_over()
    except ServiceUnreachableError as error:
        # Other masters find the runs by their absent owner then, and raise an alert.
        log.warning("could not hand the runs over", extra={"cause": str(error)})
        return
    if count:
        log.info("runs were handed over", extra={"count": count})


def _leave(registry: Registry) -> None:
    try:
        registry.membership.leave()
    except ServiceUnreachableError as error:
        # The session expires by itself, and others take the runs over then.
        log.warning("could not leave properly", extra={"cause": str(error)})


def _add_loops(
    service: Service,
    master: Master,
    registry: Registry,
    notices: Notifications,
    hints: HintTargets,
) -> None:
    notice = NoticeLoop(
        notices,
        runs=master.runs,
        command_waiting=master.commands.heard,
        attempt_ended=master.attempt_ended,
        upstream_changed=master.dependents.on_end,
        hold_changed=lambda: master.wakes.wake(master.holds.name),
        schedule_changed=lambda: master.wakes.wake(master.schedules.name),
        complement_changed=lambda: master.wakes.wake(master.complements.name),
        modes_changed=hints.look_again,
        dataset_changed=master.dependents.on_dataset,
    )
    for loop in (*master.loops, notice):
        master.wakes.by_name[loop.name] = service.add(OutageTolerant(loop)).wake
    service.on_stop("notice", notice.stop)
    service.ready_if("zookeeper", lambda: standing_problem(registry))
    registry.membership.watch(
        NodeKind.MASTER, lambda: master.wakes.wake("heartbeat", "failover", "command")
    )
    registry.membership.watch(NodeKind.WORKER, lambda: master.wakes.wake("failover"))


if __name__ == "__main__":
    gc.freeze()  # Later collections pass over what the imports have made, which stays.
    gc.enable()
    sys.exit(main())
