"""Starts, stops and finds the daemons of one `$ORCAFLOW_HOME` on this computer.

Masters and workers are started as programs by module name, each detached in a session of its own;
they are never imported here. A daemon *is ready* when its `/readyz` says so. A pid file only counts
together with the start time of its process, and signals go to the very process that was looked at.

Stopping is graceful: masters first and workers after them, so that no master sees a worker go and
fails its tasks over; workers are started before masters for the same reason.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

from common.clock import SystemClock
from common.config import (
    CONF_DIR_VARIABLE,
    ApiConfig,
    Config,
    MasterConfig,
    WorkerConfig,
    cluster_zone,
)
from common.config.zone import record_zone
from common.embedded.firewall import PortGuard
from common.embedded.process import exclusive
from common.errors import ConfigurationError, SchedulerError, ServiceUnreachableError
from common.folders import closed_folder
from common.port_holders import holder
from common.ports import is_left_free, is_port_free
from common.runtime.pid_file import pid_file, running_pid
from operations.daemon_log import log_tail
from operations.daemon_options import Options, keep_options, kept_options
from operations.daemon_process import Spawn, await_end, let_begin, since, spawned
from operations.daemon_status import DaemonStatus, Started
from operations.embedded_servers import EmbeddedServers
from operations.free_ports import FreePorts
from operations.freed_ports import freed
from operations.health import WAITING, health
from operations.kept_settings import conf_dir_of
from operations.ports import port_in_use

_QUIT_PATIENCE = timedelta(seconds=20)
_PROBE_INTERVAL = timedelta(milliseconds=30)
_PID_FILE = re.compile(r"(master-server|worker-server|api-server)-(\d{1,5})\.pid")
_clock = SystemClock()

_launched: list[subprocess.Popen[bytes]] = []
"""Daemons that this very process started: kept, so that the next start reaps those that ended."""


class Kind(StrEnum):
    """The daemons that are Orcaflow's own."""

    MASTER = "master-server"
    WORKER = "worker-server"
    API = "api-server"

    @property
    def module(self) -> str:
        """The module that `python -m` runs."""
        return f"{self.value.removesuffix('-server')}.server"


class DaemonStartError(SchedulerError):
    """A daemon did not become ready; the text says why, with the end of its log."""


class DaemonWaitsError(ServiceUnreachableError):
    """A daemon runs and waits for a server; it begins by itself. The text names the server."""


