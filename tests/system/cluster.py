"""A private cluster for a test module: real daemons on free ports, in a home of its own.

What starts and stops daemons is `operations.daemons`, as for every operator; here are only the rough
things that tests do besides: kill -9, rows typed by hand, and a look for processes left over.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from common import config
from common.config import values
from common.process_identity import is_alive, process_start_time
from common.runtime.pid_file import pid_file, running_pid
from operations.daemon_process import spawned
from operations.daemons import Cluster, Kind, Options
from tests.granting import GRANT_ALL, names_shared
from tests.system import command_line, nursery
from tests.system.furnished import furnish

FURNISHED: Path | None = None
"""The place of the data that new homes get as a copy; None outside pytest."""
STARTED_WITHIN = timedelta(minutes=3)
"""Far more than the start of a daemon or server takes on a busy machine."""


def until(is_so: Callable[[], bool], *, within: float = 300) -> None:
    """Look until it is so; fails when it is not so for very long."""
    deadline = time.monotonic() + within
    pause = 0.01
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        # Between looks at other processes' effects; no test's outcome depends on its length.
        time.sleep(pause)
        # Who waits for long need not look often: each look takes time from what is waited for.
        pause = min(pause * 1.3, 0.05)


def in_time(promise: timedelta) -> timedelta:
    """The time that something may take here and now which is promised within `promise`.

    The promise holds on a machine that has room. Where several processes want each processor, as
    they do beside other lanes of the tests, each is as many times slower.
    """
    return promise * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def a_task(name: str, script: str, *before: str, **more: object) -> dict[str, object]:
    """A SHELL node as it stands in a definition's JSON."""
    return {
        "name": name,
        "type": "SHELL",
        "params": {"rawScript": script},
        "preTasks": list(before),
        **more,
    }


