"""One server of Spark sessions as a process: its command, its start, and its end.

The JVM is a driver of PySpark that serves Spark Connect too, by a plugin of Spark's. Scripts get
classic sessions through its gateway (`worker/spark/session/shared_driver.py`), SQL gets sessions of
Connect. A probe creates its context.

Runs in the Spark host. The server listens to this computer alone and requires a token. The token
and other secrets are handed over in its environment, which no list of processes shows. When there
should be a server is decided in `worker/spark/host/pool.py`.

Another account may listen at a port before the server does. So no token is sent to a port until the
server's own process is proved to listen there (`ConnectServer.door`). The process keeps the port
until its end, after which its tokens are of no use. The JVM itself writes the port of its gateway.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from common.port_holders import account_name
from common.ports import free_port, is_of, listener_of, ports_of
from worker.spark.host.forking import end_with_parent
from worker.spark.jvm import doors
from worker.spark.jvm.java_command import Command
from worker.spark.jvm.python_sockets import SocketFolder
from worker.spark.session.datasources import HIDDEN

GATEWAY_FILE = "gateway"
"""The file that the JVM writes the port and the secret of its gateway into."""
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # A name, and no token.
PYTHON = "python"
"""The name that a server calls for the UDFs of sessions that have no Python of their own."""
OUT_OF_MEMORY = 3
"""The exit code of a Java machine that was told to exit when its heap is full."""

_PLUGINS = "spark.plugins"
_CONNECT_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_GATEWAY_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PAGE_TOKEN = "page.token"  # noqa: S105  # The name of a file.
_KEY_BYTES = 32
_LOG_TAIL_BYTES = 256_000
_TAIL_LINES = 15
_LONGEST_LOG_BYTES = 20_000_000
_NOISE = re.compile(
    r"\s+at |\s+\.\.\. \d+ more|\S+ \S+ INFO |WARNING: Using incubator|Using Spark's default log4j"
    r"|\S+ \S+ WARN (Utils: (Your hostname|Set SPARK_LOCAL_IP)|NativeCodeLoader|MetricsSystem)"
    r"|Setting Spark log level"
    # What follows from a session that could not be had.
    r"|\S+ \S+ \w+ ErrorUtils: |.*\[INVALID_HANDLE\.SESSION_CLOSED\]"
)
_UNCAUGHT = 'Exception in thread "main" '
_THROWN = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error)\b")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""Of a URI, `local:` and `hdfs:` among them, which Spark looks for itself."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_OWN_CONF = {
    # A heap that is full fails everybody's next query; a dead server is replaced.
    "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    "spark.connect.grpc.binding.address": doors.LOOPBACK,
    "spark.connect.grpc.port.maxRetries": "0",
    "spark.ui.showConsoleProgress": "false",
    # Each task asks for the list of jobs now and then. Stages are to be there as long as their job.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "500",
    "spark.sql.ui.retainedExecutions": "200",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    "spark.connect.progress.reportInterval": "500ms",
    # The host closes sessions. Spark would close one for which it ran nothing for an hour, be its
    # task busy without Spark, or its stream silent.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    # What PySpark sets for a context that it creates (`pyspark/core/context.py:DEFAULT_CONFIGS`).
    "spark.serializer.objectStreamReset": "100",
    "spark.rdd.compress": "True",
    # The pages of Spark's UI show options of readers, a password among them, in the clear.
    "spark.redaction.string.regex": HIDDEN,
}
_POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="default">
    <schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare>
  </pool>
</allocations>
"""
"""The mode of Spark's default pool. Without this file it is FIFO, whatever the scheduler's mode."""
_POOLS_FILE = "pools.xml"
# By its pages a session is closed: they show what runs for it yet, and kill that, for who has the
# page token. No file of the installation may have it otherwise; `common.spark_config` refuses a
# profile that does.
_PAGES_CONF = {
    "spark.ui.enabled": "true",
    "spark.ui.threadDumpsEnabled": "true",
    "spark.ssl.ui.enabled": "false",
}


class Door(Enum):
    """The program that listens at a server's port."""

    CLOSED = "closed"
    """None, or the server itself while its pages are not open yet."""
    OWN = "own"
    TAKEN = "taken"


class NotOwnPortError(Exception):
    """The server's own process does not listen at its port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """The plan of a profile's servers."""

    profile: str
    revision: str
    master: str
    conf: Mapping[str, str]
    jars: str
    packages: str
    driver_memory: str
    python: str
    start_timeout: float
    keeps_warehouse: bool = False
    """The profile says where managed tables are."""
    shares: bool = False
    """Its sessions share generated code (`worker/spark/session/sharing.py`)."""


