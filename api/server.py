"""The api-server daemon: the HTTP API, health and metrics at one port.

`python -m api.server --home DIR --port N`. It keeps nothing but connections, so any number may run.
It listens on loopback alone, unless it has TLS or a proxy that has it (`api.reach`).
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The imports leave no garbage, and looking for it takes a sixth of their time.
    gc.disable()

import argparse
import asyncio
import logging
import resource
import socket
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from setproctitle import setproctitle

from api.app import build
from api.asking import REGISTRY
from api.connections import Connections, Limits, limited_protocol
from api.door import Door
from api.gateway import responder
from api.lane import greenlets_of
from api.live.looker import CHANNELS, LiveLoop
from api.live.streams import Streams
from api.live.texts import event
from api.reach import reach_of
from common import config as configuration
from common.clock import SystemClock
from common.config import ApiConfig, Config
from common.errors import ConfigurationError, SchedulerError, ServiceUnreachableError
from common.parameter_keys import parameter_keys
from common.port_holders import holder
from common.runtime import log as logs
from common.runtime import metrics
from common.runtime.daemon import product_version
from common.runtime.held import StarterGoneError, await_start
from common.runtime.pid_file import holding, pid_file
from common.runtime.service import Service, StopRequestedError
from common.store import schema
from common.store.connect import Engine, engine, server_time
from common.store.listen import Notifications
from common.store.transaction import observe_transactions
from common.store.yielding import YieldingConnection
from operations.freed_ports import made_room
from operations.live import WatchedTables

NAME = "api-server"

log = logging.getLogger(__name__)

_CONNECT_PATIENCE = timedelta(seconds=3)
_STOP_PATIENCE_SECONDS = 5
_OTHER_FILES = 200
"""Open files that are not client connections: of the database, of logs, and of libraries."""
_UNREAD_SECONDS = 60
_SWITCH_INTERVAL_SECONDS = 0.0005
"""The switch interval: a short request does not wait 5 ms for a long one at each statement."""


def main(arguments: list[str] | None = None) -> int:
    """Run an api-server until it is stopped; return the exit code of the operator's interface."""
    parser = argparse.ArgumentParser(prog=NAME, description="Runs an Orcaflow api-server.")
    parser.add_argument("--home", type=Path, help="ORCAFLOW_HOME; default ~/.orcaflow")
    parser.add_argument("--port", type=int, help="serves the API, health and metrics")
    parser.add_argument("--held", action="store_true", help="begin after a line of standard input")
    options = parser.parse_args(arguments)
    overrides: dict[str, object] = {
        "home": str(options.home.resolve()) if options.home else None,
        "api.port": options.port,
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
    """Serve until the end; not ready before the database has the schema of this version."""
    settings = config.api
    logs.configure(home=config.home, name=NAME, port=settings.port, level=config.log_level)
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    setproctitle(f"orcaflow {NAME} {settings.http_host}:{settings.port}")
    metrics.tell_build(daemon=NAME, version=product_version())
    reach_of(settings)  # Before anything listens.
    with ExitStack() as stack:
        stack.enter_context(holding(pid_file(config.home, NAME, settings.port)))
        service = Service(clock=SystemClock())
        made = _engine(config)
        stack.callback(made.dispose)
        app = build(config, made, version=product_version(), problems=service.problems)
        made_room(config, settings.http_host, settings.port, server=f"the {NAME}")
        server = _HttpServer(app, settings)
        server.start()
        stack.callback(server.stop)
        service.reach(lambda: schema.check_as_daemon(made))
        if greenlets_of(settings.pool_size):
            reading = _reading_engine(config)
            stack.callback(reading.dispose)
            service.reach(lambda: _open(reading))
            app.state.reading_engine = reading
        service.ready_if("postgresql", lambda: _database_problem(made))
        service.on_stop("http", server.stop)
        stack.callback(REGISTRY.close)
        if settings.gateway_port:
            made_room(config, settings.http_host, settings.gateway_port, server="the gateway")
            taken = listen(settings.http_host, settings.gateway_port)
            gateway = responder(config, made, taken, app.state.turns)
            gateway.start()
            service.on_stop("gateway", gateway.stop)
            stack.callback(gateway.stop)
            log.info("gateway opened", extra={"gateway_port": settings.gateway_port})
        _watch(service, app.state.streams, made, url=configuration.database_url(config))
        return service.run()


def _watch(service: Service, streams: Streams, made: Engine, *, url: str) -> None:
    """Add the loop that looks at what is watched; at the end it and the streams stop first."""
    looker = LiveLoop(
        streams,
        WatchedTables(made),
        lambda: Notifications(url, CHANNELS, application_name=f"{NAME}-listen"),
        clock=SystemClock(),
    )
    service.on_stop("listener", looker.close)
    thread = service.add(looker)

    def wake() -> None:
        thread.wake()
        looker.wake()

    def end() -> None:
        streams.end_all(event("end", {"reason": "stopping"}))
        wake()

    streams.wake = wake
    service.on_stop("streams", end)


def listen(host: str, port: int) -> socket.socket:
    """Take a port; `ConfigurationError` if somebody else has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections take it over. Without it the end of an answer waits 40 ms for the client to
    # acknowledge its beginning; asyncio sets it on sockets that name their protocol alone.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Likewise: one that takes nothing in for so long is gone.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_SECONDS * 1000)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise ConfigurationError(
            f"can't listen on {host}:{port} ({error.strerror}){holder(port)}: end the program "
            "that has the port, or choose another with --port, api.port or api.gateway_port"
        ) from error
    return taken


def _engine(config: Config) -> Engine:
    observe_transactions(metrics.db_transaction_seconds.observe)
    pool_size = config.api.pool_size
    return engine(
        configuration.database_url(config),
        pool_size=pool_size - greenlets_of(pool_size),
        max_overflow=0,
        **_connecting(config),
    )


def _reading_engine(config: Config) -> Engine:
    """Make the engine of plain reads, which opens no connection until `_open`."""
    return engine(
        configuration.database_url(config),
        pool_size=greenlets_of(config.api.pool_size),
        max_overflow=-1,  # There are no more greenlets; to wait for one would hold up them all.
        connection_factory=YieldingConnection,
        **_connecting(config),
    )


def _open(made: Engine) -> None:
    """Open the first connection of an engine, during which it has no other of its thread."""
    made.connect().close()


def _connecting(config: Config) -> dict[str, Any]:
    settings = config.api
    return {
        "application_name": f"{NAME}-{settings.port}",
        "keys": parameter_keys(config, refuses_unknown=True),
        "connect_timeout": min(
            _CONNECT_PATIENCE, timedelta(seconds=config.database.connect_timeout_seconds)
        ),
        "statement_timeout": timedelta(seconds=settings.statement_timeout_seconds),
        "lock_timeout": timedelta(seconds=settings.statement_timeout_seconds),
        "pool_timeout": _CONNECT_PATIENCE,
        "by_statement": True,
    }


def _database_problem(made: Engine) -> str | None:
    try:
        with made.connect() as db:
            server_time(db)
    except ServiceUnreachableError as error:
        return str(error)
    return None


def limits_of(settings: ApiConfig) -> Limits:
    """Return the limits of connections, and raise the process's limit of open files for them.

    If the hard limit is lower, the number of connections is reduced to fit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wanted = soft
    return Limits(
        connections=max(wanted - _OTHER_FILES, 1), per_address=settings.connections_per_address
    )


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that accepts connections through `Door`."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open a `Door` for each socket; the base class does not limit handshakes."""
        await self.lifespan.startup()
        config = self.config

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state={})  # type: ignore[no-any-return]

        doors: Any = [Door(each, protocol, tls=config.ssl) for each in sockets or ()]
        self.servers = doors
        self.started = True


class _HttpServer:
    """uvicorn in a separate thread; the service handles signals."""

    def __init__(self, app: Any, settings: ApiConfig, *, limits: Limits | None = None) -> None:
        """Bind the port immediately, so that no other daemon can take it before `start`."""
        self._socket = listen(settings.http_host, settings.port)
        limits = limits or limits_of(settings)
        connections = Connections(limits, is_exempt=reach_of(settings).is_proxy)
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=limited_protocol(connections),
                ws="none",
                loop="auto",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ssl_certfile=settings.tls_cert_file or None,
                ssl_keyfile=settings.tls_key_file or None,
                timeout_keep_alive=int(limits.idle),
                timeout_graceful_shutdown=_STOP_PATIENCE_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the requests that are being served end, for a few seconds."""
        self._server.should_exit = True
        self._thread.join(_STOP_PATIENCE_SECONDS + 1)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


if __name__ == "__main__":
    gc.freeze()  # Later collections pass over what the imports have made, which stays.
    gc.enable()
    sys.exit(main())
