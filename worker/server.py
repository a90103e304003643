"""The worker daemon: starts its parts in order, and stops them in reverse.

`python -m worker.server --home DIR --port N [--groups a,b] [--reserved] [--slots N]`. It stays
in the foreground; the launcher detaches it. SIGTERM stops the daemon and leaves its tasks running:
the next start at this address adopts them without a failover. SIGQUIT also stops the tasks.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The imports leave no garbage, and looking for it takes a sixth of their time.
    gc.disable()

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from setproctitle import setproctitle

from common import config as configuration
from common.clock import Clock, SystemClock
from common.config import Config, cluster_zone
from common.destinations import listed
from common.embedded.firewall import protect_running
from common.errors import SchedulerError, ServiceUnreachableError
from common.folders import PASSABLE, PRIVATE, USERS, closed_folder
from common.host import host_load
from common.log_access import PATH as LOG_PATH
from common.log_access import LogGuard, read_key
from common.log_access import key_file as log_key_file
from common.log_store.process import LogStoreProcess
from common.model.cluster import NodeKind, ip_number
from common.model.offers import names_of
from common.model.streams.consumer import allowed_environment
from common.page_access import PATH as PAGE_PATH
from common.parameter_keys import parameter_keys
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
from common.runtime.wakes import Wakes
from common.store import schema
from common.store.cluster import cluster_identity
from common.store.listen import Channel, Notifications, hint_channel
from common.store.worker.datasets import PostgresDatasetStore
from common.store.worker.ports import AttemptEnd
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from common.store.worker.topologies import PostgresTopologies
from common.store.worker.worker_groups import ensure_worker_groups
from common.tls import worker_server_context
from worker import tenants
from worker.assembly import Worker
from worker.attempts import Ended, Started
from worker.datasets.answering import DatasetAnswers
from worker.datasets.folders import DatasetFolders
from worker.datasets.order_cache import OrderCache
from worker.datasets.orders import OrderBook
from worker.datasets.server import DatasetServer
from worker.datasets.topologies import TopologyDesk, TopologyFolders
from worker.fitness import Fitness
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskSettings
from worker.log_server import LogServer
from worker.loops.beat_loop import BeatLoop
from worker.loops.claim_loop import ClaimLoop
from worker.loops.clean_loop import CleanLoop
from worker.loops.dataset_loop import DatasetLoop
from worker.loops.firewall_loop import FirewallLoop
from worker.loops.folder_loop import FolderLoop
from worker.loops.heartbeat import HeartbeatLoop
from worker.loops.hint_loop import HintLoop
from worker.loops.host_loop import HostLoop
from worker.loops.lease_loop import LeaseLoop
from worker.loops.log_store_loop import LogStoreLoop
from worker.loops.look_loop import LookLoop
from worker.loops.lost_loop import LostLoop
from worker.loops.order_loop import OrderLoop, TopologyOrderLoop
from worker.loops.port_guard_loop import PortGuardLoop
from worker.loops.sweep_loop import SweepLoop, configured
from worker.loops.tail_loop import TailLoop
from worker.loops.warden_loop import WardenLoop, warden_command
from worker.page_server import PageServer
from worker.processes.fork_servers import ForkServers
from worker.processes.limits import limits_of
from worker.processes.log_cutting import LogCutter
from worker.processes.lost_attempts import end_lost
from worker.processes.shim_link import Shim
from worker.processes.supervising import Supervisor
from worker.spark.host.folders import own_folder
from worker.spark.jvm.installation import home_of_spark
from worker.spark.managers.settings import ManagerSettings
from worker.spark.managers.tags import Tags
from worker.tasks.python import FRESH
from worker.workspace import attempt_folders, keep_apart

NAME = "worker-server"

log = logging.getLogger(__name__)

_KILL_LIMIT_SECONDS = 15.0

_SWITCH_INTERVAL_SECONDS = 0.0005
"""A thread that has something to start or report waits no longer for one that computes."""


def main(arguments: list[str] | None = None) -> int:
    """Run a worker until it is told to stop; the exit code of the operator's interface."""
    parser = argparse.ArgumentParser(prog=NAME, description="Runs an Orcaflow worker.")
    parser.add_argument("--home", type=Path, help="ORCAFLOW_HOME; default ~/.orcaflow")
    parser.add_argument("--host", help="the name that others know this worker by")
    parser.add_argument("--port", type=int, help="serves health and metrics; part of its identity")
    parser.add_argument("--groups", help="worker groups that it serves, as a,b")
    parser.add_argument(
        "--reserved", action=argparse.BooleanOptionalAction, help="take only tasks of its groups"
    )
    parser.add_argument("--slots", type=int, help="tasks at the same time")
    parser.add_argument("--held", action="store_true", help="begin after a line of standard input")
    options = parser.parse_args(arguments)
    overrides: dict[str, object] = {
        "home": str(options.home.resolve()) if options.home else None,
        "worker.host": options.host,
        "worker.port": options.port,
        "worker.groups": options.groups,
        "worker.reserved": options.reserved,
        "worker.exec_threads": options.slots,
    }
    try:
        if options.held:
            await_start()
        given = {key: value for key, value in overrides.items() if value is not None}
        return WorkerServer(configuration.load(overrides=given)).run()
    except (StopRequestedError, StarterGoneError):
        return 0
    except SchedulerError as error:
        log.error("daemon could not run", extra={"cause": str(error)})  # noqa: TRY400  # No trace.
        sys.stderr.write(f"{NAME}: {error}\n")
        return error.exit_code


