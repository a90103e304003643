"""The faults of the registry in memory, which the simulator asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from common.model.cluster import NodeKind
from common.registry.protocol import RegistryUnavailableError, Standing
from tests.conformance.registries import AT_ONCE, HERE, Watcher, can_hold, entry, text
from tests.memory.registry import MemoryZooKeeper


class Crashed(BaseException):
    """The simulated death of the daemon."""


@dataclass
class HandClock:
    """A clock that only the test advances."""

    seconds: float = 100.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


def test_a_daemon_can_be_crashed_before_and_after_each_change() -> None:
    server = MemoryZooKeeper(clock=HandClock())
    heard: list[str] = []
    daemon = server.registry(before_operation=heard.append)
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    daemon.task_queue.offer([entry(1)])
    daemon.task_queue.claim([entry(1)], node)
    daemon.task_queue.release([entry(1)])
    name = entry(1).name
    assert heard == [
        f"{when} {operation}"
        for operation in (
            f"join workers/{HERE}",
            f"add tasks_queue/{name}",
            f"claim {name}",
            f"take back tasks_claimed/{name}",
        )
        for when in ("before", "after")
    ]


def test_what_a_crashed_daemon_held_stays_until_its_session_expires() -> None:
    clock = HandClock()
    server = MemoryZooKeeper(clock=clock)
    onlooker = server.registry()
    daemon = server.registry()

    def work() -> None:
        node = daemon.membership.join(NodeKind.WORKER, HERE, text())
        daemon.task_queue.offer([entry(1)])
        daemon.task_queue.claim([entry(1)], node)
        with daemon.mutex.hold("masters", timeout=AT_ONCE):
            daemon.crash()
            raise Crashed

    with pytest.raises(Crashed):
        work()
    clock.seconds += 9.9
    onlooker.pulse()
    server.tick(clock.seconds)
    assert onlooker.task_queue.claimed() == {1}
    assert not can_hold(onlooker.mutex)
    assert len(onlooker.membership.nodes(NodeKind.WORKER)) == 1
    clock.seconds += 0.2
    server.tick(clock.seconds)
    assert onlooker.task_queue.claimed() == frozenset()
    assert can_hold(onlooker.mutex)
    assert onlooker.membership.nodes(NodeKind.WORKER) == frozenset()


def test_a_cut_off_daemon_knows_that_it_is_lost_before_others_see_it_go() -> None:
    clock = HandClock()
    server = MemoryZooKeeper(clock=clock)
    daemon, onlooker = server.registry(), server.registry()
    former = daemon.membership.join(NodeKind.WORKER, HERE, text())
    daemon.cut_off()
    daemon.pulse()
    assert daemon.membership.standing() is Standing.SUSPENDED
    clock.seconds += 7
    server.tick(clock.seconds)
    assert daemon.membership.standing() is Standing.LOST
    assert onlooker.membership.nodes(NodeKind.WORKER) == {former}
    daemon.reconnect()
    daemon.pulse()
    assert daemon.membership.standing() is Standing.LOST
    assert daemon.membership.join(NodeKind.WORKER, HERE, text()) != former


def test_nobody_expires_while_the_server_is_away() -> None:
    clock = HandClock()
    server = MemoryZooKeeper(clock=clock)
    daemon = server.registry()
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    server.freeze()
    with pytest.raises(RegistryUnavailableError):
        daemon.membership.nodes(NodeKind.WORKER)
    clock.seconds += 100
    server.tick(clock.seconds)
    server.thaw()
    server.tick(clock.seconds)
    assert server.registry().membership.nodes(NodeKind.WORKER) == {node}


def test_events_wait_until_they_are_delivered_and_may_be_dropped() -> None:
    server = MemoryZooKeeper(clock=HandClock())
    watcher = Watcher()
    daemon = server.registry()
    daemon.task_queue.watch(watcher.notify)
    assert server.deliver() == 1
    daemon.task_queue.offer([entry(1), entry(2)])
    assert watcher.notified == 1
    server.events.clear()
    daemon.task_queue.offer([entry(3)])
    assert server.deliver() == 1
    assert watcher.notified == 2
