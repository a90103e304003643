"""The tasks of a Spark host: from the coming of a task proxy until it has been answered.

    asked → waits for a session → forked → ended → its sessions closed (by itself, or by a probe if
    it was killed, until the server runs nothing for it any more) → its proxy gets the exit code

Closing is given up after a minute: the attempt's log says so, and the server takes no further task.
A proxy that is killed meanwhile, at the end of a kill's grace period, is not waited for: its
attempt ends, and closing goes on without it. Jobs that begin in a session after it was closed are
looked for three times, and killed.

Which server a task gets is decided elsewhere (`worker/spark/host/pool.py`). What it does in its
process is `worker/spark/session/warm.py`.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.spark.host.forks import Forks, pipe, signal_fork, take_all
from worker.spark.host.proxy_protocol import Link, Request
from worker.spark.host.servers import Died, Server, Servers
from worker.spark.host.udf_pythons import UdfPythons
from worker.spark.session import shared_driver, warm
from worker.spark.session.own_sessions import CLOSED, DRIVER, INTERPRETER
from worker.spark.session.sessions import Place, close_sessions, end_late_jobs

log = logging.getLogger("orcaflow.spark.tasks")

_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 60.0
_LATE_LOOKS_SECONDS = (2.0, 10.0, 30.0)
_NOT_PROVEN = "Spark may still run something of it; its server ends after its other tasks"
_SESSION_ID = re.compile(r"[0-9a-f-]{36}")


@dataclass(slots=True, kw_only=True)
class WarmTask:
    """A request for a session, until its task proxy has been answered."""

    key: int
    link: Link
    request: Request | None
    """None once it has a process of its own: that has all that it came with."""
    profile: str
    job: str
    wait_reported: bool = False
    pid: int = 0
    """Of its process, while there is one."""
    reading: int = -1
    """The pipe by which its process reports its sessions, while there is one."""
    reported: list[str] = field(default_factory=list)
    server: Server | None = None
    place: Place | None = None
    exit_code: int | None = None
    close_at: float | None = None
    """The time to try, or to try again, to close its sessions."""
    give_up_at: float = 0.0
    """The time to leave that to the end of the server."""

    @property
    def is_waiting(self) -> bool:
        """True if it has no session yet."""
        return self.server is None and not self.pid

    def take_reports(self) -> None:
        """Read what its process has reported so far."""
        if self.pid:
            self.reported += take_all(self.reading).decode("utf-8", "replace").splitlines()


@dataclass(slots=True, kw_only=True)
class LateLooks:
    """The looks to come for jobs that begin after a task's sessions were closed."""

    server: Server
    place: Place
    further: list[str]
    due: list[float]
    """Their times, ascending and never empty."""


