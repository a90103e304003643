"""Keeps the Spark host of a worker there: starts it when it is needed, and tells it what is wanted.

The host (`worker/spark/host/__main__.py`) outlives the daemon, so a daemon that starts may find one
at work; then it only says who follows it now. No host is started before the first task or a profile
in `spark.prewarm` asks for one: who runs no Spark pays nothing. No threads and no time of its own:
a service calls `run_once`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

from common.spark_config import SparkConfig, SparkProfile
from worker.processes.marks import HELPER, give
from worker.spark.host.connect_server import ServerPlan
from worker.spark.host.forking import room_for_marker
from worker.spark.host.pool import Limits
from worker.spark.host.preload import ENVIRONMENT
from worker.spark.host.proxy_protocol import request_bytes
from worker.spark.session import sharing

SOCKET = "host.sock"
OUTPUT = "host.out"

log = logging.getLogger(__name__)

_IDLE = timedelta(seconds=1)
_COMING = timedelta(milliseconds=20)
_AGAIN = timedelta(seconds=5)
_PATIENCE_SECONDS = 5.0
_SAID_CHARS = 300


class HostLoop:
    """The daemon's end of its Spark host."""

    name = "spark-host"

    def __init__(
        self,
        config: SparkConfig,
        *,
        home: Path,
        port: int,
        python: str,
        spark_home: str,
        environment: Mapping[str, str],
        data_dir: Path,
        for_tenants: bool = False,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`environment`: the part of the daemon's that tasks may see. `wake` ends a rest.

        `for_tenants`: other accounts may ask for processes too, each for its own.
        """
        self._home = home
        self._port = port
        self._python = python
        self._spark_home = spark_home
        self._environment = environment
        self._for_tenants = for_tenants
        self._wake = wake
        self._folder = folder(home, port)
        profiles = wanted(config, python=python, data_dir=data_dir)
        self._document = json.dumps({"profiles": profiles})
        self._wanted = bool(config.prewarmed())
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._was_followed = False

    @property
    def address(self) -> str:
        """The socket that task proxies go to."""
        return str(self._folder / SOCKET)

    def want(self) -> None:
        """A task is about to ask the host; called on any thread, and never waits."""
        if not self._wanted or self._link is None:
            self._wanted = True
            self._wake()

    def run_once(self) -> timedelta:
        """See that the host is there if it is wanted; how long to rest."""
        if self._link is not None and not self._is_open(self._link):
            log.warning("spark host is gone")
            self._link.close()
            self._link = None
        ended = None if self._process is None else self._process.poll()
        if ended is not None:
            self._process = None
        if self._link is None:
            # One that was found at work is followed too, wanted or not: it waits for that.
            self._link = self._connected()
            if self._link is not None:
                self._was_followed = True
                log.info("spark host is followed")
        if self._link is None and self._wanted:
            if ended is not None and not self._was_followed:
                told = {"exit_code": ended, "said": self._last_words()}
                log.warning("spark host did not start", extra=told)
                return _AGAIN
            if self._process is None:
                self._process = self._started()
            return _AGAIN if self._process is None else _COMING
        return _IDLE

    def stop_host(self) -> None:
        """End the host and all that it keeps warm: no task of this worker runs any more."""
        if self._link is not None:
            with suppress(OSError):
                self._link.sendall(request_bytes("follow", json.dumps({"stop": True})))

    def close(self) -> None:
        """Leave the host to itself; it ends when its last task has."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> socket.socket | None:
        """A link to a host that has been told what is wanted; None if there is none yet."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_PATIENCE_SECONDS)
        try:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                link.connect(f"/proc/self/fd/{at}/{SOCKET}")
            finally:
                os.close(at)
            link.sendall(request_bytes("follow", self._document))
            link.setblocking(False)
        except OSError:
            link.close()
            return None
        return link

    def _last_words(self) -> str:
        try:
            lines = (self._folder / OUTPUT).read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[-1][:_SAID_CHARS] if lines else ""

    @staticmethod
    def _is_open(link: socket.socket) -> bool:
        """The host says nothing: whatever can be read is the end."""
        try:
            return link.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _started(self) -> subprocess.Popen[bytes] | None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with (self._folder / OUTPUT).open("wb") as output:
                process = subprocess.Popen(
                    (
                        self._python,
                        "-P",
                        "-m",
                        "worker.spark.host",
                        *("--home", str(self._home), "--port", str(self._port)),
                        *("--spark-home", self._spark_home),
                        *(("--for-tenants",) if self._for_tenants else ()),
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=Path(__file__).resolve().parents[2],
                    env={
                        **self._environment,
                        "SPARK_HOME": self._spark_home,
                        "PYTHONPATH": os.pathsep.join(_own_path()),
                        **ENVIRONMENT,
                        **room_for_marker(),
                    },
                    start_new_session=True,
                )
        except OSError as error:
            log.warning("spark host could not be started", extra={"error": str(error)})
            return None
        give(process.pid, HELPER)
        self._was_followed = False
        log.info("spark host started", extra={"pid": process.pid})
        return process


def folder(home: Path, port: int) -> Path:
    """Return the folder in which a worker's host keeps its socket and its servers' files."""
    return home / "run" / f"spark-{port}"


def wanted(config: SparkConfig, *, python: str, data_dir: Path) -> dict[str, object]:
    """Return the plan and limits of each profile, and of its servers with isolated sessions."""
    told: dict[str, object] = {}
    for name, profile in config.profiles.items():
        plan = _plan(name, profile, python, data_dir)
        limits = _limits(name, profile, config, plan.revision)
        told[name] = {"plan": asdict(plan), "limits": asdict(limits)}
        if plan.shares:
            name = sharing.isolated(name)
            plan = _revised(replace(plan, profile=name, shares=False))
            limits = replace(limits, revision=plan.revision, kept=False)
            told[name] = {"plan": asdict(plan), "limits": asdict(limits)}
    return told


def _own_path() -> list[str]:
    """Return the path to this program's packages, for another interpreter."""
    return [str(Path(__file__).resolve().parents[2])]


def _plan(name: str, profile: SparkProfile, python: str, data_dir: Path) -> ServerPlan:
    plan = ServerPlan(
        profile=name,
        revision="",
        master=profile.master,
        # Else tables would lie in the server's own directory, and go with it.
        conf={"spark.sql.warehouse.dir": str(data_dir / "spark-warehouse"), **profile.conf},
        jars=profile.jars,
        packages=profile.packages,
        driver_memory=profile.driver_memory,
        python=profile.python or python,
        start_timeout=profile.start_timeout_seconds,
        shares=sharing.may_share(profile.master, profile.conf),
    )
    return _revised(plan)


def _limits(name: str, profile: SparkProfile, config: SparkConfig, revision: str) -> Limits:
    return Limits(
        revision=revision,
        max_sessions=profile.max_sessions,
        max_servers=profile.max_servers,
        idle_timeout=profile.idle_timeout_seconds,
        max_age=profile.max_age_seconds,
        max_memory_bytes=profile.max_memory_mb << 20,
        kept=name in config.prewarmed(),
    )


def _revised(plan: ServerPlan) -> ServerPlan:
    """With a revision, which changes with everything that a server is started with."""
    document = json.dumps(asdict(replace(plan, revision="")), sort_keys=True)
    return replace(plan, revision=hashlib.sha256(document.encode()).hexdigest()[:16])
