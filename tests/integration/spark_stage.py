"""The parts of a Spark host below its loop, each of them real, driven step by step by a *scene*.

Its servers are programs that listen at their port and never respond. Its time goes on when the scene
says so.
"""

from __future__ import annotations

import importlib
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.spark_scene import PATIENCE_SECONDS, scenes
from worker.spark.host.connect_server import Door, ServerPlan
from worker.spark.host.forks import Forks, Watch
from worker.spark.host.pool import ServerState
from worker.spark.host.proxy_protocol import Link, Request
from worker.spark.host.servers import Died, Server, Servers
from worker.spark.host.udf_pythons import UdfPythons
from worker.spark.host.warm_tasks import WarmTask, WarmTasks
from worker.spark.jvm.java_command import Command

_LISTEN = """
import os, signal, socket, struct, sys
door, page = map(int, sys.argv[1:])
doors = [socket.create_server(("127.0.0.1", door))]
while len(doors) < 2:
    try:
        doors.append(socket.create_server(("127.0.0.1", page)))
    except OSError:
        page += 1  # As Spark does it.
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".new", "wb") as file:
    file.write(struct.pack("!ii", door, 6) + b"secret")
os.rename(path + ".new", path)
signal.pause()
"""
_TURN_SECONDS = 0.02


def play(module: str, name: str, directory: str) -> None:
    """Play a scene in this process."""
    importlib.import_module(module)
    scenes[name](Stage(Path(directory)))


@dataclass(slots=True, kw_only=True)
class Asked:
    """A warm task, and the task proxy's end of its link."""

    task: WarmTask
    proxy: socket.socket

    def told(self) -> list[str]:
        """The lines that the task proxy has received since the last call."""
        try:
            return self.proxy.recv(65_536).decode().splitlines()
        except BlockingIOError:
            return []


class Stage:
    """The parts of a host, with the recorded effects of its callbacks."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_000.0
        self.errors: list[str] = []
        self.died: list[tuple[Died, bool]] = []
        """Each with a flag: true if its files existed by then."""
        logging.getLogger("orcaflow").addHandler(_Errors(self.errors))
        self.directory = directory
        watch = Watch()
        self.forks = Forks(watch, clock=lambda: self.now)
        self.servers = Servers(
            directory,
            command=self._command,
            environment=os.environ,
            proxy=("/bin/true",),
            watch=watch,
            forks=self.forks,
            clock=lambda: self.now,
            ready=lambda _: None,
            ended=self._ended,
        )
        self.tasks = WarmTasks(
            forks=self.forks,
            servers=self.servers,
            pythons=UdfPythons(self.forks),
            clock=lambda: self.now,
        )
        self._watch = watch
        self.before_start: Callable[[int, int], None] = lambda _port, _page: None
        """Called with the ports of a server that is about to start."""

    def start(self) -> Server:
        """Start a server."""
        self.servers.start(a_plan())
        return self.servers[self.servers.seen()[-1].key]

    def server(self) -> Server:
        """Start a server and mark it ready."""
        server = self.start()
        server.state = ServerState.READY
        server.look_at = self.now + 3_600
        self.until(lambda: server.process.listens() and server.process.door() is Door.OWN)
        return server

    def task(self) -> Asked:
        """Add a task without a job, which therefore fails as soon as it is started."""
        own, proxy = socket.socketpair()
        proxy.setblocking(False)
        request = Request(
            what="task",
            arguments=("default", "/no/such/job"),
            directory="/",
            environment={},
            files=tuple(os.open(os.devnull, os.O_RDWR) for _ in range(3)),
        )
        link = Link(own)
        self.tasks.add(link, request, profile="default", job="/no/such/job")
        return Asked(task=self.tasks.waiting()[-1], proxy=proxy)

    def turn(self) -> None:
        """Take one turn of the host's loop, without its decisions."""
        self._watch.wait(_TURN_SECONDS)
        self.servers.look_after()
        self.forks.end_late_probes()
        self.tasks.close_sessions()

    def until(self, is_so: Callable[[], object], *, each_turn: float = 0.0) -> None:
        """Take turns until the condition holds, each this many seconds after the one before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, "waited in vain"
            self.now += each_turn
            self.turn()

    @contextmanager
    def without_files(self) -> Iterator[None]:
        """Let this process open no files meanwhile, and so fork no probe."""
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)

    def _command(
        self, conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
    ) -> Command:
        self.before_start(*ports_in(conf))
        return mute(conf, directory, environment)

    def _ended(self, died: Died) -> None:
        self.died.append((died, died.server.process.directory.exists()))
        self.tasks.server_died(died)


class _Errors(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(self.format(record))


def a_plan() -> ServerPlan:
    return ServerPlan(
        profile="default",
        revision="1",
        master="local[2]",
        conf={},
        jars="",
        packages="",
        driver_memory="1g",
        python=sys.executable,
        start_timeout=60,
    )


def ports_in(conf: Mapping[str, str]) -> tuple[int, int]:
    """Return the ports of a server and of its page."""
    return int(conf["spark.connect.grpc.binding.port"]), int(conf["spark.ui.port"])


def mute(conf: Mapping[str, str], _directory: Path, environment: Mapping[str, str]) -> Command:
    """Return the command of a server that never responds."""
    argv = (sys.executable, "-I", "-S", "-c", _LISTEN, *map(str, ports_in(conf)))
    return Command(argv=argv, environment=environment, archive=None)
