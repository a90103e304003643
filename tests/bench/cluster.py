"""A private cluster for a bench: real daemons in a folder of their own, at free ports.

They are started and stopped as an operator would do it, by `bin/orcaflow-daemon.sh`; no settings of
the caller's reach them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 180
_STOP_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The paths, addresses and pids of a running cluster."""

    home: Path
    dsn: str
    zookeeper: str
    digest: str
    pids: Mapping[str, int]
    """By the names of `status`: both servers and both daemons."""
    worker_address: str
    environment: Mapping[str, str] = field(repr=False)

    @property
    def master_pid(self) -> int:
        return self.pids["master-server"]

    @property
    def worker_pid(self) -> int:
        return self.pids["worker-server"]

    def execute(self, command: Sequence[str]) -> str:
        """Run a program that is to meet this cluster; return its standard output."""
        return _done(list(command), self.environment)


@contextmanager
def running(settings: Mapping[str, object] | None = None) -> Iterator[Cluster]:
    """Run one master and one worker; `settings` by full key, as `master.exec_threads`."""
    with tempfile.TemporaryDirectory(prefix="orcaflow-bench-") as folder:
        home = Path(folder)
        environment = environment_of(home, settings or {})
        # Killed, so that tasks of a failed bench don't outlive it.
        with ExitStack() as stack:
            stack.callback(operate, environment, "stop", "standalone-server", "--now")
            started = json.loads(
                operate(
                    environment,
                    *("start", "standalone-server", "--free-ports"),
                    *("--without", "api-server", "-o", "json"),
                )
            )
            yield Cluster(
                home=home,
                dsn=_configured(environment, "database.dsn"),
                zookeeper=_configured(environment, "zookeeper.hosts"),
                digest=_configured(environment, "zookeeper.digest"),
                pids={each["name"]: each["pid"] for each in started},
                worker_address=next(
                    f"{each['host']}:{each['port']}"
                    for each in started
                    if each["name"] == "worker-server"
                ),
                environment=environment,
            )


def environment_of(home: Path, settings: Mapping[str, object]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ORCAFLOW_")}
    chosen = {
        f"ORCAFLOW_{key.replace('.', '__').upper()}": str(value) for key, value in settings.items()
    }
    return {**kept, "ORCAFLOW_HOME": str(home), **chosen}


def operate(environment: Mapping[str, str], *arguments: str) -> str:
    return _done([str(ROOT / "bin" / "orcaflow-daemon.sh"), *arguments], environment)


def _configured(environment: Mapping[str, str], key: str) -> str:
    return _done([str(ROOT / "bin" / "orcaflow"), "config", "get", key], environment).strip()


def _done(command: list[str], environment: Mapping[str, str]) -> str:
    """Run a program; return its standard output, and pass its standard error on to ours."""
    return subprocess.run(
        command,
        env=dict(environment),
        check=True,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        timeout=_START_SECONDS if "start" in command else _STOP_SECONDS,
    ).stdout