class WorkerServer:
    """The composition root: everything that a worker's loops are given."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._settings = config.worker
        self._clock: Clock = SystemClock()
        self._zone = cluster_zone(config)
        self._kill_tasks = False
        self._wakes = Wakes()
        self._host: HostLoop
        self._fitness: Fitness
        self._tails: TailLoop
        self._log_store: LogStoreProcess | None = None
        self._stored: LogStoreLoop | None = None
        self._for_tenants = config.worker.tenant_mode == "tenant"
        self._running: Callable[[], frozenset[int]] = frozenset
        self._uid_of: Callable[[int], int | None] = lambda _: None
        self._cutter = LogCutter(
            limit_bytes=config.worker.log_limit_bytes,
            wake=lambda: self._wakes.wake(LogCutter.name),
        )
        self._warden = WardenLoop(
            warden_command(config),
            directory=Path(__file__).resolve().parents[1],
            environment=os.environ,
        )
        self._clean = CleanLoop(wake=lambda: self._wakes.wake(CleanLoop.name))

    def run(self) -> int:
        """Start every part, wait for the end, and stop in reverse order."""
        config, settings = self._config, self._settings
        tenants.check_mode(settings.tenant_mode)
        logs.configure(home=config.home, name=NAME, port=settings.port, level=config.log_level)
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        setproctitle(f"orcaflow {NAME} {settings.host}:{settings.port}")
        metrics.tell_build(daemon=NAME, version=product_version())
        log.info(
            "tenant mode",
            extra={"means": tenants.banner(settings.tenant_mode, settings.tenant_min_uid)},
        )
        with ExitStack() as stack:
            stack.enter_context(holding(pid_file(config.home, NAME, settings.port)))
            service = Service(clock=self._clock)
            make_room(settings.http_host, settings.port, home=config.home, server=f"the {NAME}")
            health = HealthServer(
                service,
                host=settings.http_host,
                port=settings.port,
                setting="worker.port",
                tls=worker_server_context(settings),
            )
            health.start()
            stack.callback(health.stop)
            engine = engine_of(config, application_name=f"{NAME}-{settings.port}")
            stack.callback(engine.dispose)
            service.reach(lambda: schema.check_as_daemon(engine))
            groups = names_of(settings.groups)
            group_ids = service.reach(lambda: ensure_worker_groups(engine, groups))
            store = PostgresTaskStore(engine, checks_creators=self._for_tenants)
            found = service.reach(lambda: cluster_identity(engine))
            tags = Tags(cluster=found.token, key=found.tag_key, unsealed_until=found.unsealed_until)
            cluster = found.token
            registry = service.reach(
                lambda: connect_registry(registry_config(config), clock=self._clock)
            )
            if config.log_store:
                self._log_store = LogStoreProcess(config.log_store, cluster=cluster)
                stack.callback(self._log_store.close)
            # Nothing runs here before the worker has joined, so nobody asks for orders before.
            made: list[Worker] = []
            orders = OrderBook(
                PostgresStreamTasks(engine),
                node=lambda: made[0].identity.node,
                clock=self._clock,
            )
            folder = config.topologies_dir
            topologies = TopologyDesk(
                PostgresTopologies(engine),
                TopologyFolders(folder, cluster=cluster, for_tenants=self._for_tenants),
                node=lambda: made[0].identity.node,
                clock=self._clock,
                beats=registry.worker_beats,
            )
            datasets = self._dataset_server(
                PostgresDatasetStore(engine), cluster, orders, topologies
            )
            stack.callback(datasets.close)
            supervisor, worker = self._parts(store, group_ids, tags, registry, datasets)
            made.append(worker)
            self._running, self._uid_of = supervisor.running, supervisor.uid_of
            service.add(datasets)
            service.on_stop(DatasetServer.name, datasets.stop)
            files = DatasetLoop(
                PostgresDatasetStore(engine),
                self._dataset_folders(cluster),
                remove=self._clean.remove,
                clock=self._clock,
                unused_days=settings.unused_segment_days,
            )
            service.add(OutageTolerant(files))
            if self._for_tenants:
                firewall = FirewallLoop(lambda: protect_running(config))
                # Before any task can start.
                firewall.run_once()
                service.add(firewall)
                service.add(PortGuardLoop(config.home, supervisor, self._host, clock=self._clock))
            # Once in the foreground: who may not join says so and ends, and what was left here is
            # adopted or killed before any claim is taken.
            service.reach(worker.heartbeat.run_once)
            self._add_loops(service, supervisor, worker, registry, store)
            orders.cache.wake = service.add(OutageTolerant(OrderLoop(orders))).wake
            topologies.cache.wake = service.add(OutageTolerant(TopologyOrderLoop(topologies))).wake
            topologies.cache.changed = datasets.answer_again
            service.add(BeatLoop(topologies, running=supervisor.running))
            caches = orders.cache, topologies.cache
            stack.callback(self._add_hints(service, worker, caches).close)
            guard = LogGuard(read_key(log_key_file(config), makes=True), cluster=cluster)
            logs_of_tasks = LogServer(
                config.home / "tasks" / "logs",
                guard=guard,
                clock=self._clock,
                runs_here=lambda task: task in supervisor.running(),
                wake=lambda: self._wakes.wake(LogServer.name),
            )
            self._wakes.by_name[LogServer.name] = service.add(logs_of_tasks).wake
            health.add(LOG_PATH, logs_of_tasks.answer)
            servers = own_folder(config.home, settings.port)
            pages = PageServer(supervisor, servers, guard=guard, clock=self._clock)
            health.add(PAGE_PATH, pages.answer)
            stack.callback(logs_of_tasks.close)
            self._wakes.by_name[TailLoop.name] = service.add(OutageTolerant(self._tails)).wake
            if self._stored is not None:
                loop = service.add(OutageTolerant(self._stored))
                self._wakes.by_name[LogStoreLoop.name] = loop.wake
            folders = FolderLoop(
                store,
                tasks=config.home / "tasks",
                cluster=cluster,
                clock=self._clock,
                removes_directories=settings.working_directory_policy != "never",
                drop_stored=None if self._log_store is None else self._log_store.drop,
            )
            service.add(OutageTolerant(folders))
            self._add_spark(service, store, tags)
            signal.signal(signal.SIGQUIT, self._on_quit(service))
            exit_code = service.run()
            self._finish(supervisor, worker, registry)
            return exit_code

    def _parts(
        self,
        store: PostgresTaskStore,
        group_ids: frozenset[int],
        tags: Tags,
        registry: Registry,
        datasets: DatasetServer,
    ) -> tuple[Supervisor, Worker]:
        config, settings = self._config, self._settings
        tasks = config.home / "tasks"
        for_tenants = self._for_tenants
        if settings.data_dir:
            data_dir = Path(settings.data_dir)  # Its modes are its owner's business.
            data_dir.mkdir(parents=True, exist_ok=True)
        else:
            data_dir = closed_folder(
                config.home / "data", mode=PASSABLE if for_tenants else PRIVATE
            )
        # Before any other process is started, which would keep the cgroup from being divided.
        limits = limits_of(settings)
        seen = seen_by_tasks(os.environ)
        host = self._host = HostLoop(
            config.spark,
            home=config.home,
            port=settings.port,
            python=settings.python or sys.executable,
            spark_home=home_of_spark(settings.spark_home, seen),
            environment=seen,
            data_dir=data_dir,
            for_tenants=for_tenants,
            wake=lambda: self._wakes.wake(HostLoop.name),
        )
        launcher = Launcher(
            home=config.home,
            data_dir=data_dir,
            zone=self._zone,
            tenant_mode=settings.tenant_mode,
            tenant_min_uid=settings.tenant_min_uid,
            settings=TaskSettings(
                python=settings.python,
                spark_home=settings.spark_home,
                env_path=settings.env_path,
                shell=settings.shell,
                environment=seen,
                stream_environment=allowed_environment(config.stream_variables, os.environ),
                splices_scripts=settings.shell_parameters == "spliced",
                http_allowed=listed(settings.http_allowed),
                http_denied=listed(settings.http_denied),
                spark=config.spark,
                spark_socket=host.address,
                data_dir=str(data_dir),
                cluster=tags.cluster,
                tags=tags,
            ),
            wants_host=host.want,
            opened=parameter_keys(config).of_datasources.opened,
            trouble=parameter_keys(config).trouble,
            asks_by=datasets.variables,
        )
        self._tails = TailLoop(
            store, logs=tasks / "logs", wake=lambda: self._wakes.wake(TailLoop.name)
        )
        made: list[Supervisor] = []
        if self._log_store is not None:
            self._stored = LogStoreLoop(
                self._log_store,
                store,
                logs=tasks / "logs",
                marks=tasks / "unstored" / str(settings.port),
                running=lambda: made[0].running(),  # noqa: PLW0108  # It is made below.
                clock=self._clock,
                wake=lambda: self._wakes.wake(LogStoreLoop.name),
            )
        keep_apart(closed_folder(tasks, mode=PASSABLE))
        closed_folder(tasks / "records")
        closed_folder(config.home / "resources" / USERS)
        fitness = self._fitness = Fitness(
            (tasks, data_dir), reserved_gb=settings.reserved_disk_gb, clock=self._clock
        )

        def make_attempts(ended: Ended, started: Started) -> Supervisor:
            forks = settings.python_profile != FRESH
            supervisor = Supervisor(
                prepare=launcher.prepare,
                records=tasks / "records" / str(settings.port),
                ended=ended,
                started=started,
                clock=self._clock,
                kill_grace=timedelta(seconds=settings.kill_grace_seconds),
                cutter=self._cutter,
                directory_policy=settings.working_directory_policy,
                remove_directory=self._clean.remove,
                complement_niceness=settings.complement_niceness,
                adopts_orphans=True,
                limits=limits,
                blame=fitness.blame,
                fork_servers=ForkServers(environment=seen, clock=self._clock) if forks else None,
                shim=Shim(environment=seen, clock=self._clock),
                settled=None if self._stored is None else self._stored.settled,
                asks_by=datasets.variables,
            )
            made.append(supervisor)
            return supervisor

        admission = Admission(
            load=host_load,
            max_load_average=settings.max_cpuload_avg,
            reserved_memory_gb=settings.reserved_memory_gb,
            clock=self._clock,
        )
        worker = Worker(
            settings,
            clock=self._clock,
            registry=registry,
            store=store,
            make_attempts=make_attempts,
            folders=attempt_folders(tasks),
            heartbeat_text=lambda status: heartbeat_text(
                settings.host,
                created=self._clock.now(),
                zone=self._zone,
                clock=self._clock,
                status=status,
            ),
            group_ids=lambda: group_ids,
            version=product_version(),
            ip=_ip(settings.host),
            admitted=lambda: fitness() and admission(),
            reported=self._reported,
        )
        if self._stored is not None:
            self._stored.left_behind(made[0].leftovers())
        return made[0], worker

    def _dataset_folders(self, cluster: str) -> DatasetFolders:
        root = self._config.datasets_dir
        return DatasetFolders(root, cluster=cluster, for_tenants=self._for_tenants)

    def _dataset_server(
        self,
        store: PostgresDatasetStore,
        cluster: str,
        orders: OrderBook,
        topologies: TopologyDesk,
    ) -> DatasetServer:
        answers = DatasetAnswers(
            store,
            self._dataset_folders(cluster),
            orders=orders,
            topologies=topologies,
            remove=self._clean.remove,
            environment=allowed_environment(self._config.stream_variables, os.environ),
            opened=parameter_keys(self._config).of_datasources.opened,
        )
        return DatasetServer(
            self._config.home / "run" / f"datasets-{self._settings.port}",
            key=read_key(log_key_file(self._config), makes=True),
            answer=answers.answer,
            runs_here=lambda task: task in self._running(),
            uid_of=lambda task: self._uid_of(task),  # noqa: PLW0108  # Set later.
            clock=self._clock,
            for_tenants=self._for_tenants,
        )

    def _reported(self, ends: Sequence[AttemptEnd]) -> None:
        if self._stored is not None:
            self._stored.reported(ends)
        self._tails.reported(ends)

    def _add_loops(
        self,
        service: Service,
        supervisor: Supervisor,
        worker: Worker,
        registry: Registry,
        store: PostgresTaskStore,
    ) -> None:
        # Started first and stopped last: the others talk to it.
        service.add(supervisor)
        self._wakes.by_name[LogCutter.name] = service.add(self._cutter).wake
        self._wakes.by_name[CleanLoop.name] = service.add(self._clean).wake
        for loop in worker.loops:
            worker.wakes.by_name[loop.name] = service.add(OutageTolerant(loop)).wake
        service.ready_if("zookeeper", lambda: standing_problem(registry))
        service.ready_if("host", self._fitness.problem)
        lost = LostLoop(
            store=store,
            host=self._settings.host,
            attempts=worker.attempts,
            end_lost=end_lost,
        )
        service.add(OutageTolerant(lost))
        service.add(self._warden)
        registry.membership.watch(
            NodeKind.WORKER,
            lambda: worker.wakes.wake(
                HeartbeatLoop.name, LeaseLoop.name, LookLoop.name, ClaimLoop.name
            ),
        )
        show_standing(registry)
        slots = self._settings.exec_threads
        count = metrics.slots.labels

        def live() -> int:
            return len(supervisor.running() - supervisor.yielding())

        # A complement's are not in the way of others: `free` is what these may still take.
        count(state="used").set_function(live)
        count(state="complement").set_function(lambda: len(supervisor.yielding()))
        count(state="free").set_function(lambda: slots - live())

    def _add_hints(
        self, service: Service, worker: Worker, caches: Iterable[OrderCache[Any]]
    ) -> Notifications:
        settings = self._settings
        source = Notifications(
            configuration.database_url(self._config),
            (hint_channel(f"{settings.host}:{settings.port}"), Channel.WORKER),
            application_name=f"{NAME}-{settings.port}-listen",
        )
        hints = HintLoop(
            source,
            hinted=worker.claims.hinted,
            modes_changed=worker.modes_changed,
            ordered=lambda: [each.wake() for each in caches],
        )
        service.add(OutageTolerant(hints))
        service.on_stop(HintLoop.name, hints.stop)
        return source

    def _add_spark(self, service: Service, store: PostgresTaskStore, tags: Tags) -> None:
        self._wakes.by_name[HostLoop.name] = service.add(self._host).wake
        managers = ManagerSettings.of(self._config.spark)
        if not managers.is_empty:
            known = configured(managers)
            sweep = SweepLoop(store=store, managers=known, tags=tags, clock=self._clock)
            service.add(OutageTolerant(sweep))

    def _on_quit(self, service: Service) -> Callable[[int, FrameType | None], None]:
        def on_quit(_number: int, _frame: FrameType | None) -> None:
            self._kill_tasks = True
            service.request_stop()

        return on_quit

    def _finish(self, supervisor: Supervisor, worker: Worker, registry: Registry) -> None:
        """All loops have stopped. Tell what is known, and leave so that nothing is taken twice."""
        if self._kill_tasks:
            supervisor.kill_all()
            limit = self._clock.monotonic() + _KILL_LIMIT_SECONDS
            while supervisor.running() and self._clock.monotonic() < limit:
                supervisor.run_once()
                self._cutter.run_once()
        try:
            worker.claims.tidy()
            worker.reporter.write_all()
            if supervisor.running() or worker.reporter.unreported():
                # The session is left to expire: until then nobody takes these attempts for lost,
                # and a restarted worker goes on with them.
                log.info("tasks left running", extra={"attempts": len(supervisor.running())})
            else:
                self._host.stop_host()
                registry.membership.leave()
                registry.close()
        except ServiceUnreachableError as error:
            log.warning("could not leave properly", extra={"cause": str(error)})
        left = bool(supervisor.running() or worker.reporter.unreported())
        self._warden.close(nothing_left=not left)
        self._host.close()
        self._clean.remove_all()
        supervisor.close()


def _ip(settings_host: str) -> int | None:
    """The number that groups of addresses know this host by; None for a name."""
    try:
        return ip_number(settings_host)
    except ValueError:
        return None


if __name__ == "__main__":
    gc.freeze()  # Later collections pass over what the imports have made, which stays.
    gc.enable()
    sys.exit(main())
