"""The registry in both shapes, in memory and on ZooKeeper, as the tests of it meet it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from kazoo.handlers.threading import KazooTimeoutError

from common.clock import SystemClock
from common.model.cluster import Heartbeat, Node, NodeKind, QueueEntry
from common.process_identity import process_start_time
from common.registry.config import RegistryConfig
from common.registry.connect import ZookeeperRegistry
from common.registry.protocol import Registry, RegistryUnavailableError
from common.registry.session import Session
from tests.conftest import ZookeeperRoot
from tests.memory.registry import MemoryZooKeeper

HERE = "127.0.0.1:5678"
THERE = "127.0.0.1:5679"
AT_ONCE = timedelta()
PATIENTLY = timedelta(seconds=10)


class Server(Protocol):
    """A registry's server, as the tests handle it."""

    def daemon(self) -> Registry:
        """A session of its own."""
        ...

    def expire(self, daemon: Registry) -> None:
        """Expire a daemon's session without its doing."""
        ...

    def wipe(self) -> None:
        """Remove the whole tree."""
        ...

    def put(self, folder: str, name: str) -> None:
        """Put a foreign name into a folder, as another program would."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the registry's threads, or their substitute, run until the condition holds."""
        ...


class InMemory:
    def __init__(self) -> None:
        self._server = MemoryZooKeeper(clock=SystemClock())
        self._daemons: list[Registry] = []

    def daemon(self) -> Registry:
        daemon = self._server.registry(
            is_process_alive=lambda pid: process_start_time(pid) is not None
        )
        self._daemons.append(daemon)
        return daemon

    def expire(self, daemon: Registry) -> None:
        self._server.expire(daemon)  # type: ignore[arg-type]  # Only its own are given to it.

    def wipe(self) -> None:
        self._server.wipe()

    def put(self, folder: str, name: str) -> None:
        self._server.create(folder, name)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(3):
            for daemon in self._daemons:
                daemon.pulse()  # type: ignore[attr-defined]  # As above.
            self._server.deliver()
        assert condition()

    def close(self) -> None:
        """Close every session when the test ends."""


class OnZookeeper:
    def __init__(self, root: ZookeeperRoot) -> None:
        self._config = RegistryConfig(
            hosts=root.hosts, root=root.root, session_timeout=timedelta(seconds=20)
        )
        self._sessions: dict[int, Session] = {}
        self._other = self._session()

    def daemon(self) -> Registry:
        session = self._session()
        daemon = ZookeeperRegistry(session)
        self._sessions[id(daemon)] = session
        return daemon

    def expire(self, daemon: Registry) -> None:
        with self._sessions[id(daemon)].asking() as client:
            make, client_id = type(client), client.client_id

        def is_taken_over() -> bool:
            twin = make(hosts=self._config.hosts, client_id=client_id)
            try:
                twin.start()
            except KazooTimeoutError:
                return False  # The daemon was faster, and has its session back.
            twin.stop()
            twin.close()
            return True

        self.until(is_taken_over)

    def wipe(self) -> None:
        self.until(self._is_wiped)

    def _is_wiped(self) -> bool:
        # Daemons that repair the tree may create nodes while it is being deleted.
        with suppress(RegistryUnavailableError), self._other.asking() as client:
            client.delete(self._config.root, recursive=True)
            return True
        return False

    def put(self, folder: str, name: str) -> None:
        with self._other.asking() as client:
            client.create(self._other.path(folder, name), makepath=True)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = SystemClock().monotonic() + 60
        pause = threading.Event()
        while not condition():
            assert SystemClock().monotonic() < deadline, "it never came about"
            pause.wait(0.01)

    def close(self) -> None:
        """End all sessions and leave nothing behind."""
        for session in self._sessions.values():
            session.close()
        if self._exists():
            self.wipe()
        self._other.close()

    def _exists(self) -> bool:
        with self._other.asking() as client:
            return client.exists(self._config.root) is not None

    def _session(self) -> Session:
        return Session(self._config, clock=SystemClock())


@dataclass
class Watcher:
    """Counts its notifications."""

    notified: int = 0

    def notify(self) -> None:
        self.notified += 1

    def is_notified_since(self, count: int) -> Callable[[], bool]:
        return lambda: self.notified > count


def text(*, host: str = "127.0.0.1", pid: int | None = None, cpu: float = 0.12) -> str:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return Heartbeat(
        host=host,
        pid=os.getpid() if pid is None else pid,
        cpu=cpu,
        memory=0.35,
        load=0.87,
        created=noon,
        beaten=noon,
    ).text()


def entry(task: int, *, priority: int = 2, instance: int = 1, group: int = -1) -> QueueEntry:
    return QueueEntry(
        process_priority=2,
        process_instance_id=instance,
        task_priority=priority,
        task_instance_id=task,
        worker_group_id=group,
    )


def a_worker(server: Server, address: str = HERE) -> tuple[Registry, Node]:
    daemon = server.daemon()
    return daemon, daemon.membership.join(NodeKind.WORKER, address, text())


def can_hold(mutex: object) -> bool:
    with mutex.hold("masters", timeout=AT_ONCE) as held:  # type: ignore[attr-defined]
        return bool(held)
