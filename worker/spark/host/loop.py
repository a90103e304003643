"""Serves task proxies and the worker daemon: the loop of the Spark host, on its one thread.

It brings together what others know: `servers` the Connect servers, `warm_tasks` the tasks,
`udf_pythons` the Pythons for UDFs, `forks` how to wait for all of them, and `pool` what should
happen next. `worker/spark/host/__main__.py` makes a process of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from common.errors import ConfigurationError
from worker.processes.attempt_processes import MARKER
from worker.spark.host import pool
from worker.spark.host.connect_server import PYTHON, MakeCommand, ServerPlan
from worker.spark.host.folders import SOCKET
from worker.spark.host.forks import Forks, Watch
from worker.spark.host.pool import Limits, Waiting
from worker.spark.host.proxy_protocol import BadRequestError, Link, Request, check, listening
from worker.spark.host.servers import Died, Server, Servers
from worker.spark.host.udf_pythons import UdfPythons
from worker.spark.host.warm_tasks import WarmTasks
from worker.spark.jvm.java_command import NoSparkError
from worker.spark.session import warm

log = logging.getLogger("orcaflow.spark.host")

_OWN_ACCOUNT_ALONE = 0o600
_ALONE_SECONDS = 60.0
_STOP_SECONDS = 12.0
_STARTING_REST = 0.05
_REST = 1.0
_LONG_REST = 5.0
_FAILING_SECONDS = 60.0
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_SHORTAGE_REST = 0.05
_MOST_LOST_PORTS = 5
"""Starts in a row that may fail because another program has the server's port."""
_LONGEST_SAID = 900
_SIGNALS = frozenset(signal.valid_signals())


