"""The Spark host: one process beside each worker daemon that owns what is kept warm for tasks.

    python -P -m worker.spark.host --home DIR --port NUMBER --spark-home DIR

It has imported PySpark once, forks a process for each task and for each Python that a server wants
for UDFs, and runs the Connect servers whose sessions the tasks get. It is one thread that sleeps in
epoll, because a process with threads can't be forked safely; whatever would have to wait, such as
asking a server how it is, is done in a fork of its own, a *visit*.

It outlives its worker daemon, as tasks do: a daemon that comes back finds it, its servers and its
tasks at work. Once the daemon is gone and nothing runs, it ends by itself. What it started never
outlives it: the kernel ends its servers and forks along with it.

What should happen to servers is decided by `worker/spark/pool.py`. What becomes of a task:

    asked → waits for a session → forked → ended → its session closed (by itself, or by a visit if
    it was killed, until the server runs nothing for it any more) → its asker is told the exit code
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import pyspark.daemon

from worker.processes import MARKER
from worker.spark import archive, host_log, jvm, pool, preload, warm
from worker.spark.asking import BadRequestError, Link, Request, check, listening
from worker.spark.connect_server import MAIN_CLASS, MakeCommand, ServerPlan
from worker.spark.forking import end_children_with_me, raise_file_limit
from worker.spark.forks import Forks, Watch, pipe, signal_fork, take_all
from worker.spark.own_sessions import CLOSED
from worker.spark.pool import Limits, Waiting
from worker.spark.servers import Died, Server, Servers
from worker.spark.sessions import Place, close_sessions

SOCKET = "host.sock"

log = logging.getLogger("orcaflow.spark.host")

_ALONE_SECONDS = 60.0
_STOP_SECONDS = 12.0
_STARTING_REST = 0.05
_REST = 1.0
_LONG_REST = 5.0
_RETRY_SECONDS = 1.0
_FAILING_SECONDS = 60.0
_LOCK_REST = 0.05
_CLOSE_SECONDS = 60.0
_NO_FILES = (errno.EMFILE, errno.ENFILE)
_NO_FILES_REST = 0.05
_LONGEST_SAID = 900
_SIGNALS = frozenset(signal.valid_signals())
_SESSION_ID = re.compile(r"[0-9a-f-]{36}")


@dataclass(slots=True, kw_only=True)
class _Task:
    """A request for a session, from its coming until its asker has been answered."""

    key: int
    link: Link
    request: Request | None
    """None once it has a process of its own: that has all that it came with."""
    profile: str
    job: str
    pid: int = 0
    """Of its process, while there is one."""
    server: Server | None = None
    place: Place | None = None
    further: tuple[str, ...] = ()
    """Sessions that it opened besides the one that it was given."""
    exit_code: int | None = None
    close_at: float | None = None
    """When to try, or to try again, to close its session."""
    give_up_at: float = 0.0
    """When to leave that to the end of the server."""
    said_wait: bool = False


@dataclass(slots=True, kw_only=True)
class _Python:
    """A Python that a server has started for the UDFs of a session."""

    pid: int
    session_id: str


class Host:
    """The host's own part: askers, tasks and sessions. One thread drives all."""

    def __init__(
        self,
        directory: Path,
        *,
        python: str,
        command: MakeCommand,
        mode: int = 0o600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mode`: who may ask. `command` makes a server's."""
        self._clock = clock
        self._address = str(directory / SOCKET)
        self._door = listening(self._address, mode=mode)
        self._inode = os.stat(self._address).st_ino  # noqa: PTH116
        self._watch = Watch()
        self._watch.add(self._door.fileno(), self._accept)
        self._forks = Forks(self._watch, clock=clock)
        self._servers = Servers(
            directory,
            command=command,
            environment={key: text for key, text in os.environ.items() if key != MARKER},
            asker=(python, "-I", "-S", str(Path(__file__).with_name("ask.py")), self._address),
            watch=self._watch,
            forks=self._forks,
            clock=clock,
            ready=self._server_is_ready,
            ended=self._server_died,
        )
        self._follower: Link | None = None
        self._alone_since = clock()
        self._plans: dict[str, ServerPlan] = {}
        self._limits: dict[str, Limits] = {}
        self._failing: dict[str, float] = {}
        """Profiles whose server could not start, and when to try that unasked again."""
        self._tasks: dict[int, _Task] = {}
        self._by_link: dict[Link, _Task | _Python] = {}
        self._keys = 0
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

    def run_once(self) -> None:
        """Wait for something to do, and do it."""
        self._watch.wait(self._rest())
        self._servers.look_after()
        self._forks.end_late_visits()
        self._close_sessions()
        if not self._is_ending:
            self._decide()

    def _rest(self) -> float:
        if self._servers.are_starting:
            return _STARTING_REST
        return _REST if self._servers or self._tasks or self._forks.are_visiting else _LONG_REST

    def _is_over(self) -> bool:
        if self._is_ending:
            return True
        now = self._clock()
        if self._follower is not None or self._tasks:
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
        """Whoever comes now finds nobody, and waits for the next host."""
        self._watch.remove(self._door.fileno())
        with contextlib.suppress(OSError):
            if os.stat(self._address).st_ino == self._inode:  # noqa: PTH116
                os.unlink(self._address)  # noqa: PTH108
        self._door.close()

    # Askers.

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                try:
                    connection, _ = self._door.accept()
                except OSError as error:
                    if error.errno not in _NO_FILES:
                        raise
                    # Who asks waits; no event would end that sooner.
                    log.warning("no file is left for an asker", extra={"cause": error.strerror})
                    time.sleep(_NO_FILES_REST)
                    return
                link = Link(connection)
                self._watch.add(link.fileno(), lambda link=link: self._hear(link))  # type: ignore[misc]

    def _hear(self, link: Link) -> None:
        try:
            self._take_what_came(link)
        except Exception:
            # Whatever is the matter with one asker, all others go on.
            log.exception("asker could not be served")
            link.is_over = True
        if link.is_over:
            self._hang_up(link)

    def _take_what_came(self, link: Link) -> None:
        link.receive()
        known = self._by_link.get(link)
        if known is None:
            self._take_requests(link)
        else:
            for number in link.signals():
                if number not in _SIGNALS:
                    continue
                signal_fork(known.pid, number)
                if isinstance(known, _Task) and known.server is None:
                    known.exit_code = -number  # It has not begun, and never will.

    def _take_requests(self, link: Link) -> None:
        try:
            while link not in self._by_link and (request := link.request()) is not None:
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
                self._keys += 1
                task = _Task(key=self._keys, link=link, request=request, profile=profile, job=job)
                self._tasks[task.key] = task
                self._by_link[link] = task
            case "python", (caller, *arguments):
                self._start_python(link, request, Path(caller).name, arguments)
            case "follow", (document,):
                self._follow(link, document)

    def _hang_up(self, link: Link) -> None:
        self._watch.remove(link.fileno())
        link.close()
        if link is self._follower:
            self._follower = None
            log.info("worker daemon is gone")
        known = self._by_link.pop(link, None)
        if known is not None and known.pid:
            # Nobody stands for it any more.
            signal_fork(known.pid, signal.SIGKILL)
        elif isinstance(known, _Task) and known.server is None:
            self._forget(known)

    def _follow(self, link: Link, document: str) -> None:
        """The daemon says what it wants, at its start and whenever that has changed."""
        try:
            wanted = json.loads(document)
            is_ending = bool(wanted.get("stop"))
            profiles = {} if is_ending else wanted["profiles"].items()
            plans = {name: ServerPlan(**each["plan"]) for name, each in profiles}
            limits = {name: Limits(**each["limits"]) for name, each in profiles}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRequestError(f"a wish that can't be understood: {error}") from error
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
        for task in self._waiting():
            if task.exit_code is not None:
                self._answer(task)
        waiting = [Waiting(key=task.key, profile=task.profile) for task in self._waiting()]
        now = self._clock()
        for decision in pool.decide(self._servers.seen(), waiting, self._limits_at(now), now=now):
            match decision:
                case pool.StartServer(profile):
                    self._start_server(profile)
                case pool.GiveSession(task_key, server_key):
                    self._start_task(self._tasks[task_key], self._servers[server_key])
                case pool.DrainServer(key, why):
                    self._servers.drain(key, why)
                case pool.StopServer(key, why):
                    self._servers.stop(key, why)
                case pool.Refuse(key, why):
                    self._tasks[key].link.error("CONFIGURATION", why)
                    self._forget(self._tasks[key])
        for task in self._waiting():
            if not task.said_wait:
                task.said_wait = True
                task.link.say(f"waiting for a session of Spark profile {task.profile}")

    def _limits_at(self, now: float) -> dict[str, Limits]:
        """What profiles allow now: a server that failed to start isn't kept ready for a while."""
        return {
            name: replace(each, kept=False) if now < self._failing.get(name, now) else each
            for name, each in self._limits.items()
        }

    def _waiting(self) -> list[_Task]:
        return [task for task in self._tasks.values() if task.server is None and not task.pid]

    def _start_server(self, profile: str) -> None:
        try:
            self._servers.start(self._plans[profile])
        except OSError as error:
            why = f"the Spark server of profile {profile} could not be started: {error}"
            self._refuse(profile, why, "")

    def _server_is_ready(self, server: Server) -> None:
        if not any(task.profile == server.profile for task in self._waiting()):
            place = server.place()
            self._forks.visit(lambda: b"%d" % warm.warm_up(place), lambda _: None)

    def _server_died(self, died: Died) -> None:
        profile = died.server.profile
        self._end_pythons(died.server.sessions)
        for task in list(self._tasks.values()):
            if task.server is died.server:
                task.server, task.place, task.close_at = None, None, None
                if task.exit_code is not None:
                    self._answer(task)  # It had ended before; there is no session to close now.
                else:
                    text = f"the Spark server of profile {profile} has died ({died.how})"
                    task.link.error(died.failure, text)
                    signal_fork(task.pid, signal.SIGKILL)
        if not died.was_ready:
            why = f"{died.how}: {died.cause}" if died.cause else died.how
            text = f"the Spark server of profile {profile} did not start ({why})"
            self._refuse(profile, text, died.last_words)

    def _refuse(self, profile: str, why: str, words: str) -> None:
        """Tell all who wait for a server of this profile; whoever comes next tries again."""
        log.warning("no server", extra={"profile": profile, "why": why})
        self._failing[profile] = self._clock() + _FAILING_SECONDS
        for task in self._waiting():
            if task.profile == profile:
                for line in words.splitlines():
                    task.link.say(line)
                task.link.error("SUBMIT_FAILED", why[:_LONGEST_SAID])
                self._forget(task)

    # Tasks and their sessions.

    def _start_task(self, task: _Task, server: Server) -> None:
        request = task.request
        assert request is not None
        place = server.place()
        place = place.for_udfs_by(server.process.python_of(place.session_id))
        try:
            reading, writing = pipe()
            try:
                task.pid = self._forks.fork(
                    task.link,
                    request,
                    lambda: warm.do_task(place, task.job, closed=writing),
                    lambda code: self._task_ended(task, code, reading),
                    keep=(writing,),
                )
            except OSError:
                os.close(reading)
                raise
            finally:
                os.close(writing)
        except OSError as error:
            server.process.forget_python(place.session_id)
            task.link.error("SUBMIT_FAILED", f"no process could be made: {error.strerror}")
            self._forget(task)
            return
        self._let_go(task)
        task.server, task.place = server, place
        server.sessions.add(place.session_id)

    def _task_ended(self, task: _Task, code: int, reading: int) -> None:
        told = take_all(reading).decode("ascii", "replace").splitlines()
        task.pid = 0
        task.exit_code = code
        task.further = tuple(each for each in told if _SESSION_ID.fullmatch(each))
        if task.server is None:
            self._forget(task)  # Its server has died, which its asker was told.
        elif CLOSED in told:
            self._session_closed(task)
        else:
            task.close_at = self._clock()
            task.give_up_at = task.close_at + _CLOSE_SECONDS
            self._close_sessions()

    def _close_sessions(self) -> None:
        """Close what tasks have left open, until it is closed or its server is gone."""
        now = self._clock()
        for task in list(self._tasks.values()):
            if task.place is not None and task.close_at is not None and task.close_at <= now:
                task.close_at = None
                self._close_session(task, task.place)

    def _close_session(self, task: _Task, place: Place) -> None:
        def done(answer: bytes | None) -> None:
            if task.server is None:
                return
            if answer == b"1":
                self._session_closed(task)
                return
            now = self._clock()
            log.warning("session could not be closed", extra={"session": place.session_id})
            self._servers.doubt(task.server)
            if now < task.give_up_at:
                task.close_at = now + _RETRY_SECONDS
            else:
                # Its end is the only sure way; until then its neighbours go on.
                self._servers.drain(task.server.key, "a session in it can't be closed")
                self._session_closed(task)

        self._forks.visit(lambda: b"%d" % close_sessions(place, task.further), done)

    def _session_closed(self, task: _Task) -> None:
        server, place = task.server, task.place
        if server is not None and place is not None:
            server.sessions.discard(place.session_id)
            server.idle_since = self._clock()
            server.process.forget_python(place.session_id)
            self._end_pythons({place.session_id})
        self._answer(task)

    def _answer(self, task: _Task) -> None:
        if task.exit_code is not None:
            task.link.exit(task.exit_code)
        self._forget(task)

    def _forget(self, task: _Task) -> None:
        del self._tasks[task.key]
        self._by_link.pop(task.link, None)
        self._let_go(task)

    @staticmethod
    def _let_go(task: _Task) -> None:
        if task.request is not None:
            task.request.close()
            task.request = None

    # Pythons for UDFs.

    def _start_python(
        self, link: Link, request: Request, session_id: str, arguments: list[str]
    ) -> None:
        def work() -> int:
            # As `python -m pyspark.daemon MODULE` would.
            sys.argv[:] = arguments[1:]
            end_children_with_me()
            pyspark.daemon.manager()
            return 0

        def ended(code: int) -> None:
            python.pid = 0
            link.exit(code)

        python = _Python(pid=0, session_id=session_id)
        try:
            # It makes a group of its own, which the leader of a session may not.
            python.pid = self._forks.fork(link, request, work, ended, session=False)
        except OSError as error:
            link.error("SUBMIT_FAILED", f"no process could be made: {error.strerror}")
            return
        finally:
            request.close()
        self._by_link[link] = python
        server = self._servers.of_session(session_id)
        if server is not None:
            server.pythons += 1

    def _end_pythons(self, sessions: Collection[str]) -> None:
        for known in self._by_link.values():
            if isinstance(known, _Python) and known.session_id in sessions:
                signal_fork(known.pid, signal.SIGKILL)


def main(arguments: list[str] | None = None) -> int:
    """Serve until nobody needs it; 0 too if there is a host at this place already."""
    parser = argparse.ArgumentParser(prog="spark-host", description="Keeps Spark warm for tasks.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="that of its worker daemon")
    parser.add_argument("--spark-home", required=True)
    parser.add_argument("--for-tenants", action="store_true", help="other accounts may ask too")
    options = parser.parse_args(arguments)
    directory = options.home / "run" / f"spark-{options.port}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o711 if options.for_tenants else 0o700)
    host_log.write_to(options.home / "logs" / f"spark-host-{options.port}.log")
    with (directory / "lock").open("w") as lock:
        while not _is_locked(lock):
            if (directory / SOCKET).exists():
                return 0
            time.sleep(_LOCK_REST)  # The one before has closed its door, and is ending.
        for left in directory.glob("server-*"):
            shutil.rmtree(left, ignore_errors=True)
        preload.ready()
        raise_file_limit()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Host(
            directory,
            python=sys.executable,
            command=_command(options.spark_home),
            mode=0o666 if options.for_tenants else 0o600,
        ).run()
    return 0


def _is_locked(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _command(spark_home: str) -> MakeCommand:
    def command(
        conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
    ) -> jvm.Command:
        made = jvm.command(
            ("--class", MAIN_CLASS, "spark-internal"),
            conf=conf,
            properties_file=directory / "server.properties",
            home=spark_home,
            environment=environment,
        )
        if made.archive is None:
            # The next one will start faster.
            archive.build_in_background(spark_home, made.argv[0])
        return made

    return command


if __name__ == "__main__":
    sys.exit(main())
