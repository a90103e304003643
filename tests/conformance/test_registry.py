"""The registry in memory and on ZooKeeper: the simulator relies on their equivalence."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from common.clock import SystemClock
from common.host import process_start_time
from common.model.cluster import Heartbeat, KillEntry, Node, NodeKind, QueueEntry
from common.registry.config import RegistryConfig
from common.registry.connect import ZookeeperRegistry
from common.registry.protocol import (
    AddressInUseError,
    Registry,
    RegistryUnavailableError,
    Standing,
)
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
            hosts=root.hosts, root=root.root, session_timeout=timedelta(seconds=6)
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
            twin = type(client)(hosts=self._config.hosts, client_id=client.client_id)
        twin.start()
        twin.stop()
        twin.close()

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
        deadline = SystemClock().monotonic() + 20
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


@pytest.fixture(params=["memory", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made: InMemory | OnZookeeper
    if request.param == "memory":
        made = InMemory()
    else:
        made = OnZookeeper(request.getfixturevalue("zk_root"))
    yield made
    made.close()


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


# Membership.


def test_a_daemon_that_joined_is_seen_with_its_heartbeat(server: Server) -> None:
    daemon, node = a_worker(server)
    onlooker = server.daemon().membership
    assert onlooker.nodes(NodeKind.WORKER) == {node}
    assert onlooker.heartbeats(NodeKind.WORKER) == {node: text()}
    assert onlooker.nodes(NodeKind.MASTER) == frozenset()
    assert daemon.membership.standing() is Standing.TRUSTED


def test_a_beat_replaces_the_heartbeat_and_keeps_the_incarnation(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.membership.beat(text(cpu=0.5))
    assert daemon.membership.heartbeats(NodeKind.WORKER) == {node: text(cpu=0.5)}


def test_nobody_is_trusted_before_having_joined(server: Server) -> None:
    membership = server.daemon().membership
    assert membership.standing() is Standing.LOST
    with pytest.raises(RegistryUnavailableError):
        membership.beat(text())


def test_a_daemon_that_left_is_gone_at_once(server: Server) -> None:
    daemon, _ = a_worker(server)
    daemon.membership.leave()
    assert daemon.membership.standing() is Standing.LOST
    assert server.daemon().membership.nodes(NodeKind.WORKER) == frozenset()


def test_addresses_are_compared_whole(server: Server) -> None:
    short, _ = a_worker(server, "127.0.0.1:1")
    _, long_node = a_worker(server, "127.0.0.1:12")
    short.membership.leave()
    assert short.membership.nodes(NodeKind.WORKER) == {long_node}


def test_masters_and_workers_may_have_the_same_address(server: Server) -> None:
    _, worker = a_worker(server)
    daemon = server.daemon()
    master = daemon.membership.join(NodeKind.MASTER, HERE, text())
    assert daemon.membership.nodes(NodeKind.MASTER) == {master}
    assert daemon.membership.nodes(NodeKind.WORKER) == {worker}


def test_a_restarted_daemon_replaces_its_dead_predecessor_at_once(server: Server) -> None:
    daemon = server.daemon()
    nobody = 2**22 + 1
    former = daemon.membership.join(NodeKind.WORKER, HERE, text(pid=nobody))
    successor, node = a_worker(server)
    assert node.incarnation != former.incarnation
    assert successor.membership.nodes(NodeKind.WORKER) == {node}
    server.until(lambda: daemon.membership.standing() is Standing.LOST)


def test_an_address_of_a_live_process_is_refused(server: Server) -> None:
    server.daemon().membership.join(NodeKind.WORKER, HERE, text(pid=os.getppid()))
    with pytest.raises(AddressInUseError, match=str(os.getppid())):
        server.daemon().membership.join(NodeKind.WORKER, HERE, text())


def test_joining_again_makes_a_new_incarnation(server: Server) -> None:
    daemon, former = a_worker(server)
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert node.incarnation > former.incarnation
    assert daemon.membership.standing() is Standing.TRUSTED
    assert daemon.membership.nodes(NodeKind.WORKER) == {node}


def test_a_daemon_whose_session_was_ended_is_lost_until_it_joins_again(server: Server) -> None:
    daemon, former = a_worker(server)
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    with pytest.raises(RegistryUnavailableError):
        daemon.membership.beat(text())
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert node.incarnation > former.incarnation
    assert daemon.membership.standing() is Standing.TRUSTED


def test_a_daemon_whose_znode_was_wiped_is_lost_and_can_join_again(server: Server) -> None:
    daemon, _ = a_worker(server)
    server.wipe()
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert daemon.membership.nodes(NodeKind.WORKER) == {node}


def test_a_beat_notices_that_the_znode_was_wiped(server: Server) -> None:
    daemon, _ = a_worker(server)
    server.wipe()
    with suppress(RegistryUnavailableError):  # The session's own check may have come first.
        daemon.membership.beat(text())
    assert daemon.membership.standing() is Standing.LOST


def test_watchers_hear_of_daemons_that_come_and_go(server: Server) -> None:
    watcher = Watcher()
    server.daemon().membership.watch(NodeKind.WORKER, watcher.notify)
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    daemon, _ = a_worker(server)
    server.until(watcher.is_notified_since(before))
    before = watcher.notified
    daemon.close()
    server.until(watcher.is_notified_since(before))


def test_a_watcher_hears_that_its_own_standing_changed(server: Server) -> None:
    daemon, _ = a_worker(server)
    heard: list[Standing] = []
    daemon.membership.watch(NodeKind.MASTER, lambda: heard.append(daemon.membership.standing()))
    server.expire(daemon)
    server.until(lambda: Standing.LOST in heard)


def test_adopting_is_seen_by_everybody_while_it_lasts(server: Server) -> None:
    daemon = server.daemon()
    onlooker = server.daemon().membership
    with daemon.membership.adopting(HERE):
        node = daemon.membership.join(NodeKind.WORKER, HERE, text())
        assert onlooker.is_adopting(HERE)
        assert not onlooker.is_adopting(HERE[:-1])
        assert onlooker.nodes(NodeKind.WORKER) == {node}
    server.until(lambda: not onlooker.is_adopting(HERE))


def test_adopting_ends_with_the_session(server: Server) -> None:
    daemon = server.daemon()
    onlooker = server.daemon().membership
    with daemon.membership.adopting(HERE):
        daemon.close()
        server.until(lambda: not onlooker.is_adopting(HERE))


def test_a_daemon_that_starts_again_adopts_in_place_of_its_predecessor(server: Server) -> None:
    former = server.daemon()
    successor = server.daemon()
    with former.membership.adopting(HERE), successor.membership.adopting(HERE):
        former.close()
        assert successor.membership.is_adopting(HERE)


def test_adopting_after_the_session_was_lost_goes_with_the_next_incarnation(
    server: Server,
) -> None:
    daemon, _ = a_worker(server)
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    with daemon.membership.adopting(HERE):
        daemon.membership.join(NodeKind.WORKER, HERE, text())
        assert server.daemon().membership.is_adopting(HERE)


# The mutex.


def test_the_mutex_excludes_and_is_given_up(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with one.hold("masters", timeout=AT_ONCE) as held:
        assert held
        with other.hold("masters", timeout=AT_ONCE) as also_held:
            assert not also_held
    server.until(lambda: _can_hold(other))


def test_the_mutex_is_given_up_when_its_holder_fails(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with pytest.raises(ZeroDivisionError), one.hold("masters", timeout=AT_ONCE):
        raise ZeroDivisionError
    server.until(lambda: _can_hold(other))


def test_locks_of_other_names_do_not_block(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with (
        one.hold("failover/masters", timeout=AT_ONCE) as held,
        other.hold("failover/workers", timeout=AT_ONCE) as also_held,
    ):
        assert held
        assert also_held


def test_a_lock_goes_with_its_holders_session(server: Server) -> None:
    holder, other = server.daemon(), server.daemon().mutex
    with holder.mutex.hold("masters", timeout=AT_ONCE):
        holder.close()
        server.until(lambda: _can_hold(other))


def test_who_gave_up_waiting_does_not_stand_in_the_way(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with one.hold("masters", timeout=AT_ONCE), other.hold("masters", timeout=AT_ONCE) as held:
        assert not held
    server.until(lambda: _can_hold(one))


def _can_hold(mutex: object) -> bool:
    with mutex.hold("masters", timeout=AT_ONCE) as held:  # type: ignore[attr-defined]
        return bool(held)


# The task queue.


def test_entries_come_in_the_order_in_which_they_should_be_claimed(server: Server) -> None:
    queue = server.daemon().task_queue
    late = entry(100, priority=3)
    ten, nine = entry(10), entry(9)
    next_instance = entry(1, priority=0, instance=2)
    queue.offer([next_instance, late, ten, nine])
    assert server.daemon().task_queue.entries() == (nine, ten, late, next_instance)


def test_an_entry_keeps_its_group_and_hosts(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(7, group=3)])
    assert queue.entries() == (entry(7, group=3),)


def test_offering_again_changes_nothing(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1)])
    queue.offer([entry(1), entry(2)])
    assert queue.entries() == (entry(1), entry(2))


def test_names_that_no_master_wrote_are_left_out(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1)])
    server.put("tasks_queue", "a_b_c_d")
    server.put("tasks_queue", "readme")
    assert queue.entries() == (entry(1),)


def test_what_was_withdrawn_is_gone(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1), entry(2)])
    queue.withdraw([entry(1), entry(3)])
    assert queue.entries() == (entry(2),)


def test_of_two_claims_for_one_entry_one_wins(server: Server) -> None:
    (one, node), (other, other_node) = a_worker(server), a_worker(server, THERE)
    one.task_queue.offer([entry(1)])
    assert one.task_queue.claim([entry(1)], node) == (entry(1),)
    assert other.task_queue.claim([entry(1)], other_node) == ()
    assert other.task_queue.entries() == ()
    assert other.task_queue.claimed() == {1}


def test_a_claim_answers_what_was_won_in_the_order_asked(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.task_queue.offer([entry(1), entry(2), entry(3)])
    asked = [entry(3), entry(4), entry(1)]
    assert daemon.task_queue.claim(asked, node) == (entry(3), entry(1))
    assert daemon.task_queue.entries() == (entry(2),)


def test_what_is_still_claimed_is_not_claimed_again(server: Server) -> None:
    (one, node), (other, other_node) = a_worker(server), a_worker(server, THERE)
    one.task_queue.offer([entry(1)])
    one.task_queue.claim([entry(1)], node)
    one.task_queue.offer([entry(1)])
    assert other.task_queue.claim([entry(1)], other_node) == ()
    one.task_queue.release([entry(1)])
    server.until(lambda: other.task_queue.claim([entry(1)], other_node) == (entry(1),))


def test_a_released_claim_is_gone(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.task_queue.offer([entry(1), entry(2)])
    daemon.task_queue.claim([entry(1), entry(2)], node)
    daemon.task_queue.release([entry(1)])
    assert daemon.task_queue.claimed() == {2}


def test_a_claim_goes_with_the_session(server: Server) -> None:
    daemon, node = a_worker(server)
    onlooker = server.daemon().task_queue
    onlooker.offer([entry(1)])
    daemon.task_queue.claim([entry(1)], node)
    server.expire(daemon)
    server.until(lambda: onlooker.claimed() == frozenset())


def test_a_former_incarnation_claims_nothing(server: Server) -> None:
    daemon, former = a_worker(server)
    daemon.membership.join(NodeKind.WORKER, HERE, text())
    daemon.task_queue.offer([entry(1)])
    with pytest.raises(RegistryUnavailableError):
        daemon.task_queue.claim([entry(1)], former)
    assert daemon.task_queue.entries() == (entry(1),)
    assert daemon.task_queue.claimed() == frozenset()


def test_watchers_hear_of_offers(server: Server) -> None:
    watcher = Watcher()
    server.daemon().task_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    queue = server.daemon().task_queue
    for task in range(3):
        before = watcher.notified
        queue.offer([entry(task)])
        server.until(watcher.is_notified_since(before))


def test_the_queues_work_again_after_the_tree_was_wiped(server: Server) -> None:
    queue, kills = server.daemon().task_queue, server.daemon().kill_queue
    watcher = Watcher()
    queue.watch(watcher.notify)
    queue.offer([entry(1)])
    server.wipe()
    assert queue.entries() == ()
    assert kills.asked(HERE) == ()
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    queue.offer([entry(2)])
    kills.ask([KillEntry(address=HERE, task_instance_id=2)])
    assert queue.entries() == (entry(2),)
    server.until(watcher.is_notified_since(before))
    daemon, node = a_worker(server)
    assert daemon.task_queue.claim([entry(2)], node) == (entry(2),)
    assert _can_hold(daemon.mutex)


def test_many_entries_are_offered_claimed_and_withdrawn_together(server: Server) -> None:
    daemon, node = a_worker(server)
    entries = tuple(entry(task) for task in range(1, 1201))
    daemon.task_queue.offer(entries)
    assert daemon.task_queue.entries() == entries
    assert daemon.task_queue.claim(entries[:300], node) == entries[:300]
    daemon.task_queue.withdraw(entries)
    assert daemon.task_queue.entries() == ()
    daemon.task_queue.release(entries[:300])
    server.until(lambda: daemon.task_queue.claimed() == frozenset())


# The kill queue.


def test_t63_kill_requests_reach_the_worker_at_exactly_that_address(server: Server) -> None:
    queue = server.daemon().kill_queue
    mine = KillEntry(address="spark-node-1:12", task_instance_id=45)
    others = KillEntry(address="spark-node-1:1", task_instance_id=46)
    queue.ask([mine, others])
    queue.ask([mine])
    assert server.daemon().kill_queue.asked("spark-node-1:12") == (mine,)


def test_a_kill_request_that_was_met_is_gone(server: Server) -> None:
    queue = server.daemon().kill_queue
    request = KillEntry(address=HERE, task_instance_id=45)
    queue.ask([request])
    queue.remove([request, KillEntry(address=HERE, task_instance_id=46)])
    assert queue.asked(HERE) == ()


def test_watchers_hear_of_kill_requests(server: Server) -> None:
    watcher = Watcher()
    server.daemon().kill_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    server.daemon().kill_queue.ask([KillEntry(address=HERE, task_instance_id=45)])
    server.until(watcher.is_notified_since(before))


def test_a_closed_registry_answers_nothing(server: Server) -> None:
    daemon, _ = a_worker(server)
    daemon.close()
    assert daemon.membership.standing() is Standing.LOST
    with pytest.raises(RegistryUnavailableError):
        daemon.membership.nodes(NodeKind.WORKER)
    with pytest.raises(RegistryUnavailableError):
        daemon.task_queue.offer([entry(1)])


# In memory only: the simulator's faults.


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
    assert not _can_hold(onlooker.mutex)
    assert len(onlooker.membership.nodes(NodeKind.WORKER)) == 1
    clock.seconds += 0.2
    server.tick(clock.seconds)
    assert onlooker.task_queue.claimed() == frozenset()
    assert _can_hold(onlooker.mutex)
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
