"""A real Spark host for a test module, with real Connect servers and task proxies, but no daemon.

What starts it and tells it its profiles is `worker.loops.host_loop`, as in a daemon. Whoever needs to
know how things stand is asked directly: the kernel for processes and open files, a server's own
REST API for its jobs. Scripts tell the test how far they are by what they print, and wait for it
by reading a FIFO.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from common.spark_config import SparkConfig, SparkProfile
from tests import light_jvm
from worker.loops.host_loop import HostLoop
from worker.spark.host import folders, task_proxy
from worker.spark.jvm import doors, properties
from worker.spark.jvm.installation import home_of_spark
from worker.spark.session.sessions import Place, end_late_jobs
from worker.spark.session.sharing import ISOLATED
from worker.workspace import Account

PORT = 4321
PRELUDE = """\
import json, os, sys
def tell(*values):
    print("=", json.dumps(values), flush=True)
def wait():
    print("ready", flush=True)
    open("go").read()
"""
"""The beginning of every script: `tell` reports values to the test, `wait` waits for it."""

GOOD = """
from pyspark.sql.functions import udf
plus_one = udf(lambda n: n + 1, "long")
tell(sum(row[0] for row in spark.range(10).select(plus_one("id")).collect()))
"""
_REST = "reflect('java.lang.Thread', 'sleep', 20L) AS rest"
LONG_JOB = (
    f"""spark.range(0, 10**15, 1, 4).selectExpr("{_REST}").selectExpr("count(rest)").collect()"""
)
"""Goes on for ever, and leaves the processor to the tests."""
SERVER = "pyspark-shell"
"""The argument by which the command of a server is recognized."""
_ASK = str(Path(task_proxy.__file__))
_SEEN = {
    name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ
}


def until(is_so: Callable[[], object], *, within: float = 300) -> None:
    """Look until it is so; fails when it is not so for very long."""
    begun = time.monotonic()
    while not is_so():
        waited = time.monotonic() - begun
        assert waited < within, "waited in vain"
        # Between looks at other processes' effects; no test's outcome depends on its length. A look
        # may ask servers, who need the processor for what is awaited.
        time.sleep(0.02 if waited < 1 else 0.1)


def late_jobs_end(place: Place, others: Collection[str] = ()) -> bool:
    """Look for late jobs as the host does: again, if a page takes longer than a look waits."""
    found: list[bool] = []

    def looks() -> bool:
        with suppress(TimeoutError):
            found.append(end_late_jobs(place, others))
        return bool(found)

    until(looks)
    return found[0]


def a_profile(**changes: Any) -> SparkProfile:
    """A profile small enough for several on one machine, whose JVM compiles lightly."""
    # A JVM starts slowly beside others.
    given: dict[str, Any] = {
        "master": "local[2]",
        "driver_memory": "512m",
        "start_timeout_seconds": 240,
        **changes,
    }
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": light_jvm.LIGHT,
        **given.pop("conf", {}),
    }
    return SparkProfile(conf=conf, **given)


ANOTHER = str(Path(sys.executable).with_name("python3.11"))
"""The same environment by another path, which is another interpreter to everybody."""

# No server goes because it was idle: tests compare the host's processes before and after.
_LONG_IDLE_SECONDS = 36_000

WARM_PROFILES = {
    "default": a_profile(idle_timeout_seconds=_LONG_IDLE_SECONDS),
    "apart": a_profile(
        idle_timeout_seconds=_LONG_IDLE_SECONDS, python=ANOTHER, conf={ISOLATED: "true"}
    ),
}
"""Those of the fixture `warm`."""


class Attempt:
    """A task proxy, and what is left of its attempt."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process

    @property
    def output(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def reason(self) -> str:
        path = self.folder / "job.reason"
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    @property
    def facts(self) -> dict[str, Any]:
        path = self.folder / "facts.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @property
    def failure(self) -> str | None:
        found: str | None = self.facts.get("failure")
        return found

    def says(self, text: str) -> bool:
        return text in self.output

    def ready(self) -> Attempt:
        """Wait until it waits."""
        return self.told("ready")

    def told(self, text: str) -> Attempt:
        """Wait until it has printed this; fails if it ends without."""

        def is_so() -> bool:
            is_over = self.process.poll() is not None
            assert not is_over or self.says(text), self.output
            return self.says(text)

        until(is_so)
        return self

    def go_on(self) -> None:
        """Let a script go on that waits at its FIFO."""
        with (self.folder / "go").open("w") as gate:
            gate.write("go")

    def end(self, *, within: float = 400) -> int:
        """The exit code, as a supervisor sees it."""
        return self.process.wait(timeout=within)

    @property
    def values(self) -> list[Any]:
        """All that it has told."""
        lines = (line for line in self.output.splitlines() if line.startswith("= "))
        return [value for line in lines for value in json.loads(line[2:])]

    @property
    def pids(self) -> list[int]:
        """The live processes that carry its marker, without the task proxy."""
        marker = f"ORCAFLOW_EXECUTE_PATH={self.folder}\0".encode()
        return [pid for pid in processes() if pid != self.process.pid and marker in environ(pid)]


class SparkHost:
    """A host in a home of its own."""

    def __init__(
        self,
        home: Path,
        profiles: Mapping[str, SparkProfile],
        *,
        seen: Mapping[str, str] | None = None,
        **config: Any,
    ) -> None:
        """`seen`: variables of the daemon that the host sees too; `config` is Spark's."""
        self.home = home
        self._seen = seen or {}
        self.directory = folders.own_folder(home, PORT)
        self._begin()
        self.loop: HostLoop
        self.follow(profiles, **config)

    def _begin(self) -> None:
        self._count = 0
        self._attempts: list[Attempt] = []
        self._attempts_in = self.home

    # The host

    def follow(self, profiles: Mapping[str, SparkProfile], **config: Any) -> None:
        """As a daemon does when it starts, with these profiles."""
        if hasattr(self, "loop"):
            self.loop.close()
        self.loop = a_loop(
            self.home,
            SparkConfig(profiles=dict(profiles), **config),
            environment={**_SEEN, **self._seen},
        )
        self.loop.want()
        self.await_link()

    def await_link(self) -> None:
        """As long as it rests briefly, the loop waits for a host."""
        until(lambda: self.loop.run_once() >= timedelta(seconds=1))

    @property
    def address(self) -> str:
        """The socket that its task proxies ask."""
        return self.loop.address

    @property
    def pid(self) -> int:
        return listener(self.address)

    def children(self) -> dict[int, str]:
        """Its processes, with their command."""
        return children(self.pid)

    def servers(self, profile: str = "") -> list[int]:
        """The pids of its Java machines, or of those for one profile."""
        wanted = {
            str(folder)
            for folder, conf in _servers(self.directory).items()
            if conf["spark.app.name"] == f"orcaflow {profile}" or not profile
        }
        return [
            pid
            for pid, told in self.children().items()
            if SERVER in told and any(f"{folder}/" in told for folder in wanted)
        ]

    def pythons(self) -> list[int]:
        """All its processes but the Java machines: tasks, UDFs, and those who stand for them."""
        return [pid for pid in self.family() if SERVER not in command(pid)]

    def family(self) -> list[int]:
        """All that descends from it, without itself."""
        all_parents = _parents()
        found, parents = set(), {self.pid}
        while parents:
            parents = {pid for pid, above in all_parents.items() if above in parents}
            # What makes the JVM's archive belongs to no task and no server.
            parents -= {pid for pid in parents if "worker.spark.jvm.cds_building" in command(pid)}
            found |= parents
        return sorted(found)

    def open_files(self) -> int:
        return len([*Path(f"/proc/{self.pid}/fd").iterdir()])

    def log(self) -> list[dict[str, Any]]:
        path = self.home / "logs" / f"spark-host-{PORT}.log"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def running_jobs(self) -> list[dict[str, Any]]:
        """The running jobs of all servers."""
        return running_jobs(self.directory)

    def places(self) -> list[Place]:
        """The places of all servers, without a session."""
        return [_place(conf) for conf in _servers(self.directory).values()]

    def places_of_jobs(self) -> set[Place]:
        """The sessions that run jobs, by the tags of these."""
        return {
            replace(_place(conf), session_id=tag.partition("_Session_")[2].partition("_")[0])
            for conf in _servers(self.directory).values()
            for job in _running_jobs(conf)
            for tag in job["jobTags"]
            if "_Session_" in tag
        }

    @property
    def is_quiet(self) -> bool:
        """True if it serves no task, and no server runs a job."""
        return self.pythons() == [] and self.running_jobs() == []

    # Tasks

    def start(
        self,
        script: str,
        *,
        profile: str = "default",
        stdout: int | None = None,
        through: tuple[str, ...] = (),
        account: Account | None = None,
        python: str = sys.executable,
        **changes: Any,
    ) -> Attempt:
        """Start a task proxy as a supervisor does; `changes` are those of its job.

        `through`: a command that becomes the one that follows it. `account`: another than this
        one, with a `python` that it may use.
        """
        self._count += 1
        folder = self._attempts_in / f"attempt-{self._count}"
        folder.mkdir()
        os.mkfifo(folder / "go")
        (folder / "script.py").write_text(PRELUDE + textwrap.dedent(script), encoding="utf-8")
        (folder / "params.json").write_text("{}")
        environment = {**_SEEN, **changes.pop("environment", {})}
        job = {
            "kind": "worker.spark.session.script",
            "name": "a task",
            "tag": f"orcaflow-abc-{self._count}",
            "profile": profile,
            "script": str(folder / "script.py"),
            **changes,
        }
        (folder / "job.json").write_text(json.dumps(job))
        if account is not None:
            for each in (folder, *folder.iterdir()):
                os.chown(each, account.uid, account.gid)
            folder.chmod(0o700)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                (
                    *(*through, python, "-I", "-S", _ASK, self.address),
                    *("task", profile, str(folder / "job.json")),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                cwd=folder,
                env={
                    **environment,
                    "ORCAFLOW_EXECUTE_PATH": str(folder),
                    "ORCAFLOW_SPARK_FACTS": str(folder / "facts.json"),
                    "ORCAFLOW_PARAMS": str(folder / "params.json"),
                },
                start_new_session=True,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else account.groups,
            )
        attempt = Attempt(folder, process)
        self._attempts.append(attempt)
        return attempt

    def run(self, script: str, **changes: Any) -> tuple[int, Attempt]:
        """Run a script to its end: its exit code and what is left of it."""
        attempt = self.start(script, **changes)
        return attempt.end(), attempt

    def works(self, **changes: Any) -> bool:
        """Run a good task with a UDF; fails if it does not succeed."""
        code, attempt = self.run(GOOD, **changes)
        assert (code, attempt.values) == (0, [55]), attempt.output
        return True

    # The end

    def stop(self) -> None:
        """As a daemon that stops for good; nothing of it is left when this returns."""
        gone = [*self.family(), self.pid]
        self.loop.stop_host()
        until(lambda: not any(lives(pid) for pid in gone))

    def kill_proxies(self) -> None:
        """End what a test that has failed has left behind."""
        for attempt in self._attempts:
            if attempt.process.poll() is None:
                attempt.process.kill()
                attempt.process.wait()

    def close(self) -> None:
        self.kill_proxies()
        with suppress(OSError):  # The test has ended it already.
            self.stop()
        self.loop.close()


class TenantHost(SparkHost):
    """The host of one tenant; those of one home share the loop, as in a daemon."""

    def __init__(self, home: Path, loop: HostLoop, account: Account, python: str) -> None:
        """`python`: an interpreter that the account may use."""
        self.home = home
        self.loop = loop
        self.account = account
        self.directory = folders.tenant_folder(folders.own_folder(home, PORT), account.uid)
        self._python = python
        self._begin()
        self._attempts_in = home / f"tasks-{account.name}"
        self._attempts_in.mkdir(mode=0o711)
        self.ask()

    def ask(self) -> None:
        """Wait for its host, as a task does."""
        self.loop.want(self.account)
        self.await_link()

    @property
    def address(self) -> str:
        return folders.socket_for(self.loop.address, self.account)

    def start(self, script: str, **changes: Any) -> Attempt:
        return super().start(script, account=self.account, python=self._python, **changes)


@contextmanager
def spark_host(
    home: Path, profiles: Mapping[str, SparkProfile] | None = None, **config: Any
) -> Iterator[SparkHost]:
    host = SparkHost(home, profiles or {"default": a_profile()}, **config)
    try:
        yield host
    finally:
        host.close()


def a_loop(home: Path, config: SparkConfig, **changes: Any) -> HostLoop:
    """The daemon's end of a host in this home."""
    given: dict[str, Any] = {
        "home": home,
        "port": PORT,
        "python": sys.executable,
        "spark_home": home_of_spark("", _SEEN),
        "environment": _SEEN,
        "data_dir": home / "data",
        **changes,
    }
    return HostLoop(config, **given)


def running_jobs(directory: Path) -> list[dict[str, Any]]:
    """The running jobs of all servers of a host, from their own REST API."""
    return [job for conf in _servers(directory).values() for job in _running_jobs(conf)]


def children(pid: int) -> dict[int, str]:
    """The processes that another has started, with their command."""
    return {each: command(each) for each, above in _parents().items() if above == pid}


def listener(address: str) -> int:
    """The pid of the process that listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(address)
        told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(told[:4], sys.byteorder)


def processes() -> list[int]:
    """All that live; zombies are over."""
    return [*_parents()]


def listens_at(pid: int) -> list[tuple[str, int]]:
    """The addresses and ports that a process listens at, as the kernel knows them."""
    own = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                address, _, port = fields[1].partition(":")
                words = [bytes.fromhex(address[n : n + 8])[::-1] for n in range(0, len(address), 8)]
                found.append((_address(b"".join(words)), int(port, 16)))
    return found


def _address(packed: bytes) -> str:
    found = ipaddress.ip_address(packed)
    return str(getattr(found, "ipv4_mapped", None) or found)


def memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def lives(pid: int) -> bool:
    return _is_life(_stat(pid))


def parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def command(pid: int) -> str:
    return _proc(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def environ(pid: int) -> bytes:
    return b"\0" + _proc(pid, "environ")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """The parents of all that live, from one look at each."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    found = ((pid, _stat(pid)) for pid in pids)
    return {pid: int(fields[1]) for pid, fields in found if _is_life(fields)}


def _is_life(fields: list[bytes]) -> bool:
    """True unless a process has ended, by its state."""
    return fields[:1] not in ([], [b"Z"], [b"X"])


def _stat(pid: int) -> list[bytes]:
    """From the state on."""
    return _proc(pid, "stat").rpartition(b")")[2].split()


def _proc(pid: int, name: str) -> bytes:
    # Tests look at all processes many times a second, for which `Path` takes twice as long.
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def _servers(directory: Path) -> dict[Path, dict[str, str]]:
    """The directory and the settings of each server of a host."""
    files = directory.glob("server-*/server.properties")
    return {file.parent: properties.read(file.read_text(encoding="utf-8")) for file in files}


def _running_jobs(conf: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        about = f"{_page(conf)}/api/v1/applications/{_application(conf)}"
        found: list[dict[str, Any]] = _json_of(f"{about}/jobs?status=running", page_token(conf))
    except (OSError, ValueError):
        return []  # It is starting, or has just gone.
    return found


def _place(conf: Mapping[str, str]) -> Place:
    return Place(
        port=int(conf["spark.connect.grpc.binding.port"]),
        token="",
        session_id="",
        application_id=_application(conf),
        ui_link=_page(conf),
        page_token=page_token(conf),
    )


def _page(conf: Mapping[str, str]) -> str:
    return f"http://127.0.0.1:{conf['spark.ui.port']}"


def _application(conf: Mapping[str, str]) -> str:
    return _application_at(_page(conf), page_token(conf))


# A server has one for life, and tests look at its jobs many times a second.
@cache
def _application_at(page: str, token: str) -> str:
    (application,) = _json_of(f"{page}/api/v1/applications", token)
    return str(application["id"])


def page_token(conf: Mapping[str, str]) -> str:
    """The token that a server's pages want, from its settings, which root and its account read."""
    (encoded,) = (text for key, text in conf.items() if key.endswith("JWSFilter.param.secretKey"))
    return doors.page_token(base64.urlsafe_b64decode(encoded))


def _json_of(address: str, token: str) -> Any:
    request = urllib.request.Request(address, headers=dict(doors.headers(token)))
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)
