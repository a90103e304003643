"""PYTHON tasks on a host of the worker's tests, forked or not, and the same scripts run by hand."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.store.worker.ports import AttemptEnd, ClaimedTask
from tests.integration.worker_host import PATIENCE_SECONDS, Host
from worker.processes.attempt_processes import MARKER
from worker.processes.fork_servers import ForkedLeader
from worker.processes.starting import Prepared


class Pythons:
    """A host whose PYTHON tasks are all forked, or all fresh: each run is checked for that."""

    def __init__(self, home: Path, kind: str, **settings: Any) -> None:
        self.kind = kind
        self.host = Host(home, forks=kind == "forked", adopts_orphans=True, **settings)
        self._next = 0
        self.environment: Mapping[str, str] = {}
        """That of the last attempt."""
        starter = self.host.supervisor._starter
        self._prepare, starter._prepare = starter._prepare, self._prepared
        self.forked: list[ForkedLeader] = []
        self._fork = self.host.fork_servers.fork
        self.host.fork_servers.fork = self._counted  # type: ignore[method-assign]

    def _counted(self, *arguments: Any, **keywords: Any) -> ForkedLeader | None:
        leader = self._fork(*arguments, **keywords)
        self.forked += [leader] if leader else []
        return leader

    def _prepared(self, task: ClaimedTask) -> Prepared:
        prepared = self._prepare(task)
        self.environment = {**prepared.environment, MARKER: prepared.directory}
        return prepared

    def warm(self, **changes: Any) -> None:
        """Have a fork server ready, for the account of such a task."""
        if self.kind == "forked":
            self.host.run(self.task("pass", **changes))
            assert self.host.fork_servers._servers
            self.hear_from_servers()

    def hear_from_servers(self) -> None:
        """Wait until each fork server that has not been given up is ready, or has ended."""
        for server in self.host.fork_servers._servers.values():
            if server.is_ready:
                continue
            ready, _, _ = select.select([server.link], [], [], PATIENCE_SECONDS)
            assert ready, server.last_words()

    def ahead(self, **changes: Any) -> tuple[int, int]:
        """Have a leader wait for such a task; its pid, and that of the process it has forked."""
        self.warm(**changes)
        assert self.run("print(1)", **changes)[1] == ["1"]
        [server] = self.host.fork_servers._servers.values()

        def waits() -> bool:
            return server.ahead is not None and server.ahead.is_there() and bool(server.ahead.pid)

        self.host.until(waits)
        assert server.ahead is not None
        assert server.ahead.pid is not None
        leader = server.ahead.pid
        [runner] = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        return leader, int(runner)

    def task(self, script: str | None, **changes: Any) -> ClaimedTask:
        self._next += 1
        return self.host.task(self._next, script, task_type="PYTHON", **changes)

    def begin(self, script: str | None, **changes: Any) -> int:
        """Start a script, in the way that this is about; the attempt."""
        task, before = self.task(script, **changes), len(self.forked)
        self.host.begin(task)
        assert len(self.forked) - before == (self.kind == "forked"), "not as it should be"
        return task.id

    def run(self, script: str | None, **changes: Any) -> tuple[AttemptEnd, list[str]]:
        """Run a script; its end, and the lines that it has printed."""
        number = self.begin(script, **changes)
        end = self.host.end_of(number)
        return end, self.printed(number)

    def left_by(self, end: AttemptEnd) -> dict[str, bytes]:
        """The files of an attempt."""
        directory = self.host.directory(end.task_instance_id)
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    def printed(self, number: int) -> list[str]:
        return [
            line
            for line in self.host.log_path(number).read_text("utf-8", "replace").splitlines()
            if not line.startswith("[orcaflow]")
        ]


def by_hand(
    script: Path, *words: str, directory: Path, environment: Mapping[str, str]
) -> tuple[int, list[str]]:
    """Run a script without Orcaflow; its exit code as a shell tells it, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-u", str(script), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
        # A shell's addition.
        env={**environment, "PWD": str(directory)},
        check=False,
        start_new_session=True,
    )
    code = done.returncode
    return code if code >= 0 else 128 - code, done.stdout.decode("utf-8", "replace").splitlines()
