"""A real ZooKeeper 3.9 from the jars that PySpark's wheel bundles, in `$ORCAFLOW_HOME/zookeeper`.

Stand-alone, on the loopback address, with half-second ticks so that sessions may be as short as a
second. It does not wait for the disk: nothing in ZooKeeper is needed for correctness, all of it is
rebuilt from the tables when lost. Only the jars that the server needs are loaded, which halves
both its start and its memory, and their classes from an archive (`zookeeper_classes`), which halves
the start again.

Nobody reads or writes without its credential (`common.embedded.zookeeper_rights`).

Run by hand: `python -m common.embedded.zookeeper start|stop|status [--home DIR] [--port N]`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from common.clock import SystemClock
from common.embedded import zookeeper_classes as classes
from common.embedded.addresses import (
    ZookeeperAddress,
    record,
    recorded_zookeeper,
    zookeeper_file,
)
from common.embedded.firewall import Firewall
from common.embedded.process import (
    ServerStartError,
    choose_port,
    end,
    exclusive,
    is_kept_running,
    keep_running,
    launch,
    let_end,
)
from common.embedded.zookeeper_rights import claim, digest_of, super_digest
from common.errors import ConfigurationError, SchedulerError
from common.ports import LOOPBACK
from common.process_identity import is_alive, process_start_time, processes_started_with

MINIMUM_JAVA = 17

_SUPER_DIGEST = "DigestAuthenticationProvider.superDigest"
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_clock = SystemClock()

_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "audience-annotations",
    "commons-io",
    "metrics-core",
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "slf4j-api",
    "snappy-java",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
)

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class EmbeddedZookeeper:
    """The one ZooKeeper of a home. `start` and `stop` are idempotent, and safe from anywhere."""

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        tick_ms: int = 500,
        heap_mb: int = 512,
        digest: str = "",
        start_within: timedelta = timedelta(seconds=60),
        stop_within: timedelta = timedelta(seconds=10),
        jvm_options: Sequence[str] | None = None,
        firewall: Firewall | None = None,
    ) -> None:
        """`port` 0 is the port of the last time, or a free one; `digest` "" is the home's own.

        `jvm_options`: in the place of those for the archive of classes.
        """
        # Resolved, so that a server is known again whichever way its home is named.
        self.home = home.expanduser().resolve()
        self.data_dir = self.home / "zookeeper"
        self._digest = digest
        self._settings_file = self.home / "run" / "zookeeper.cfg"
        self._port = port
        self._tick_ms = tick_ms
        self._heap_mb = heap_mb
        self._start_within = start_within
        self._stop_within = stop_within
        self._jvm_options = jvm_options
        self.firewall = firewall or Firewall(self.home, "zookeeper", connections=None)

    def start(self) -> ZookeeperAddress:
        """Start the server unless it runs; return its address."""
        with exclusive(self.home, "zookeeper"):
            return self._start(self._port)

    def revive(self) -> bool:
        """Start the server again at its port if it has died; return True if it was started.

        A server that was stopped, or that another account has started, is left alone.
        """
        last = recorded_zookeeper(self.home)
        if last is None or is_alive(last.pid, last.start_time):
            return False
        with exclusive(self.home, "zookeeper"):
            if not is_kept_running(self.home, "zookeeper") or self._running() is not None:
                return False
            # Clients keep the address that they have read.
            self._start(last.port)
            return True

    def _start(self, port: int) -> ZookeeperAddress:
        address = self._running()
        if address is None:
            address = self._launch(port)
        else:
            self.firewall.protect(address.port)
            self._wait_until_it_answers(address)
        if self._is_guarded():
            claim(self.home, address.hosts, self._digest or digest_of(self.home))
        record(zookeeper_file(self.home), address)
        keep_running(self.home, "zookeeper")
        return address

    def stop(self, *, now: bool = False) -> None:
        """End the server. Its clients' sessions go on if it is back before they expire."""
        with exclusive(self.home, "zookeeper"):
            let_end(self.home, "zookeeper")
            address = self._running()
            if address is not None:
                politely = () if now else (signal.SIGTERM,)
                end(
                    address.pid,
                    address.start_time,
                    by=(*politely, signal.SIGKILL),
                    each=self._stop_within,
                )
            self.firewall.release()

    def is_running(self) -> bool:
        """True if the server's process exists."""
        return self._running() is not None

    def _running(self) -> ZookeeperAddress | None:
        """The server of this home, even if its starter was killed before it could record it.

        The command line names our settings file, so it is surely ours; the file names the port.
        """
        for pid in processes_started_with(_MAIN_CLASS, str(self._settings_file)):
            start_time = process_start_time(pid)
            port = self._port_in_settings()
            if start_time is not None and port is not None:
                return ZookeeperAddress(host=LOOPBACK, port=port, pid=pid, start_time=start_time)
        return None

    def _port_in_settings(self) -> int | None:
        match = re.search(r"^clientPort=(\d+)$", self._settings(), re.MULTILINE)
        return int(match.group(1)) if match else None

    def _is_guarded(self) -> bool:
        """True if the server was started with a credential; one of a former version was not."""
        return f"\n{_SUPER_DIGEST}=" in self._settings()

    def _settings(self) -> str:
        try:
            return self._settings_file.read_text(errors="replace")
        except OSError:
            return ""

    def _launch(self, wanted: int) -> ZookeeperAddress:
        java, jars = find_java(), jars_of_zookeeper()
        archive = classes.find(java, jars)
        options = classes.flags(archive) if self._jvm_options is None else self._jvm_options
        last = recorded_zookeeper(self.home)
        port = choose_port(
            wanted,
            last.port if last else None,
            home=self.home,
            server="ZooKeeper",
            key="embedded.zookeeper_port",
        )
        self._write_settings(port)
        self.firewall.protect(port)
        try:
            pid, start_time = self._launch_java(java, jars, port, options)
        except ServerStartError:
            if archive is None or self._jvm_options is not None:
                raise
            # A JVM ends at once with an archive that is cut off: it costs that, and no server.
            archive.unlink(missing_ok=True)
            pid, start_time = self._launch_java(java, jars, port, classes.flags(None))
        if archive is None and self._jvm_options is None:
            classes.build_in_background(jars)
        return ZookeeperAddress(host=LOOPBACK, port=port, pid=pid, start_time=start_time)

    def _launch_java(
        self, java: Path, jars: Sequence[Path], port: int, options: Sequence[str]
    ) -> tuple[int, float]:
        try:
            return launch(
                [
                    *(str(java), f"-Xmx{self._heap_mb}m"),
                    # A small server that starts often: compile lightly, share classes, leave no
                    # files.
                    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options),
                    # The heap grows when what lives in it does, and not to be collected seldom.
                    *("-Xms16m", "-Xmn8m", "-XX:MaxHeapFreeRatio=50"),
                    "-XX:-UsePerfData",
                    "-XX:+ExitOnOutOfMemoryError",
                    "-Dzookeeper.forceSync=no",
                    # Kilobytes that a new transaction log takes from the disk at once.
                    "-Dzookeeper.preAllocSize=4096",
                    "-Dzookeeper.jmx.log4j.disable=true",
                    "-Dlog4j2.disable.jmx=true",
                    f"-Dlog4j2.configurationFile={self._logging_file}",
                    *("-cp", ":".join(str(jar) for jar in jars)),
                    *(_MAIN_CLASS, str(self._settings_file)),
                ],
                server="ZooKeeper",
                log=self.home / "logs" / f"zookeeper-{port}.log",
                is_ready=lambda _: _is_serving(port),
                within=self._start_within,
                environment=_environment(),
            )
        except ServerStartError as error:
            if (self.data_dir / "version-2").exists():
                raise ServerStartError(
                    f"{error}\nIf its data in {self.data_dir} is damaged: nothing in it is needed, "
                    f"move it away and start again"
                ) from error
            raise

    @property
    def _logging_file(self) -> Path:
        return self._settings_file.with_name("zookeeper-log4j2.properties")

    def _write_settings(self, port: int) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except FileExistsError as error:
            raise ConfigurationError(f"{self.data_dir} is not a directory; move it away") from error
        settings = {
            "tickTime": self._tick_ms,
            # A backslash starts an escape in Java's properties.
            "dataDir": str(self.data_dir).replace("\\", "\\\\"),
            "clientPort": port,
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr",
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 60000,
            # All clients share one address here, and it is ours.
            "maxClientCnxns": 0,
            # A client without a session can make the server allocate the megabyte of the longest
            # request. With this limit all of them together take half of the heap.
            "maxCnxns": self._heap_mb // 2,
            # All long requests of sessions, which wait in a queue.
            "largeRequestThreshold": 128 * 1024,
            "largeRequestMaxBytes": self._heap_mb // 4 * 1024 * 1024,
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            _SUPER_DIGEST: super_digest(self.home),
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._settings_file.unlink(missing_ok=True)
        self._settings_file.touch(mode=0o600)
        self._settings_file.write_text(text, encoding="utf-8")
        self._logging_file.write_text(_LOGGING, encoding="utf-8")

    def _wait_until_it_answers(self, address: ZookeeperAddress) -> None:
        deadline = _clock.monotonic() + self._start_within.total_seconds()
        while not _is_serving(address.port):
            if not is_alive(address.pid, address.start_time) or _clock.monotonic() > deadline:
                raise ServerStartError(
                    f"the embedded ZooKeeper runs as process {address.pid} but does not answer on "
                    f"port {address.port}; stop it (`stop zookeeper --now`) and start it again"
                )
            # Another program's server: its progress can only be polled.
            time.sleep(0.1)


def find_java() -> Path:
    """The `java` of JAVA_HOME, else of the PATH, else an error that says what to install."""
    cure = (
        "install Java 17 or 21 (for example `apt-get install openjdk-17-jre-headless`, or from "
        "https://adoptium.net) and put it on the PATH or name it in JAVA_HOME"
    )
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigurationError(f"no Java {where}: {cure}")
    version = _java_version(Path(found))
    if version is None:
        raise ConfigurationError(f"{found} does not tell its version: {cure}")
    if version < MINIMUM_JAVA:
        raise ConfigurationError(f"{found} is Java {version}, which is too old: {cure}")
    return Path(found)


def _java_version(java: Path) -> int | None:
    """The feature number, from the installation's `release` file, for asking Java is slow."""
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(errors="replace")
        match = re.search(r'^JAVA_VERSION="([\d._]+)', text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            done = subprocess.run(
                [str(java), "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "([\d._]+)', done.stderr)
        if match is None:
            return None
    numbers = re.split(r"[._]", match.group(1))
    # Until Java 8 the feature number was the second: 1.8.0_202.
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _is_serving(port: int) -> bool:
    """True if a ZooKeeper takes requests; `imok` alone comes before its data is loaded."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return False
    return b"Mode: standalone" in answer


def _environment() -> dict[str, str]:
    """Without the variables by which a starter's own Java or Spark settings would get in."""
    kept = ("PATH", "JAVA_HOME", "HOME", "LANG", "LC_ALL", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ}


def jars_of_zookeeper() -> list[Path]:
    """The jars that the server needs, by name without version; PySpark itself is not imported."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"PySpark, whose jars hold ZooKeeper, is not installed: install the package pyspark "
            f"into {sys.prefix}, or name a ZooKeeper of your own in zookeeper.hosts"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    by_name = {
        re.sub(r"-\d.*\.jar$", "", jar.name): jar
        for jar in sorted(folder.glob("*.jar"))
        if re.search(r"-\d[\w.]*\.jar$", jar.name)
    }
    missing = [name for name in ("zookeeper", "zookeeper-jute") if name not in by_name]
    if missing:
        raise ConfigurationError(
            f"{folder} holds no {' and no '.join(missing)} jar; reinstall the package pyspark, "
            f"or name a ZooKeeper of your own in zookeeper.hosts"
        )
    return [by_name[name] for name in _JARS if name in by_name]


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, stop or show the server of a home; for scripts and for the curious."""
    parser = argparse.ArgumentParser(prog="python -m common.embedded.zookeeper")
    parser.add_argument("what", choices=("start", "stop", "status"))
    parser.add_argument("--home", type=Path, default=os.environ.get("ORCAFLOW_HOME", "~/.orcaflow"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--now", action="store_true", help="kill it")
    options = parser.parse_args(arguments)
    server = EmbeddedZookeeper(Path(options.home), port=options.port)
    try:
        if options.what == "start":
            sys.stdout.write(f"{server.start().hosts}\n")
        elif options.what == "stop":
            server.stop(now=options.now)
        else:
            running = server.is_running()
            sys.stdout.write("running\n" if running else "stopped\n")
            return 0 if running else 1
    except SchedulerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