class PrivateCluster:
    """Daemons of one home, and a connection to their database."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home = home
        # Measurements have daemons like an operator's.
        spawn = spawned if FURNISHED is None else nursery.spawned
        self.daemons = Cluster(config.load(), within=STARTED_WITHIN, spawn=spawn)
        self._environment = environment
        self._connection: Any = None

    # Daemons

    def start(
        self, *, masters: int = 1, workers: int = 1, apis: int = 0, slots: int | None = None
    ) -> None:
        """PostgreSQL, ZooKeeper and so many daemons; all are ready when it returns."""
        if FURNISHED is not None and not (self.home / "postgres").exists():
            furnish(self.home, FURNISHED)
        self.daemons.start_standalone(
            masters=masters,
            workers=workers,
            apis=apis,
            free_ports=True,
            options=Options(slots=slots),
        )

    def ports(self, kind: Kind) -> list[int]:
        return [port for other, port in self.daemons.known() if other is kind]

    def pid(self, kind: Kind, port: int) -> int | None:
        return running_pid(pid_file(self.home, kind, port))

    def pids(self) -> dict[tuple[Kind, int], int]:
        """Of all masters and workers that run."""
        return {(kind, port): pid for kind, port, pid in self.daemons.running()}

    def kill(self, kind: Kind, port: int) -> None:
        """kill -9: its process is gone when this returns."""
        pid = self.pid(kind, port)
        assert pid is not None
        started = process_start_time(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: started is None or not is_alive(pid, started))

    def start_again(self, kind: Kind, port: int) -> None:
        self.daemons.start_daemon(kind, port, self.daemons.options_of(kind, port))

    def stop(self, kind: Kind, port: int) -> None:
        """Gracefully, as an operator's `stop`."""
        assert self.daemons.stop_one(kind, port)

    def metrics(self, kind: Kind, port: int) -> dict[str, float]:
        """The samples of a daemon's `/metrics`, by name with labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def restart_postgres(self, meanwhile: Callable[[], None]) -> None:
        """End PostgreSQL at once, with all its connections, and start it again after a while."""
        assert self.daemons.stop_one("postgres", None, now=True)
        self.disconnect()
        meanwhile()
        self.daemons.start_postgres()

    def disconnect(self) -> None:
        """Close the connection of this test; the next statement opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Rows

    @property
    def dsn(self) -> str:
        return values.get(self.daemons.config, "database.dsn")

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement in a transaction of its own, and return its rows."""
        if self._connection is None:
            self._connection = psycopg2.connect(self.dsn)
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            # Without values a percent sign is one; with them it would begin a placeholder.
            cursor.execute(statement, values or None)
            found = list(cursor.fetchall()) if cursor.description else []
            if names_shared(statement):
                # The test's definitions may use every object that the test inserts.
                cursor.execute(GRANT_ALL)
            return found

    def define(self, name: str, tasks: Sequence[object] | str, *, release_state: int = 1) -> int:
        """Type a definition with SQL, as it is; its id."""
        document = tasks if isinstance(tasks, str) else json.dumps({"tasks": tasks})
        ((definition_id,),) = self.rows(
            "INSERT INTO t_ds_process_definition (name, process_definition_json, release_state)"
            " VALUES (%s, %s, %s) RETURNING id",
            name,
            document,
            release_state,
        )
        return int(definition_id)

    def put(self, definition_id: int | None, param: str | None = "{}", **columns: object) -> int:
        """Type a command with SQL; its id."""
        given = {
            "command_type": 0,
            "process_definition_id": definition_id,
            "command_param": param,
            "executor_id": 1,
            **columns,
        }
        ((command_id,),) = self.rows(
            f"INSERT INTO t_ds_command ({', '.join(given)})"
            f" VALUES ({', '.join(['%s'] * len(given))}) RETURNING id",
            *given.values(),
        )
        return int(command_id)

    def last_instance(self, definition_id: int) -> int:
        """The newest process instance of a definition; 0 if there is none."""
        ((last,),) = self.rows(
            "SELECT coalesce(max(id), 0) FROM t_ds_process_instance"
            " WHERE process_definition_id = %s",
            definition_id,
        )
        return int(last)

    def begin(self, definition_id: int, param: str | None = "{}", **columns: object) -> int:
        """Type a command, and wait until a master has begun its process instance; that one's id."""
        before = self.last_instance(definition_id)
        self.put(definition_id, param, **columns)
        until(lambda: self.last_instance(definition_id) > before)
        return self.last_instance(definition_id)

    def state_of(self, instance_id: int) -> int:
        ((state,),) = self.rows(
            "SELECT state FROM t_ds_process_instance WHERE id = %s", instance_id
        )
        return int(state)

    def tasks_of(self, instance_id: int, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of all attempts, in the order in which they were made."""
        return self.rows(
            f"SELECT {', '.join(columns)} FROM t_ds_task_instance"
            " WHERE process_instance_id = %s ORDER BY id",
            instance_id,
        )

    def await_end(self, instance_id: int, *, within: float = 300) -> int:
        """The state in which a process instance ends."""

        def has_ended() -> bool:
            return self.rows(
                "SELECT end_time IS NOT NULL FROM t_ds_process_instance WHERE id = %s", instance_id
            ) == [(True,)]

        until(has_ended, within=within)
        return self.state_of(instance_id)

    def await_task(self, instance_id: int, state: int) -> tuple[int, int]:
        """Id and pid of the only attempt, once it is in this state (and, running, has a pid)."""
        found: list[tuple[Any, ...]] = []

        def is_there() -> bool:
            found[:] = self.tasks_of(instance_id, "id", "pid", "state")
            return len(found) == 1 and found[0][2] == state and found[0][1] is not None

        until(is_there)
        return int(found[0][0]), int(found[0][1])

    # The command line

    def orcaflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, which sees the cluster's settings."""
        return command_line.run(*arguments, environment={**os.environ, **self._environment})

    def told(self, *arguments: str) -> Any:
        """The JSON that a command answers, which must succeed."""
        done = self.orcaflow(*arguments, "-o", "json")
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    # The end

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.daemons.stop_everything(now=True)
        for pid in task_processes(self.home):
            os.kill(pid, signal.SIGKILL)


def task_processes(home: Path, task_instance_id: int | None = None) -> list[int]:
    """Processes that belong to attempts of this home, or to one of them, wherever they have gone."""
    of = b"ORCAFLOW_TASK_INSTANCE_ID="
    wanted = of if task_instance_id is None else of + str(task_instance_id).encode() + b"\0"
    of_home = f"ORCAFLOW_HOME={home}\0".encode()
    found = []
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        try:
            # It is asked many times a second, for which `Path` takes twice as long.
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123
                environment = file.read()
        except OSError:
            continue  # It has ended, or is none of ours.
        if wanted in environment and of_home in environment:
            found.append(pid)
    return found


@contextmanager
def private_cluster(home: Path, **settings: str) -> Iterator[PrivateCluster]:
    """A cluster with these settings, given as the ends of ORCAFLOW_… variables; not started yet."""
    environment = {
        "ORCAFLOW_HOME": str(home),
        **{f"ORCAFLOW_{name}": value for name, value in settings.items()},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        cluster = PrivateCluster(home, environment)
        try:
            yield cluster
        finally:
            cluster.close()