class Cluster:
    """The daemons of one home."""

    def __init__(
        self,
        config: Config,
        *,
        within: timedelta = timedelta(seconds=60),
        spawn: Spawn = spawned,
    ) -> None:
        self.config = config
        self.home = config.home
        self._within = within
        self._spawn = spawn
        self._servers = EmbeddedServers(config, within=within)
        self._guard = PortGuard(config)

    # Starting

    def start_standalone(
        self,
        *,
        masters: int = 1,
        workers: int = 1,
        apis: int = 0,
        free_ports: bool = False,
        options: Options | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> list[Started]:
        """Servers, schema, workers, masters and the api-server; returns when all are ready.

        With `free_ports` a daemon has the port that was chosen first for this home, while it is
        free.

        What runs already is left alone and counts. If anything fails, what this call has started is
        stopped again. An api-server whose port is taken is left out, which `notify` is told.
        """
        free = self.free_ports(notify) if free_ports else None
        wanted = [
            *self._wanted(Kind.WORKER, workers, free, options or Options()),
            *self._wanted(Kind.MASTER, masters, free, Options()),
        ]
        for kind, port, own in self._wanted(Kind.API, apis, free, Options()):
            if _is_there(self.home, kind, port) or self._is_free(kind, port, notify):
                wanted.append((kind, port, own))
            else:
                # Work goes on without it, and other clusters of this computer have one too.
                notify(f"no {kind} is started: port {port} is taken{holder(port)} (set api.port)")
        # A task that has taken one of these ports then gets no client while this fails.
        self._guard.protect(*(port for _, port, _ in wanted))
        for kind, port, _ in wanted:
            # Before anything is started. One that runs has its port.
            if not (_is_there(self.home, kind, port) or self._is_free(kind, port, notify)):
                raise port_in_use(port, daemon=kind, with_others=True)
        servers: list[Callable[[], Started | None]] = [partial(self._start_database, notify)]
        if self.config.database.url:
            notify("database.url names a server, so none is started")
        if not self.config.zookeeper.hosts:
            servers.append(partial(self.start_zookeeper, notify=notify))
        else:
            notify("zookeeper.hosts names a server, so none is started")
        pending: list[Future[Started | None]] = []
        try:
            with ThreadPoolExecutor(max_workers=len(servers) + len(wanted)) as pool:
                pending += [pool.submit(start) for start in servers]
                # Daemons are imported beside the start of the servers, and begin after it.
                await_servers = partial(_await_all, list(pending))
                pending += [
                    pool.submit(self.start_daemon, *each, after=await_servers) for each in wanted
                ]
            # The first that failed is the cause of what failed after it.
            _await_all(pending)
        except BaseException:
            self._take_back([each.result() for each in pending if each.exception() is None])
            raise
        return [started for each in pending if (started := each.result()) is not None]

    def _start_database(self, notify: Callable[[str], None]) -> Started | None:
        """The database at the schema of this version; its server, if that is the embedded one."""
        started = None if self.config.database.url else self.start_postgres(notify=notify)
        try:
            self.upgrade_schema()
        except BaseException:
            self._take_back([started])
            raise
        return started

    def start_postgres(
        self, port: int | None = None, *, notify: Callable[[str], None] = lambda _: None
    ) -> Started:
        """The embedded PostgreSQL, at `port` or where the settings say."""
        return self._servers.start_postgres(port, notify)

    def start_zookeeper(
        self, port: int | None = None, *, notify: Callable[[str], None] = lambda _: None
    ) -> Started:
        """The embedded ZooKeeper, at `port` or where the settings say."""
        return self._servers.start_zookeeper(port, notify)

    def upgrade_schema(self) -> list[str]:
        """Upgrade the database to this version's schema, and create the key of a new one."""
        from common.config import database_url
        from common.store.connect import engine
        from operations.database import bring_up

        made = engine(database_url(self.config), pool_size=1, application_name="orcaflow-upgrade")
        try:
            return bring_up(self.config, made)
        finally:
            made.dispose()

    def start_daemon(
        self,
        kind: Kind,
        port: int,
        options: Options | None = None,
        *,
        after: Callable[[], None] = lambda: None,
    ) -> Started:
        """A master or worker at this port; returns when it is ready, or says why it is not.

        `after` runs while the daemon imports, at most twice. The daemon starts after it returns.
        """
        with exclusive(self.home, f"{kind}-{port}"):
            file = pid_file(self.home, kind, port)
            pid = running_pid(file)
            if pid is not None:
                after()
                # One that was just ending, such as after a kill, makes room for another.
                with suppress(_EndedError):
                    self._await_ready(kind, port, pid, lambda: _is_there(self.home, kind, port))
                    return self._as_started(kind, port, pid, already=True)
            self._guard.protect(port)
            # One that stopped by itself has taken its pid file away.
            left = file.exists() and is_left_free(port)
            if not (left or self._is_free(kind, port)):
                raise port_in_use(port, daemon=kind, with_others=False)
            process = self._launch(kind, port, options or Options())
            # The daemon is not this process's business any more once it is ready.
            try:
                after()
                let_begin(process)
                self._await_ready(kind, port, process.pid, lambda: process.poll() is None)
            except BaseException as error:
                if isinstance(error, DaemonWaitsError):
                    raise
                code = process.poll()
                if code is None:
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=10)
                    if process.poll() is None:
                        process.kill()
                        process.wait()
                if isinstance(error, _EndedError):
                    raise self._why_ended(kind, port, code) from None
                raise
            return self._as_started(kind, port, process.pid, already=False)

    def _is_free(
        self, kind: Kind, port: int, notify: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Return True if the port is free, if need be after the end of a task run that held it."""
        if is_port_free(port):
            return True
        done = freed(self.config, port, server=f"the {kind}")
        if done is None:
            return False
        notify(done)
        return True

    def free_ports(self, notify: Callable[[str], None]) -> FreePorts:
        """Return the choice of free ports for this home's daemons."""

        def is_free(kind: str, port: int) -> bool:
            return self._is_free(Kind(kind), port, notify)

        return FreePorts(self.home, notify=notify, is_free=is_free)

    def running_ports(self, kind: Kind) -> list[int]:
        """Return the ports of the daemons of a kind that run."""
        return [port for other, port, _ in self.running() if other is kind]

    def _wanted(
        self, kind: Kind, count: int, free: FreePorts | None, options: Options
    ) -> Iterator[tuple[Kind, int, Options]]:
        """Yield the daemons of a kind that are wanted, running ones first."""
        running = self.running_ports(kind)
        yield from ((kind, port, options) for port in running[:count])
        missing = count - len(running)
        port = self.configured_port(kind)
        while missing > 0:
            if free is not None:
                port = free.port_of(kind, running)
            if port not in running:
                running.append(port)
                yield kind, port, options
                missing -= 1
            port += 1

    def _launch(self, kind: Kind, port: int, options: Options) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", kind.module, "--held"]
        command += ["--home", str(self.home), "--port", str(port)]
        if options.groups is not None:
            command += ["--groups", options.groups]
        if options.reserved is not None:
            command.append("--reserved" if options.reserved else "--no-reserved")
        if options.slots is not None:
            command += ["--slots", str(options.slots)]
        environment, file = dict(os.environ), self._options_file(kind, port)
        folder = conf_dir_of(self.home, kept_options(file))
        keep_options(file, replace(options, conf_dir=folder))
        record_zone(self.home, cluster_zone(self.config))
        if folder is not None:
            environment[CONF_DIR_VARIABLE] = folder
        out = self._out(kind, port)
        closed_folder(out.parent)
        with out.open("wb") as output:
            process = self._spawn(command, environment, output)
        _launched[:] = [*(other for other in _launched if other.poll() is None), process]
        return process

    def _await_ready(self, kind: Kind, port: int, pid: int, is_there: Callable[[], bool]) -> None:
        deadline = _clock.monotonic() + self._within.total_seconds()
        reason: str | None = "it does not answer"
        while is_there():
            state, reason = self._health(kind, port)
            if state == "ready":
                return
            if state == WAITING:
                raise DaemonWaitsError(
                    f"the {kind} at port {port} (pid {pid}) waits for a server, and begins as soon"
                    f" as that answers: {reason}"
                )
            if _clock.monotonic() > deadline:
                raise DaemonStartError(
                    f"the {kind} at port {port} (pid {pid}) was not ready within "
                    f"{self._within.total_seconds():g} s: {reason}{log_tail(self._out(kind, port))}"
                )
            # Only /readyz reports that a daemon is ready; its end is seen at once.
            await_end(pid, _PROBE_INTERVAL)
        raise _EndedError(f"the {kind} at port {port} has ended")

    def _why_ended(self, kind: Kind, port: int, code: int | None) -> SchedulerError:
        if code is not None and code < 0:
            ending = f"was killed by {signal.Signals(-code).name}"
        else:
            ending = f"ended with exit code {code}"
        text = f"the {kind} at port {port} {ending}{log_tail(self._out(kind, port))}"
        if code == ConfigurationError.exit_code:
            return ConfigurationError(text)
        if code == ServiceUnreachableError.exit_code:
            return ServiceUnreachableError(text)
        return DaemonStartError(text)

    def _as_started(self, kind: Kind, port: int, pid: int, *, already: bool) -> Started:
        return Started(name=kind, host=self._host(kind), port=port, pid=pid, already=already)

    def _take_back(self, started: Sequence[Started | None]) -> None:
        for one in reversed(started):
            if one is not None and not one.already:
                with suppress(SchedulerError):
                    self.stop_one(one.name, one.port)

    # Stopping

    def stop_everything(
        self,
        *,
        now: bool = False,
        within: timedelta = timedelta(seconds=60),
        restarts: bool = False,
    ) -> list[str]:
        """Stop api-servers, masters, workers, ZooKeeper and PostgreSQL, in this order.

        Returns those that ran. The ports stay closed to tenants if a start follows (`restarts`),
        and without `now`, since tasks continue then.
        """
        stopped = []
        for kind in (Kind.API, Kind.MASTER, Kind.WORKER):
            ports = [port for other, port, _ in self.running() if other is kind]
            with ThreadPoolExecutor(max_workers=max(1, len(ports))) as pool:
                pending = [
                    (port, pool.submit(self.stop_one, kind, port, now=now, within=within))
                    for port in ports
                ]
                stopped += [f"{kind}-{port}" for port, each in pending if each.result()]
        for name in ("zookeeper", "postgres"):
            if self.stop_one(name, None, now=now, within=within):
                stopped.append(name)
        if now and not restarts:
            self._guard.release()
        return stopped

    def stop_one(
        self,
        name: str,
        port: int | None,
        *,
        now: bool = False,
        within: timedelta = timedelta(seconds=60),
    ) -> bool:
        """Stop a server and return True, or False if it did not run; only `now` kills it."""
        match name:
            case "postgres" | "zookeeper":
                return self._servers.stop(name, now=now)
            case _:
                return port is not None and self._stop_daemon(Kind(name), port, now, within)

    def _stop_daemon(self, kind: Kind, port: int, now: bool, within: timedelta) -> bool:
        path = pid_file(self.home, kind, port)
        pid = running_pid(path)
        if pid is None:
            return False
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            # Looked at again with the process held: the pid can't be given to another any more.
            if running_pid(path) != pid:
                return False
            ended = self._end(descriptor, kind, now=now, within=within)
        finally:
            os.close(descriptor)
        if not ended:
            raise SchedulerError(
                f"the {kind} at port {port} (pid {pid}) is still stopping after "
                f"{within.total_seconds():g} s; wait, or kill it with "
                f"`stop {kind} --port {port} --now`"
            )
        if now and running_pid(path) is None:
            path.unlink(missing_ok=True)
        return True

    def _end(self, descriptor: int, kind: Kind, *, now: bool, within: timedelta) -> bool:
        """Return True if the process ended; with `now` a worker first ends its tasks (SIGQUIT)."""
        if now and kind is Kind.WORKER:
            signals = [(signal.SIGQUIT, _QUIT_PATIENCE), (signal.SIGKILL, within)]
        else:
            signals = [(signal.SIGKILL if now else signal.SIGTERM, within)]
        for number, patience in signals:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], patience.total_seconds())[0]:
                return True
        return False

    # Looking

    def running(self) -> list[tuple[Kind, int, int]]:
        """List kind, port and pid of the masters and workers whose processes are alive."""
        found = []
        for kind, port, path in self._pid_files():
            pid = running_pid(path)
            if pid is not None:
                found.append((kind, port, pid))
        return found

    def known(self) -> list[tuple[Kind, int]]:
        """List kind and port of the masters and workers that run, or died without stopping."""
        return [(kind, port) for kind, port, _ in self._pid_files()]

    def options_of(self, kind: Kind, port: int) -> Options:
        """Return the options that the daemon at this port was last started with."""
        return kept_options(self._options_file(kind, port))

    def statuses(self) -> list[DaemonStatus]:
        """List the daemons of this home that run, and those that died without stopping."""
        found = list(self._servers.statuses())
        incarnations = self._incarnations() if any(True for _ in self._pid_files()) else {}
        for kind, port, path in self._pid_files():
            host = self._host(kind)
            pid = running_pid(path)
            if pid is None:
                found.append(
                    DaemonStatus(
                        name=kind,
                        host=host,
                        port=port,
                        pid=None,
                        incarnation=None,
                        state="dead",
                        since=None,
                        reason="its process is gone without having stopped",
                    )
                )
                continue
            state, reason = self._health(kind, port)
            found.append(
                DaemonStatus(
                    name=kind,
                    host=host,
                    port=port,
                    pid=pid,
                    incarnation=incarnations.get((f"{host}:{port}", pid)),
                    state=state,
                    since=since(pid),
                    reason=reason,
                )
            )
        return found

    def _incarnations(self) -> dict[tuple[str, int], int]:
        """By address and pid; a znode that a former process left is thereby another's."""
        from common.model.cluster import Heartbeat, NodeKind
        from operations.members import registry

        found: dict[tuple[str, int], int] = {}
        try:
            with registry(self.config, patience=timedelta(seconds=3)) as opened:
                for kind in NodeKind:
                    for node, text in opened.membership.heartbeats(kind).items():
                        beat = Heartbeat.parse(text, zone=UTC)
                        if beat is not None:
                            found[node.address, beat.pid] = node.incarnation
        except SchedulerError:
            return {}
        return found

    def configured_port(self, kind: Kind) -> int:
        """Return the port of the first daemon of a kind, as the settings have it."""
        return self._settings(kind).port

    def _settings(self, kind: Kind) -> MasterConfig | WorkerConfig | ApiConfig:
        if kind is Kind.API:
            return self.config.api
        return self.config.master if kind is Kind.MASTER else self.config.worker

    def _health(self, kind: Kind, port: int) -> tuple[str, str | None]:
        settings = self._settings(kind)
        certificate = "" if isinstance(settings, MasterConfig) else settings.tls_cert_file
        return health(settings.http_host, port, certificate=certificate)

    def _host(self, kind: Kind) -> str:
        settings = self._settings(kind)
        return settings.http_host if isinstance(settings, ApiConfig) else settings.host

    def _pid_files(self) -> Iterator[tuple[Kind, int, Path]]:
        folder = self.home / "run"
        for path in sorted(folder.glob("*.pid")) if folder.is_dir() else ():
            match = _PID_FILE.fullmatch(path.name)
            if match is not None:
                yield Kind(match.group(1)), int(match.group(2)), path

    def _out(self, kind: Kind, port: int) -> Path:
        return self.home / "logs" / f"{kind}-{port}.out"

    def _options_file(self, kind: Kind, port: int) -> Path:
        return self.home / "run" / f"{kind}-{port}.json"


def _await_all(pending: Sequence[Future[Started | None]]) -> None:
    """Wait for these in turn; raise what the first that failed has raised."""
    for each in pending:
        each.result()


class _EndedError(Exception):
    """The daemon's process ended while it was waited for."""


def _is_there(home: Path, kind: Kind, port: int) -> bool:
    return running_pid(pid_file(home, kind, port)) is not None
