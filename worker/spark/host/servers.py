"""The Connect servers of a Spark host: starts them, sees how they are, and ends them.

Carries out what `worker/spark/host/pool.py` has decided and tells it what is to be seen. Asking a
server anything is a probe (`worker/spark/host/forks.py`), for it may not answer.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.spark.diagnosis.failures import explain
from worker.spark.host.connect_server import (
    OUT_OF_MEMORY,
    ConnectServer,
    Door,
    MakeCommand,
    ServerPlan,
    main_cause,
)
from worker.spark.host.folders import SERVERS
from worker.spark.host.forks import Forks, Watch
from worker.spark.host.pool import ServerSeen, ServerState
from worker.spark.session import warm
from worker.spark.session.sessions import Place
from worker.spark.session.shared_driver import NoContextError

log = logging.getLogger("orcaflow.spark.servers")

_HEALTH_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 10.0
_REMOVAL_SECONDS = 600.0
_SILENT_BEFORE_KILL = 3
_REFUSALS_BEFORE_STOP = 3
_IN_USE = "Address already in use"


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True, kw_only=True)
class Server:
    """A server from its start to its end."""

    process: ConnectServer
    state: ServerState
    started_at: float
    idle_since: float
    sessions: set[str] = field(default_factory=set)
    prototype: str = field(default_factory=_new_id)
    """The session that others are cloned off, if they share; a health check makes it."""
    given: int = 0
    """Sessions that tasks have got so far."""
    pythons: int = 0
    failures: int = 0
    is_asked: bool = False
    """A probe is under way."""
    look_at: float = 0.0
    stopping_since: float | None = None
    refused: str = ""
    """The cause for which it never became ready, if that is known."""
    is_explained: bool = False
    """`refused` is Spark's own cause; its log would repeat it."""
    lost_port: str = ""
    """The account that took its port, before it could listen there."""
    refusals: int = 0
    """The number of times that it has refused while starting."""

    @property
    def key(self) -> int:
        return self.process.key

    @property
    def profile(self) -> str:
        return self.process.plan.profile

    def place(self) -> Place:
        """A session that nobody has had yet."""
        return Place(
            port=self.process.port,
            token=self.process.token,
            session_id=_new_id(),
            application_id=self.process.application_id,
            ui_link=self.process.ui_link,
            page_token=self.process.page_token,
            interpreter=self.process.plan.python,
            gateway_port=0 if self.process.gateway is None else self.process.gateway[0],
            gateway_secret="" if self.process.gateway is None else self.process.gateway[1],
            keeps_warehouse=self.process.plan.keeps_warehouse,
            prototype=self.prototype if self.process.plan.shares else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A server is gone; in the words of those who had a session in it, or waited for one."""

    server: Server
    was_ready: bool
    failure: str
    how: str
    cause: str
    """The one line of its last words that says most."""
    last_words: str
    lost_port: bool
    """True if another program had its port, so that another start with another port may do."""


class Servers:
    """All servers of a host.

    `ready` is told of each that answers at last, `ended` of each that is gone, wanted or not.
    """

    def __init__(
        self,
        directory: Path,
        *,
        command: MakeCommand,
        environment: Mapping[str, str],
        proxy: Sequence[str],
        watch: Watch,
        forks: Forks,
        clock: Callable[[], float],
        ready: Callable[[Server], None],
        ended: Callable[[Died], None],
    ) -> None:
        """`command` makes a server's; `proxy` calls this host."""
        self._directory = directory
        self._command = command
        self._environment = environment
        self._proxy = proxy
        self._watch = watch
        self._forks = forks
        self._clock = clock
        self._ready = ready
        self._ended = ended
        self._servers: dict[int, Server] = {}
        self._keys = 0

    def __bool__(self) -> bool:
        return bool(self._servers)

    def __getitem__(self, key: int) -> Server:
        return self._servers[key]

    @property
    def are_starting(self) -> bool:
        return any(each.state is ServerState.STARTING for each in self._servers.values())

    def of_session(self, session_id: str) -> Server | None:
        """The server that has this session now."""
        return next((s for s in self._servers.values() if session_id in s.sessions), None)

    def of_directory(self, directory: Path) -> Server | None:
        """The server whose directory this is."""
        found = (s for s in self._servers.values() if s.process.directory == directory)
        return next(found, None)

    def come(self, profile: str) -> bool:
        """True if a server of this profile is there, or starts, for waiting tasks."""
        return any(
            each.profile == profile
            and each.state is not ServerState.DRAINING
            and each.stopping_since is None
            for each in self._servers.values()
        )

    def seen(self) -> list[ServerSeen]:
        """Return all of them as they are now."""
        return [
            ServerSeen(
                key=server.key,
                profile=server.profile,
                revision=server.process.plan.revision,
                state=server.state,
                started_at=server.started_at,
                idle_since=server.idle_since,
                sessions=len(server.sessions),
                given=server.given,
                memory_bytes=server.process.memory_bytes(),
                failures=server.failures,
                pythons=server.pythons,
            )
            for server in self._servers.values()
        ]

    def start(self, plan: ServerPlan) -> None:
        """Start a server. Raises `OSError` if there can't be a process."""
        self._keys += 1
        key, now = self._keys, self._clock()
        process = ConnectServer(
            plan,
            key=key,
            directory=self._directory / f"server-{key}",
            command=self._command,
            environment=self._environment,
            proxy=self._proxy,
        )
        server = Server(process=process, state=ServerState.STARTING, started_at=now, idle_since=now)
        self._servers[key] = server
        self._watch.add(process.pidfd, lambda: self._gone(server))
        told = {"server": key, "profile": plan.profile, "port": process.port}
        log.info("server started", extra=told)

    def drain(self, key: int, why: str) -> None:
        """Give it no further session."""
        self._servers[key].state = ServerState.DRAINING
        log.info("server is drained", extra={"server": key, "why": why})

    def stop(self, key: int, why: str, *, now: bool = False) -> None:
        """End it; its end is told when it is gone. One that doesn't end in time is killed."""
        server = self._servers[key]
        if server.stopping_since is None:
            server.stopping_since = self._clock()
            if server.state is not ServerState.STARTING:
                # Who waits for one that is given up waits until they are told; see `Died`.
                server.state = ServerState.DRAINING
            server.process.stop(now=now)
            log.info("server is stopped", extra={"server": key, "why": why})

    def stop_all(self) -> None:
        for key in self._servers:
            self.stop(key, "the host ends")

    def clear_away(self) -> None:
        """Remove at once what those that are gone have left behind: no probe will do it later."""
        there = {each.process.directory for each in self._servers.values()}
        for left in set(self._directory.glob(SERVERS)) - there:
            shutil.rmtree(left, ignore_errors=True)

    def doubt(self, server: Server) -> None:
        """Something went wrong with it: ask it soon how it is."""
        server.look_at = 0.0

    def look_after(self) -> None:
        """Ask those who start whether they are ready, and all others now and then how they are."""
        now = self._clock()
        for server in list(self._servers.values()):
            plan = server.process.plan
            if server.stopping_since is not None:
                if now - server.stopping_since >= _STOP_SECONDS:
                    server.process.stop(now=True)
            elif server.state is ServerState.STARTING and (
                now - server.started_at >= plan.start_timeout
            ):
                server.refused = (
                    f"no answer within {plan.start_timeout:g} seconds; its master is {plan.master}"
                )
                self.stop(server.key, server.refused, now=True)
            elif not server.is_asked and now >= server.look_at:
                self._approach(server)

    def _approach(self, server: Server) -> None:
        """Start a probe of a server, unless another program listens at its port."""
        is_starting = server.state is ServerState.STARTING
        door = self._door(server)
        if door is None:
            return
        if is_starting and door is Door.TAKEN:
            self._lose_port(server)
        elif door is Door.OWN or (is_starting and server.process.listens()):
            self._ask(server)
        elif not is_starting:
            self._answered(server, {})

    def _door(self, server: Server) -> Door | None:
        """Return the program at a server's port; None if this host lacks files to find it out."""
        try:
            return server.process.door()
        except OSError:
            # The server is not to blame.
            server.look_at = self._clock() + _RETRY_SECONDS
            return None

    def _lose_port(self, server: Server) -> None:
        server.lost_port = server.process.taker()
        self.stop(server.key, _lost(server), now=True)

    def _ask(self, server: Server) -> None:
        place = server.place()
        server.is_asked = True

        def work() -> bytes:
            try:
                said = {"application_id": warm.greet(place, server.process.check_door)}
            except NoContextError as error:
                said = {"failed": str(error)}
            except Exception as error:  # noqa: BLE001  # It is told to those who wait.
                said = {"refused": explain(error).sentence}
            return json.dumps(said).encode()

        if not self._forks.probe(
            work, lambda answer: self._answered(server, json.loads(answer) if answer else {})
        ):
            # No fault of the server's.
            server.is_asked, server.look_at = False, self._clock() + _RETRY_SECONDS

    def _answered(self, server: Server, said: Mapping[str, str]) -> None:
        server.is_asked = False
        if server.stopping_since is not None or self._servers.get(server.key) is not server:
            return  # It is ending, or gone.
        now = self._clock()
        if server.state is ServerState.STARTING:
            door = self._door(server)
            if door is Door.TAKEN:
                self._lose_port(server)
                return
            if "application_id" in said and door is not Door.OWN:
                server.look_at = now + _RETRY_SECONDS
                return
        if "application_id" not in said:
            server.look_at = now + _RETRY_SECONDS
            server.prototype = _new_id()  # The former one may be the cause.
            if "failed" in said:
                server.refused, server.is_explained = said["failed"], True
                self.stop(server.key, server.refused, now=True)
                return
            if server.state is ServerState.STARTING and "refused" in said:
                # It is there, and a session can't be had: no patience will help that.
                server.refusals += 1
                told = {"server": server.key, "said": said["refused"]}
                log.warning("server gives no session", extra=told)
                if server.refusals >= _REFUSALS_BEFORE_STOP:
                    server.refused = "it gives no session"
                    self.stop(server.key, server.refused, now=True)
            if server.state is not ServerState.STARTING:
                server.failures += 1
                told = {"server": server.key, "failures": server.failures}
                log.warning("server did not answer", extra=told)
                if server.failures >= _SILENT_BEFORE_KILL:
                    self.stop(server.key, "it does not answer", now=True)
            return
        server.failures = 0
        server.look_at = now + _HEALTH_SECONDS
        server.process.cut_log()
        if server.state is ServerState.STARTING:
            server.process.application_id = str(said["application_id"])
            server.state = ServerState.READY
            server.idle_since = now
            took = round(now - server.started_at, 2)
            log.info("server is ready", extra={"server": server.key, "seconds": took})
            self._ready(server)

    def _gone(self, server: Server) -> None:
        process = server.process
        code = process.process.wait()
        self._watch.remove(process.pidfd)
        process.close()
        process.close_input()
        del self._servers[server.key]
        log.info("server ended", extra={"server": server.key, "exit_code": code})
        failure, how = "SERVER_LOST", f"exit code {code}" if code >= 0 else f"signal {-code}"
        if code == OUT_OF_MEMORY:
            failure, how = "OUT_OF_MEMORY", "its Java heap was full; raise driver_memory"
        was_ready = bool(process.application_id)
        words = process.last_words()
        if not (was_ready or server.lost_port) and _IN_USE in f"{server.refused}\n{words}":
            server.lost_port = process.taker()
        if server.lost_port:
            how = _lost(server)
            log.warning("a server lost its port", extra={"server": server.key, "why": how})
        died = Died(
            server=server,
            was_ready=was_ready,
            failure=failure,
            how=how if server.lost_port else server.refused or how,
            cause="" if server.is_explained else main_cause(words),
            last_words=words,
            lost_port=bool(server.lost_port),
        )
        self._ended(died)
        self._remove(process.directory)

    def _remove(self, directory: Path) -> None:
        """Remove what a server leaves behind: there may be so much of it that it takes long."""

        def work() -> bytes:
            shutil.rmtree(directory, ignore_errors=True)
            return b""

        if not self._forks.probe(work, lambda _: None, within=_REMOVAL_SECONDS):
            work()


def _lost(server: Server) -> str:
    return f"its port {server.process.port} was taken by a program of {server.lost_port}"