class WarmTasks:
    """All tasks of a host."""

    def __init__(
        self, *, forks: Forks, servers: Servers, pythons: UdfPythons, clock: Callable[[], float]
    ) -> None:
        self._forks = forks
        self._servers = servers
        self._pythons = pythons
        self._clock = clock
        self._tasks: dict[int, WarmTask] = {}
        self._by_link: dict[Link, WarmTask] = {}
        self._late_looks: list[LateLooks] = []
        self._keys = 0

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __contains__(self, link: Link) -> bool:
        return link in self._by_link

    def __getitem__(self, key: int) -> WarmTask:
        return self._tasks[key]

    def waiting(self) -> list[WarmTask]:
        """Return the tasks without a session, oldest first."""
        return [task for task in self._tasks.values() if task.is_waiting]

    def add(self, link: Link, request: Request, *, profile: str, job: str) -> None:
        """Take the request of a task proxy."""
        self._keys += 1
        task = WarmTask(key=self._keys, link=link, request=request, profile=profile, job=job)
        self._tasks[task.key] = task
        self._by_link[link] = task

    def signal(self, link: Link, number: int) -> None:
        """Pass a signal on; a task that waits ends by it."""
        task = self._by_link[link]
        if task.is_waiting:
            task.exit_code = -number
            self._answer(task)
        else:
            signal_fork(task.pid, number)

    def on_disconnect(self, link: Link) -> None:
        """Kill the fork, or forget the request, of a task proxy that is gone.

        The sessions of a killed fork are closed as those of any other (`close_sessions`).
        """
        task = self._by_link.pop(link)
        if task.is_waiting:
            self._forget(task)
        else:
            signal_fork(task.pid, signal.SIGKILL)

    def refuse(self, task: WarmTask, failure: str, why: str) -> None:
        """Answer that the task can't have a session."""
        task.link.error(failure, why)
        self._forget(task)

    def start(self, task: WarmTask, server: Server) -> None:
        """Fork the task's process, with a session of its own in this server."""
        request = task.request
        assert request is not None
        place = server.place()
        try:
            place = place.for_udfs_by(server.process.python_of(place.session_id))
            task.reading, writing = pipe()
            try:
                task.pid = self._forks.fork(
                    task.link,
                    request,
                    lambda: warm.do_task(place, task.job, closed=writing),
                    lambda code: self._ended(task, code),
                    keep=(writing,),
                )
            except OSError:
                os.close(task.reading)
                raise
            finally:
                os.close(writing)
        except OSError as error:
            server.process.forget_python(place.session_id)
            self.refuse(task, "SUBMIT_FAILED", f"no process could be made: {error.strerror}")
            return
        _let_go(task)
        task.server, task.place = server, place
        server.sessions.add(place.session_id)
        server.given += 1

    def interpreter_of(self, session_id: str) -> str:
        """The Python that a session's task runs in, if that is another than the host's."""
        for task in self._tasks.values():
            if task.place is not None and task.place.session_id == session_id:
                task.take_reports()
                for line in task.reported:
                    word, _, path = line.partition(" ")
                    if word == INTERPRETER:
                        return path
        return ""

    def proxy_of(self, session_id: str) -> int:
        """The pid of the task proxy of a session's task; 0 if there is none."""
        for task in self._tasks.values():
            if task.place is not None and task.place.session_id == session_id:
                return task.link.pid
        return 0

    def server_died(self, died: Died) -> None:
        """End all tasks with a session in a server that has died."""
        self._late_looks = [each for each in self._late_looks if each.server is not died.server]
        for task in list(self._tasks.values()):
            if task.server is not died.server:
                continue
            task.server, task.place, task.close_at = None, None, None
            if task.exit_code is not None:
                self._answer(task)  # It had ended before; there is no session to close now.
                continue
            profile = died.server.profile
            text = f"the Spark server of profile {profile} has died ({died.how})"
            task.link.error(died.failure, text)
            signal_fork(task.pid, signal.SIGKILL)

    def close_sessions(self) -> None:
        """Close what tasks have left open, until it is closed or its server is gone."""
        now = self._clock()
        for task in list(self._tasks.values()):
            if task.place is not None and task.close_at is not None and task.close_at <= now:
                task.close_at = None
                self._close(task, task.place)
        for looks in list(self._late_looks):
            if looks.due[0] <= now:
                del looks.due[0]
                if not looks.due:
                    self._late_looks.remove(looks)
                self._look_late(looks)

    def _ended(self, task: WarmTask, code: int) -> None:
        task.take_reports()
        os.close(task.reading)
        task.pid = 0
        task.exit_code = code
        if task.server is None:
            self._forget(task)  # Its server has died, which its task proxy was told.
        elif task.reported[-1:] == [CLOSED]:
            self._closed(task)
        else:
            task.close_at = self._clock()
            task.give_up_at = task.close_at + _CLOSE_SECONDS
            self.close_sessions()

    def _close(self, task: WarmTask, place: Place) -> None:
        further = [each for each in task.reported if _SESSION_ID.fullmatch(each)]

        def done(answer: bytes | None) -> None:
            if task.server is None:
                return
            now = self._clock()
            if answer == b"1":
                due = [now + each for each in _LATE_LOOKS_SECONDS]
                self._late_looks.append(
                    LateLooks(server=task.server, place=place, further=further, due=due)
                )
                self._closed(task)
                return
            log.warning("session could not be closed", extra={"session": place.session_id})
            self._servers.doubt(task.server)
            if now < task.give_up_at:
                task.close_at = now + _RETRY_SECONDS
            else:
                # Its end is the only sure way; until then its neighbours go on.
                self._servers.drain(task.server.key, "a session in it can't be closed")
                task.link.say(_NOT_PROVEN)
                self._closed(task)

        def close() -> bytes:
            if DRIVER in task.reported:
                return b"%d" % shared_driver.close_drivers(place, further)
            return b"%d" % close_sessions(place, further)

        if not self._forks.probe(close, done):
            # This host lacks processes; neither the session nor the server is to blame.
            task.close_at = self._clock() + _RETRY_SECONDS
            task.give_up_at += _RETRY_SECONDS

    def _look_late(self, looks: LateLooks) -> None:
        place, further = looks.place, looks.further

        def done(answer: bytes | None) -> None:
            if answer == b"1":
                session = {"session": place.session_id}
                log.warning(
                    "jobs began after their session was closed and were killed", extra=session
                )

        self._forks.probe(lambda: b"%d" % end_late_jobs(place, further), done)

    def _closed(self, task: WarmTask) -> None:
        server, place = task.server, task.place
        if server is not None and place is not None:
            server.sessions.discard(place.session_id)
            server.idle_since = self._clock()
            server.process.forget_python(place.session_id)
            self._pythons.end({place.session_id})
        self._answer(task)

    def _answer(self, task: WarmTask) -> None:
        if task.exit_code is not None:
            task.link.exit(task.exit_code)
        self._forget(task)

    def _forget(self, task: WarmTask) -> None:
        del self._tasks[task.key]
        self._by_link.pop(task.link, None)
        _let_go(task)


def _let_go(task: WarmTask) -> None:
    if task.request is not None:
        task.request.close()
        task.request = None