MakeCommand: TypeAlias = Callable[[Mapping[str, str], Path, Mapping[str, str]], Command]
"""Makes the command of a server from its conf, its directory and its environment."""


class ConnectServer:
    """A server from its start to its end."""

    def __init__(
        self,
        plan: ServerPlan,
        *,
        key: int,
        directory: Path,
        command: MakeCommand,
        environment: Mapping[str, str],
        proxy: Sequence[str],
    ) -> None:
        """Start it; ready it is much later.

        Raises `OSError` or `NoSparkError` if the process can't be started.
        """
        _check_jars(plan)
        self.plan = plan
        self.key = key
        self.directory = directory
        self.port, self.ui_port = free_port(), free_port()
        self.token = secrets.token_urlsafe(24)
        home = environment.get("SPARK_HOME", "")
        self._page_key = secrets.token_bytes(_KEY_BYTES) if doors.can_guard_pages(home) else b""
        self.page_token = doors.page_token(self._page_key) if self._page_key else ""
        """The token for its pages; "" if its Spark is too old to want one."""
        self.application_id = ""
        self.gateway: tuple[int, str] | None = None
        """The port and the secret of its gateway, once the JVM has written them."""
        self._has_page = False
        self.log = directory / "server.log"
        # Called by another name for each session, which tells whose UDFs a Python is for.
        self._python = directory / PYTHON
        # Executors elsewhere have no host to ask for their Pythons, and have to reach the driver.
        self.is_alone = plan.master.startswith("local")
        # Its pages are served at this address alone, if there is one, else at all.
        address = doors.LOOPBACK if self.is_alone else environment.get(doors.LOCAL_ADDRESS, "")
        self._ui_host = address or doors.LOOPBACK
        with contextlib.ExitStack() as undone:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Its settings, a password among them, must not stay if this fails.
            undone.callback(shutil.rmtree, directory, ignore_errors=True)
            script = f'#!/bin/sh\nexec {shlex.join(proxy)} python "$0" "$@"\n'
            scratch_of(directory).mkdir(mode=0o700)
            self._sockets = SocketFolder(scratch_of(directory))
            undone.callback(self._sockets.close)
            (directory / _POOLS_FILE).write_text(_POOLS, encoding="ascii")
            self._python.write_text(script, encoding="utf-8")
            self._python.chmod(0o700)
            # For people, who may see the pages too.
            (directory / _PAGE_TOKEN).touch(mode=0o600)
            (directory / _PAGE_TOKEN).write_text(self.page_token, encoding="ascii")
            own = str(self._python) if self.is_alone else plan.python
            made = command(
                self._conf(),
                directory,
                {
                    **environment,
                    TOKEN_VARIABLE: self.token,
                    _GATEWAY_VARIABLE: str(directory / GATEWAY_FILE),
                    **({doors.LOCAL_ADDRESS: address} if address else {}),
                    "PYSPARK_PYTHON": own,
                    # Looks data sources up.
                    "PYSPARK_DRIVER_PYTHON": own,
                    "SPARK_LOCAL_DIRS": str(directory / "local"),
                    # Of its Pythons; Java has an option for that.
                    "TMPDIR": str(scratch_of(directory)),
                },
            )
            self.process = self._started(made)
            undone.callback(_end, self.process)
            self.pidfd = os.pidfd_open(self.process.pid)
            undone.pop_all()

    def python_of(self, session_id: str) -> str:
        """Return the program to start for the UDFs of a session; "" leaves it to the server."""
        if not self.is_alone:
            return ""
        path = self.directory / session_id
        path.symlink_to(self._python.name)
        return str(path)

    def forget_python(self, session_id: str) -> None:
        """The session is over."""
        with contextlib.suppress(OSError):
            (self.directory / session_id).unlink()

    @property
    def ui_link(self) -> str:
        return f"http://{self._ui_host}:{self.ui_port}"

    def listens(self) -> bool:
        """Return True once its gateway is open; a probe creates the context then."""
        if self.gateway is None:
            path = self.directory / GATEWAY_FILE
            # The JVM renames a whole file into place.
            with contextlib.suppress(FileNotFoundError):
                self.gateway = _read_gateway(path.read_bytes())
                path.unlink()
        return self.gateway is not None

    def door(self) -> Door:
        """Return the program at the port. A token may be sent only if it is the server itself.

        Raises `OSError` if that can't be found out now.
        """
        listener = listener_of(self.port)
        if listener is None:
            return Door.CLOSED
        if not is_of(listener, self.process.pid):
            return Door.TAKEN
        return Door.OWN if self._has_page or self._find_page() else Door.CLOSED

    def check_door(self) -> None:
        """Check that a token may be sent to the port. Raises `NotOwnPortError` or `OSError`."""
        if self.door() is not Door.OWN:
            raise NotOwnPortError(f"its process does not listen at its port {self.port}")

    def taker(self) -> str:
        """Return the account whose program listens at the port."""
        listener = listener_of(self.port)
        return "an account that has left it" if listener is None else account_name(listener.uid)

    def _find_page(self) -> bool:
        """Take the port of its pages from its own sockets: Spark passes over a port in use."""
        later = [each for each in ports_of(self.process.pid) if each >= self.ui_port]
        page = min((each for each in later if each != self.port), default=None)
        if page is None:
            return False
        self.ui_port, self._has_page = page, True
        return True

    def memory_bytes(self) -> int:
        """Return its memory in use, 0 if it is gone."""
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii")
        except OSError:
            return 0
        return int(text.split()[1]) * _PAGE_BYTES

    def stop(self, *, now: bool = False) -> None:
        """Tell it to end; its end is seen by `pidfd`."""
        number = signal.SIGKILL if now else signal.SIGTERM
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Close the descriptors; the process must have ended."""
        os.close(self.pidfd)
        self._sockets.close()

    def close_input(self) -> None:
        """Close the pipe whose end ends the JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def cut_log(self) -> None:
        """Begin its log anew if that is long: a server runs for days."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > _LONGEST_LOG_BYTES:
                os.truncate(self.log, 0)

    def last_words(self) -> str:
        """The end of its log that says why it failed, in some lines."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join([line for line in lines if _is_telling(line)][-_TAIL_LINES:])

    def _conf(self) -> dict[str, str]:
        plan = self.plan
        conf = {
            **_OWN_CONF,
            "spark.scheduler.allocation.file": (self.directory / _POOLS_FILE).as_uri(),
            **doors.settings(plan.master),
            **self._sockets.settings(plan.master),
            **plan.conf,
            **_PAGES_CONF,
            **self._page_conf(),
            "spark.master": plan.master,
            "spark.app.name": f"orcaflow {plan.profile}",
            "spark.driver.memory": plan.driver_memory,
            "spark.connect.grpc.binding.address": doors.LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.port": str(self.ui_port),
        }
        conf[_PLUGINS] = ",".join(filter(None, (conf.get(_PLUGINS, ""), _CONNECT_PLUGIN)))
        if plan.jars:
            conf["spark.jars"] = plan.jars
        if plan.packages:
            conf["spark.jars.packages"] = plan.packages
        own = conf.get("spark.driver.defaultJavaOptions", "")
        if "ExitOnOutOfMemoryError" not in own:
            conf["spark.driver.defaultJavaOptions"] = f"{own} -XX:+ExitOnOutOfMemoryError"
        return conf

    def _page_conf(self) -> dict[str, str]:
        """Return the settings about a kill: by token, or by nobody."""
        if not self._page_key:
            return {"spark.ui.killEnabled": "false"}
        return {"spark.ui.killEnabled": "true", **doors.page_settings(self._page_key)}

    def _started(self, made: Command) -> subprocess.Popen[bytes]:
        host = os.getpid()
        with self.log.open("ab") as log:
            return subprocess.Popen(
                made.argv,
                # The JVM ends when this pipe is closed.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=dict(made.environment),
                start_new_session=True,
                # The host has no threads: this can't stand still.
                preexec_fn=lambda: end_with_parent(host),  # noqa: PLW1509
            )