class Host:
    """The host's own part: task proxies, tasks and sessions. One thread drives all."""

    def __init__(
        self,
        directory: Path,
        *,
        python: str,
        command: MakeCommand,
        ends_idle: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`command` makes a server's. `ends_idle`: it ends without servers, followed or not."""
        self._clock = clock
        self._python = python
        self._ends_idle = ends_idle
        self._address = str(directory / SOCKET)
        self._door = listening(self._address, mode=_OWN_ACCOUNT_ALONE)
        self._inode = os.stat(self._address).st_ino  # noqa: PTH116
        self._watch = Watch()
        self._watch.add(self._door.fileno(), self._accept)
        self._forks = Forks(self._watch, clock=clock)
        self._servers = Servers(
            directory,
            command=command,
            environment={key: text for key, text in os.environ.items() if key != MARKER},
            proxy=(
                python,
                "-I",
                "-S",
                str(Path(__file__).with_name("task_proxy.py")),
                self._address,
            ),
            watch=self._watch,
            forks=self._forks,
            clock=clock,
            ready=self._server_is_ready,
            ended=self._server_died,
        )
        self._pythons = UdfPythons(self._forks)
        self._tasks = WarmTasks(
            forks=self._forks, servers=self._servers, pythons=self._pythons, clock=clock
        )
        self._follower: Link | None = None
        self._alone_since = clock()
        self._plans: dict[str, ServerPlan] = {}
        self._limits: dict[str, Limits] = {}
        self._failing: dict[str, float] = {}
        """Profiles whose server could not start, and when to try that unasked again."""
        self._lost_ports: dict[str, int] = {}
        """Per profile, the starts in a row that lost their port to another program."""
        self._is_ending = False

    # The loop.

    def run(self) -> None:
        """Serve until told to end, or until nobody is left to serve."""
        while not self._is_over():
            self.run_once()
        self._is_ending = True
        self._close_door()
        self._servers.stop_all()
        limit = self._clock() + _STOP_SECONDS
        while self._servers and self._clock() < limit:
            self.run_once()
        # What is left ends with this process.
        self._servers.clear_away()

    def run_once(self) -> None:
        """Wait for something to do, and do it."""
        self._watch.wait(self._rest())
        self._servers.look_after()
        self._forks.end_late_probes()
        self._tasks.close_sessions()
        if not self._is_ending:
            self._decide()

    def _rest(self) -> float:
        if self._servers.are_starting:
            return _STARTING_REST
        return _REST if self._servers or self._tasks or self._forks.are_probing else _LONG_REST

    def _is_over(self) -> bool:
        if self._is_ending:
            return True
        now = self._clock()
        is_followed = self._follower is not None
        if self._tasks or (is_followed and not self._ends_idle) or (is_followed and self._servers):
            self._alone_since = now
        elif now - self._alone_since >= _ALONE_SECONDS:
            log.info("nobody is there to work for")
            return True
        try:
            # Somebody has removed the home, or another host has taken the place.
            return os.stat(self._address).st_ino != self._inode  # noqa: PTH116
        except OSError:
            return not self._tasks

    def _close_door(self) -> None:
        """Close the socket: a task proxy that comes now waits for the next host."""
        self._watch.remove(self._door.fileno())
        with contextlib.suppress(OSError):
            if os.stat(self._address).st_ino == self._inode:  # noqa: PTH116
                os.unlink(self._address)  # noqa: PTH108
        self._door.close()

    # Task proxies.

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                try:
                    connection, _ = self._door.accept()
                except OSError as error:
                    if error.errno not in _SHORTAGES:
                        raise
                    # Who asks waits; no event would end that sooner.
                    log.warning("no room is left for a task proxy", extra={"cause": error.strerror})
                    time.sleep(_SHORTAGE_REST)
                    return
                link = Link(connection)
                self._watch.add(link.fileno(), lambda link=link: self._hear(link))  # type: ignore[misc]

    def _hear(self, link: Link) -> None:
        try:
            self._take_what_came(link)
        except Exception:
            # Whatever is the matter with one task proxy, all others go on.
            log.exception("task proxy could not be served")
            link.is_over = True
        if link.is_over:
            self._disconnect(link)

    def _take_what_came(self, link: Link) -> None:
        link.receive()
        if not self._stands_for_somebody(link):
            self._take_requests(link)
        for known in (self._tasks, self._pythons):
            if link in known:
                for number in link.signals():
                    if number in _SIGNALS and link in known:
                        known.signal(link, number)

    def _stands_for_somebody(self, link: Link) -> bool:
        return link in self._tasks or link in self._pythons

    def _take_requests(self, link: Link) -> None:
        try:
            # What comes after that are signals.
            while not self._stands_for_somebody(link) and (request := link.request()) is not None:
                self._take(link, request)
        except BadRequestError as error:
            log.warning("request refused", extra={"cause": str(error)})
            link.is_over = True

    def _take(self, link: Link, request: Request) -> None:
        try:
            check(request, uid=link.uid, own=os.geteuid())
        except BadRequestError:
            request.close()
            raise
        match request.what, request.arguments:
            case "task", (profile, job):
                self._tasks.add(link, request, profile=profile, job=job)
            case "python", (caller, *arguments):
                self._start_python(link, request, Path(caller), arguments)
            case "follow", (document,):
                self._follow(link, document)

    def _disconnect(self, link: Link) -> None:
        self._watch.remove(link.fileno())
        link.close()
        if link is self._follower:
            self._follower = None
            log.info("worker daemon is gone")
        for known in (self._tasks, self._pythons):
            if link in known:
                known.on_disconnect(link)

    def _start_python(
        self, link: Link, request: Request, caller: Path, arguments: list[str]
    ) -> None:
        session_id = caller.name
        if session_id == PYTHON:
            # For no session that its name would tell.
            server = self._servers.of_directory(caller.parent)
            interpreter = "" if server is None else server.process.plan.python
        else:
            server = self._servers.of_session(session_id)
            interpreter = self._tasks.interpreter_of(session_id)
        if server is None:
            request.close()
            link.error("SERVER_LOST", "the session that this Python is for is over")
            return
        server.pythons += 1
        self._pythons.start(
            link,
            request,
            session_id=session_id,
            arguments=arguments,
            interpreter="" if interpreter == self._python else interpreter,
            limited_as=self._tasks.proxy_of(session_id),
        )

    def _follow(self, link: Link, document: str) -> None:
        """The daemon says what it wants, at its start and whenever that has changed."""
        try:
            wanted = json.loads(document)
            is_ending = bool(wanted.get("stop"))
            profiles = {} if is_ending else wanted["profiles"].items()
            plans = {name: ServerPlan(**each["plan"]) for name, each in profiles}
            limits = {name: Limits(**each["limits"]) for name, each in profiles}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRequestError(f"the wanted profiles can't be understood: {error}") from error
        self._follower = link
        if is_ending:
            self._is_ending = True
            return
        self._plans, self._limits = plans, limits
        self._failing.clear()
        log.info("worker daemon is there", extra={"profiles": sorted(self._plans)})

    # Servers.

    def _decide(self) -> None:
        if not self._plans:
            return  # The daemon that has started this host will say in a moment.
        waiting = [Waiting(key=each.key, profile=each.profile) for each in self._tasks.waiting()]
        now = self._clock()
        for decision in pool.decide(self._servers.seen(), waiting, self._limits_at(now), now=now):
            match decision:
                case pool.StartServer(profile):
                    self._start_server(profile)
                case pool.GiveSession(task_key, server_key):
                    self._tasks.start(self._tasks[task_key], self._servers[server_key])
                case pool.DrainServer(key, why):
                    self._servers.drain(key, why)
                case pool.StopServer(key, why):
                    self._servers.stop(key, why)
                case pool.Refuse(key, why):
                    self._tasks.refuse(self._tasks[key], "CONFIGURATION", why)
        for task in self._tasks.waiting():
            if not task.wait_reported:
                task.wait_reported = True
                task.link.say(f"waiting for a session of Spark profile {task.profile}")

    def _limits_at(self, now: float) -> dict[str, Limits]:
        """Return the limits of profiles now.

        After one has failed to start, no server is kept ready for a while, nor is any started
        beside one that is there.
        """
        return {
            name: replace(each, kept=False, max_servers=1)
            if now < self._failing.get(name, now)
            else each
            for name, each in self._limits.items()
        }

    def _start_server(self, profile: str) -> None:
        try:
            self._servers.start(self._plans[profile])
        except (OSError, NoSparkError, ConfigurationError) as error:
            why = f"the Spark server of profile {profile} could not be started: {error}"
            self._has_no_server(profile, why, "")

    def _server_is_ready(self, server: Server) -> None:
        self._failing.pop(server.profile, None)
        self._lost_ports.pop(server.profile, None)
        if not any(task.profile == server.profile for task in self._tasks.waiting()):
            place, further = server.place(), server.place()
            self._forks.probe(lambda: b"%d" % warm.warm_up(place, further), lambda _: None)

    def _server_died(self, died: Died) -> None:
        profile = died.server.profile
        self._pythons.end(died.server.sessions)
        self._tasks.server_died(died)
        if died.lost_port and self._may_lose_another_port(profile):
            return  # The next decision starts another one, with another port.
        # One that was stopped on purpose while it started says nothing of the next.
        gave_up = died.lost_port or died.server.refused
        if not died.was_ready and (gave_up or died.server.stopping_since is None):
            why = f"{died.how}: {died.cause}" if died.cause else died.how
            text = f"the Spark server of profile {profile} did not start ({why})"
            self._has_no_server(profile, text, died.last_words)

    def _may_lose_another_port(self, profile: str) -> bool:
        lost = self._lost_ports.get(profile, 0) + 1
        self._lost_ports[profile] = lost % _MOST_LOST_PORTS
        return lost < _MOST_LOST_PORTS

    def _has_no_server(self, profile: str, why: str, words: str) -> None:
        """Tell all who wait for a server of this profile; whoever comes next tries again.

        If it has another one, they wait for that.
        """
        log.warning("no server", extra={"profile": profile, "why": why})
        self._failing[profile] = self._clock() + _FAILING_SECONDS
        if self._servers.come(profile):
            return
        for task in self._tasks.waiting():
            if task.profile == profile:
                for line in words.splitlines():
                    task.link.say(line)
                self._tasks.refuse(task, "SUBMIT_FAILED", why[:_LONGEST_SAID])
