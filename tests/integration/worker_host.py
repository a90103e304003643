"""A host for the worker's tests: one supervisor with the real launcher, driven by the test's thread.

Tests wait for events and never for time to pass: `until` lets the supervisor work until a
condition holds, `Signpost` blocks until a task has reached a line.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from common.clock import Clock, SystemClock
from common.store.worker.ports import AttemptEnd, ClaimedTask
from tests.claims import a_claimed_task
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes.clearing import DirectoryPolicy
from worker.processes.fork_servers import ForkServers
from worker.processes.limits import NO_LIMITS, Limits
from worker.processes.live_attempts import Blame
from worker.processes.log_cutting import LogCutter
from worker.processes.shim_link import Shim
from worker.processes.starting import Prepare
from worker.processes.supervising import Supervisor
from worker.workspace import Account, attempt_folders, remove_directory

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300.0
"""Far more than any step takes on a busy machine."""
SCHEDULED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Host:
    """Files below one directory, and the supervisor that works there."""

    def __init__(
        self,
        home: Path,
        *,
        grace: timedelta = timedelta(seconds=30),
        log_limit_bytes: int = 1_000_000,
        policy: DirectoryPolicy = "never",
        settings: TaskSettings | None = None,
        tenant_mode: Any = "single",
        account_of: Callable[[str | None], Account] | None = None,
        prepare: Prepare | None = None,
        adopts_orphans: bool = False,
        limits: Limits = NO_LIMITS,
        blame: Blame = lambda _: None,
        clock: Clock | None = None,
        forks: bool = False,
        by_shim: bool = False,
        asks_by: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """`forks`: PYTHON tasks are forked, as soon as a fork server is there.

        `by_shim`: scripts are started by a shim, as soon as it is there. Orphans come here then.
        """
        self.home = home
        self.ends: dict[int, AttemptEnd] = {}
        self.starts: dict[int, tuple[int, float]] = {}
        self._folders = attempt_folders(home / "tasks")
        self._clock = SystemClock()
        settings = settings or TaskSettings(environment=seen_by_tasks(os.environ))
        self.launcher = Launcher(
            home=home,
            data_dir=home / "data",
            zone=ZoneInfo("UTC"),
            tenant_mode=tenant_mode,
            account_of=account_of,
            settings=settings,
            asks_by=asks_by,
        )
        self.fork_servers = ForkServers(
            environment=settings.environment,
            clock=clock or self._clock,
            patience_seconds=PATIENCE_SECONDS,
        )
        self.shim = Shim(
            environment=settings.environment,
            clock=clock or self._clock,
            patience_seconds=PATIENCE_SECONDS,
        )
        self.cutter = LogCutter(limit_bytes=log_limit_bytes)
        self.supervisor = Supervisor(
            prepare=prepare or self.launcher.prepare,
            records=home / "tasks" / "records",
            ended=self._ended,
            started=self._started,
            clock=clock or self._clock,
            kill_grace=grace,
            cutter=self.cutter,
            directory_policy=policy,
            remove_directory=remove_directory,
            complement_niceness=10,
            adopts_orphans=adopts_orphans or by_shim,
            limits=limits,
            blame=blame,
            fork_servers=self.fork_servers if forks else None,
            shim=self.shim if by_shim else None,
            asks_by=asks_by,
        )

    def task(
        self,
        task_instance_id: int,
        script: str | None = None,
        *,
        task_type: str = "SHELL",
        params: Mapping[str, Any] | None = None,
        local: Sequence[Mapping[str, str]] = (),
        **changes: Any,
    ) -> ClaimedTask:
        """A claimed task; a script becomes its `rawScript`."""
        paths = self._folders.paths(1, 2, task_instance_id)
        node = {"localParams": list(local), **(params or {})}
        if script is not None:
            node["rawScript"] = script
        values = {
            "id": task_instance_id,
            "name": f"task {task_instance_id}",
            "attempt": 1,
            "task_type": task_type,
            "task_json": json.dumps({"params": json.dumps(node)}),
            "moment": SCHEDULED,
            "start_time": SCHEDULED,
            **changes,
        }
        return a_claimed_task(paths, **values)

    def await_shim(self) -> None:
        """Let the shim be there, so that it starts what comes next."""
        self.until(lambda: self.shim.is_there(1))

    def begin(self, task: ClaimedTask) -> None:
        """Start a task and return when its process exists, or it has ended without one."""
        self.supervisor.start(task)
        self.supervisor.run_once()

    def run(self, task: ClaimedTask) -> AttemptEnd:
        """Run a task to its end."""
        self.begin(task)
        return self.end_of(task.id)

    def end_of(self, task_instance_id: int) -> AttemptEnd:
        """Let the supervisor work until this attempt has ended."""
        self.until(lambda: task_instance_id in self.ends)
        return self.ends[task_instance_id]

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the supervisor work until the condition holds."""
        limit = self._clock.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self._clock.monotonic() < limit, "it did not happen in time"
            self.supervisor.run_once()
            self.cutter.run_once()

    def log_path(self, task_instance_id: int) -> Path:
        """The path of the attempt's log."""
        return Path(self._folders.paths(1, 2, task_instance_id).log_path)

    def log(self, task_instance_id: int) -> str:
        """The attempt's log."""
        return self.log_path(task_instance_id).read_text(encoding="utf-8")

    def directory(self, task_instance_id: int) -> Path:
        """The attempt's own directory."""
        return Path(self._folders.paths(1, 2, task_instance_id).execute_path)

    def _ended(self, end: AttemptEnd) -> None:
        assert end.task_instance_id not in self.ends, "an end must be told once"
        self.ends[end.task_instance_id] = end

    def _started(self, task_instance_id: int, pid: int, start_time: float) -> None:
        self.starts[task_instance_id] = (pid, start_time)


class SetClock(SystemClock):
    """A clock that a test puts forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead.total_seconds()


class Signpost:
    """A named pipe: a task writes a line into it, and the test waits for that line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o666)
        # Open for both, so that neither side waits for the other to open it.
        self._fd = os.open(path, os.O_RDWR)

    def wait(self) -> str:
        """The next line that a task writes."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._fd], [], [], PATIENCE_SECONDS)
            assert ready, "no task came by in time"
            line += os.read(self._fd, 1)
        return line.decode().strip()

    def close(self) -> None:
        os.close(self._fd)


def wait_until_gone(pid: int) -> None:
    """Block until a process is gone; it may be anybody's child."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([pidfd], [], [], PATIENCE_SECONDS)
        assert ready, f"process {pid} still runs"
    finally:
        os.close(pidfd)


_DAEMON = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.integration.worker_host import Host
host = Host(Path({home!r}))
{body}
os._exit(0)
"""


def a_daemon_that_dies(home: Path, body: str) -> None:
    """Run a supervisor in a process of its own that ends abruptly."""
    code = _DAEMON.format(root=str(ROOT), home=str(home), body=body)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)