def _read_gateway(content: bytes) -> tuple[int, str]:
    """Read what `PythonGatewayServer` writes: the port, the length of the secret, the secret."""
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode("utf-8")


def scratch_of(directory: Path) -> Path:
    """Return the folder for temporary files of a server with this directory; it goes with it."""
    return directory / "tmp"


def main_cause(last_words: str) -> str:
    """The one line that says most of why a server has ended."""
    lines = last_words.splitlines()
    final = [line for line in lines if line.startswith(_UNCAUGHT)]
    thrown = [line for line in lines if _THROWN.match(line)]
    told = (final or thrown or lines or [""])[-1]
    return told.removeprefix(_UNCAUGHT).removeprefix("Caused by: ").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _check_jars(plan: ServerPlan) -> None:
    """Spark itself would only warn, and the tasks miss their classes later."""
    for jar in filter(None, (each.strip() for each in plan.jars.split(","))):
        path = jar.removeprefix("file://").removeprefix("file:")
        if (
            not _SCHEME.match(path)
            and not any(sign in path for sign in "*?[{")
            and not Path(path).exists()
        ):
            raise FileNotFoundError(f"spark.profiles.{plan.profile}.jars: there is no file {path}")


def _is_telling(line: str) -> bool:
    """True if a line is what an exception says, and not where in Spark's own code it was."""
    return bool(line.strip()) and not _NOISE.match(line)
