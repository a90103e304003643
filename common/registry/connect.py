"""Assembles the registry: one session, and the parts that use it."""

from __future__ import annotations

from common.clock import Clock
from common.registry.config import RegistryConfig
from common.registry.kill_queue import ZookeeperKillQueue
from common.registry.membership import ZookeeperMembership
from common.registry.mutex import ZookeeperMutex
from common.registry.protocol import (
    KillQueue,
    Membership,
    Mutex,
    Registry,
    TaskQueue,
    WorkerBeats,
)
from common.registry.session import Session
from common.registry.task_queue import ZookeeperTaskQueue
from common.registry.worker_beats import ZookeeperWorkerBeats


class ZookeeperRegistry:
    """The registry on ZooKeeper; one for each daemon, shared by its loops and threads."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.membership: Membership = ZookeeperMembership(session)
        self.mutex: Mutex = ZookeeperMutex(session)
        self.task_queue: TaskQueue = ZookeeperTaskQueue(session)
        self.kill_queue: KillQueue = ZookeeperKillQueue(session)
        self.worker_beats: WorkerBeats = ZookeeperWorkerBeats(session)

    def close(self) -> None:
        """End the session: this daemon's znode, claims and locks go at once."""
        self._session.close()


def connect(config: RegistryConfig, *, clock: Clock) -> Registry:
    """Open a session, or raise `RegistryUnavailableError` after the connection timeout."""
    return ZookeeperRegistry(Session(config, clock=clock))
